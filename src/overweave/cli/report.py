"""``overweave report``: what a profile or a sweep found, or a plan says, as one HTML file."""

import contextlib
import functools
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.terminal import waiting
from overweave.pipeline.locations import Location

EXAMPLE = """\
overweave simulate examples/scenario.toml --trace traces
overweave profile traces --out profiles
overweave report profiles --out report.html"""


def report(
    directory: Annotated[
        str, typer.Argument(metavar="SOURCE", help="A directory of 'overweave profile' or 'sweep', or a plan's file.")
    ],
    network: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The network, or scenario, that a plan has to be for.")
    ] = None,
    brokers: Annotated[str | None, typer.Option(metavar="TABLE", help="With --network: what its brokers can carry.")] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Where the page goes; else beside what it is about.")] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark master; else all cores of this machine.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; several times.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Say what was written as JSON.")] = False,
) -> None:
    """Write a report as one HTML file, with all figures in it, to be read anywhere, offline and on paper.

    Of a profile: the load of brokers over time, delays, yield and hops, the rates of publishers, the number and density of
    profiles. Of a sweep: its figures, the means of its measures, and what failed. Of a plan: the overlay before and after, the
    load of every broker, and who moves.
    """
    source = Location.of(directory)
    with waiting("reading") as show, contextlib.ExitStack() as stack:
        from overweave.pipeline.session import session
        from overweave.reports import write_report

        start = functools.cache(lambda: stack.enter_context(session(master, conf=conf or [])))
        if source.is_remote or Location.of(out or "").is_remote or Location.of(brokers or "").is_remote:
            start()
        page = _page(source, out)
        if network is not None or brokers is not None:
            from overweave.pipeline.plan_files import check_plan

            check_plan(source, network, brokers)
        show("writing the report")
        kind = write_report(source, page, start)
    if json:
        put(msgspec.json.format(msgspec.json.encode({"kind": kind, "report": str(page)}), indent=2) + b"\n")
    else:
        put(f"{page}\n".encode())


def _page(source: Location, out: str | None) -> Location:
    """Where the page goes: beside what it is about, unless somebody says."""
    if out is not None:
        return Location.of(out)
    return source.with_name(f"{source.name.removesuffix(source.suffix)}.html") if source.is_file() else source / "report.html"
