"""``overweave reproduce``: re-runs the evaluation of a paper, with ours next to the published results."""

import contextlib
import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.spark_options import Master
from overweave.cli.terminal import waiting
from overweave.errors import InvalidInput

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from overweave.experiments.base import Claim

EXAMPLE = "overweave reproduce dest --out dest"


def reproduce(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="dest, minimal, stoch or thesis-allocation.", show_default=False)],
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Output directory (default: reproduce/PAPER).")] = None,
    full: Annotated[bool, typer.Option("--full/--quick", help="Paper scale (hours), or minutes.")] = False,
    master: Master = None,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON list of claims.")] = False,
) -> None:
    """Re-run the evaluation of a paper, and print our results next to the published ones.

    Writes claims.json, tables and figures into DIR. An interrupted run resumes.
    """
    from overweave.experiments import PAPERS
    from overweave.overlay.checks import nearest

    if paper not in PAPERS:
        raise InvalidInput(f"PAPER: unknown {paper!r}, {nearest(paper, PAPERS)}; expected one of {', '.join(PAPERS)}")
    folder = out or Path("reproduce") / paper
    if folder.exists() and not folder.is_dir():
        raise InvalidInput(f"{folder}: expected a directory, found a file")
    folder = folder / ("full" if full else "quick")
    folder.mkdir(parents=True, exist_ok=True)
    claims = _run(PAPERS[paper], folder, full, master)
    document = msgspec.json.format(msgspec.json.encode(claims), indent=2) + b"\n"
    (folder / "claims.json").write_bytes(document)
    put(document if json else _text(claims, folder).encode())


def _run(module: str, folder: Path, full: bool, master: str | None) -> "list[Claim]":
    from overweave.experiments.base import Setting
    from overweave.pipeline.session import session

    with waiting("starting") as say, contextlib.ExitStack() as stack:
        started: list[SparkSession] = []

        def start() -> "SparkSession":
            if not started:
                say("starting Spark")
                started.append(stack.enter_context(session(master)))
            return started[0]

        setting = Setting(folder, full, start, say)
        found: list[Claim] = importlib.import_module(module).run(setting)
        return found


def _text(claims: "list[Claim]", folder: Path) -> str:
    lines = []
    for claim in claims:
        mark = "holds" if claim.holds else "does not hold"
        lines += [
            f"{mark:14}{claim.claim}",
            f"{'':14}published: {_shown(claim.published)}",
            f"{'':14}ours:      {_shown(claim.ours)}",
        ]
        if claim.reason is not None:
            lines.append(f"{'':14}reason:    {claim.reason}")
    return "\n".join([*lines, f"tables and figures: {folder}", ""])


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(each)}" for name, each in value.items())
    return f"{value:,}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
