"""Registrations of third-party protocols: entry points of installed distributions, group ``overweave.routing``."""

import sys
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.metadata import Distribution, EntryPoint, distributions
from typing import NamedTuple

GROUP = "overweave.routing"


class Registration(NamedTuple):
    """One line of a distribution's entry points: ``name = "package.module:PROTOCOL"``."""

    name: str
    distribution: Distribution
    entry_point: EntryPoint

    @property
    def source(self) -> str:
        """The distribution and the value, for messages."""
        return f"{self.entry_point.value!r} of distribution {self.distribution.metadata['Name']!r}"

    @property
    def module(self) -> str:
        """The module's name."""
        return self.entry_point.value.partition(":")[0].strip()

    def load(self) -> object:
        """The object that is registered; whatever its module raises."""
        return self.entry_point.load()


def registrations() -> Mapping[str, Sequence[Registration]]:
    """All registrations on the present path, by name. Nothing is imported."""
    return _registrations(tuple(sys.path))


@lru_cache(maxsize=4)
def _registrations(path: tuple[str, ...]) -> Mapping[str, Sequence[Registration]]:
    found: dict[str, list[Registration]] = {}
    seen = set()
    for distribution in distributions(path=list(path)):
        entry_points = _entry_points(distribution.read_text("entry_points.txt") or "")
        # The first distribution of a name on the path is the one that is imported.
        if entry_points and (name := distribution.metadata["Name"]) not in seen:
            seen.add(name)
            for each in entry_points:
                found.setdefault(each.name, []).append(Registration(each.name, distribution, each))
    return found


def _entry_points(text: str) -> list[EntryPoint]:
    r"""The entry points of our group in a file; a malformed line must not hide the others, and fails when it is loaded.

    >>> _entry_points("[overweave.routing]\nmine = mine.routing:PROTOCOL\n[other]\nx = y")
    [EntryPoint(name='mine', value='mine.routing:PROTOCOL', group='overweave.routing')]
    """
    section, found = "", []
    for line in map(str.strip, text.splitlines()):
        if line.startswith("["):
            section = line.strip("[] ")
        elif section == GROUP and line and not line.startswith(("#", ";")):
            name, _, value = line.partition("=")
            found.append(EntryPoint(name.strip(), value.strip(), GROUP))
    return found
