"""The profiles of a plan, kept beside it: the loads of all steps of its application are predicted from them."""

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

from overweave.cli.operators import Target
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay

if TYPE_CHECKING:
    from overweave.planning.problem import Problem

#: The file in a directory of profiles that names their plan, by its digest.
_MARK = "plan.sha256"


def directory_of(given: Path | None, out: str | None) -> Path | None:
    """The directory for the profiles of a live network: the given one, or one beside a plan file here; None: nowhere.

    >>> directory_of(None, "plans/plan.json"), directory_of(Path("kept"), "plan.json"), directory_of(None, None)
    (PosixPath('plans/plan.profiles'), PosixPath('kept'), None)
    """
    if given is not None or out is None or "://" in out:
        return given
    return beside(Path(out))


def beside(plan: Path) -> Path:
    """The directory beside a plan file."""
    return plan.with_suffix(".profiles")


def unmark(directory: Path) -> None:
    """The tables in a directory are about to change."""
    (directory / _MARK).unlink(missing_ok=True)


def mark(directory: Path, out: str) -> None:
    """Name the plan that was made from the profiles of a directory."""
    if "://" not in out and directory.is_dir():
        (directory / _MARK).write_text(f"{_digest(Path(out))}\n")


def read_profiles(directory: Path, network: Target) -> "Problem":
    """The planning problem of profiles of a network, spare brokers included."""
    from overweave.pipeline.plan_brokers import network_of
    from overweave.pipeline.planning import read_problem
    from overweave.planning.problem import Goals

    overlay = network.network.overlay
    everyone = Overlay((*overlay.brokers, *network.network.spares.values()), overlay.links)
    return read_problem(directory, network_of(everyone, "the network file"), Goals())


class PlanProfiles:
    """The profiles of the present version of a plan file: those of a given directory, or those beside it if they are its own."""

    def __init__(self, plan: Path, network: Target, directory: Path | None = None) -> None:
        self._plan, self._network, self._directory = plan, network, directory
        self._digest = ""
        self._problem: Problem | None = None

    def read(self) -> "Problem | None":
        """The problem, read again when the plan has changed; None: there are no profiles of this plan."""
        digest = _digest(self._plan)
        if digest != self._digest or self._problem is None:  # they are marked after the plan is written
            self._problem = self._found(digest)
            self._digest = digest
        return self._problem

    def _found(self, digest: str) -> "Problem | None":
        if self._directory is not None:
            return read_profiles(self._directory, self._network)
        marked = beside(self._plan) / _MARK
        if not marked.is_file() or marked.read_text().strip() != digest:
            return None
        return read_profiles(beside(self._plan), self._network)


def _digest(plan: Path) -> str:
    try:
        return hashlib.sha256(plan.read_bytes()).hexdigest()
    except OSError as error:
        raise InvalidInput(f"{plan}: expected a plan, found: {(error.strerror or str(error)).lower()}") from None
