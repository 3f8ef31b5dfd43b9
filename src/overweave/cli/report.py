"""``overweave report``: an HTML report of a profile, a sweep or a plan."""

import contextlib
import functools
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.spark_options import Conf, Master
from overweave.cli.terminal import waiting
from overweave.pipeline.locations import Location

EXAMPLE = """\
overweave simulate examples/scenario.toml --trace traces
overweave profile traces --out profiles
overweave report profiles --out report.html"""


def report(
    directory: Annotated[
        str, typer.Argument(metavar="SOURCE", help="Directory of 'overweave profile' or 'sweep', or a plan file.")
    ],
    network: Annotated[Path | None, typer.Option(metavar="FILE", help="Network or scenario that the plan must be for.")] = None,
    brokers: Annotated[str | None, typer.Option(metavar="TABLE", help="With --network: capacities of its brokers.")] = None,
    out: Annotated[str | None, typer.Option(metavar="FILE", help="Output file (default: beside SOURCE).")] = None,
    master: Master = None,
    conf: Conf = None,
    json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Write a report as one self-contained HTML file.

    Of a profile: the load of brokers over time, delays, yield and hops, the rates of publishers, the number and density of
    profiles. Of a sweep: its figures, the means of its measures, and failures. Of a plan: the overlay before and after, the
    load of every broker, and the moves.
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
    """The output file: --out, or beside the source."""
    if out is not None:
        return Location.of(out)
    return source.parent / f"{source.name.removesuffix(source.suffix)}.html" if source.is_file() else source / "report.html"
