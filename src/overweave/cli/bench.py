"""``overweave bench``: a benchmark is a module with ``run(progress, **options) -> list[Row]`` and one line in `BENCHMARKS`."""

import importlib
import inspect
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.terminal import task_bar, waiting
from overweave.errors import InvalidInput
from overweave.language.values import excerpt

if TYPE_CHECKING:
    from overweave.bench.base import Row

EXAMPLE = "overweave bench matching --subscriptions 10000 --json"

_NAMES = ("matching", "control", "simulator", "plane", "routing", "pipeline", "planning", "capacity", "scale")
#: Every benchmark and the module that runs it.
BENCHMARKS = {name: f"overweave.bench.{name}" for name in _NAMES}


def bench(
    name: Annotated[str, typer.Argument(metavar="NAME", help=f"One of: {', '.join(BENCHMARKS)}.")],
    subscriptions: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="Number of subscriptions; repeat for several sizes.")
    ] = None,
    publications: Annotated[
        list[int] | None,
        typer.Option(min=1, metavar="N", help="pipeline: number of publications; may be repeated."),
    ] = None,
    deliveries: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="pipeline: trace rows to profile; may be repeated.")
    ] = None,
    replayed: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="pipeline: subscriptions to replay; may be repeated.")
    ] = None,
    per_filter: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="scale: publishers per filter; may be repeated.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="scale: output directory of tables and a figure.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="capacity: less precise, in half a minute.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON list of rows.")] = False,
) -> None:
    """Run a benchmark against a baseline in the same run, and print the ratios.

    Absolute times depend on the machine and its load; compare the ratios. All sizes of matching take about two and a half
    minutes.

    capacity has no baseline. It measures the capacity of one broker process on this machine with clients over TCP on the
    loopback interface, and prints the [[broker]] fragment for a network file. Rates are per second of the broker's CPU time, so
    other load on the machine does not count. Messages have 200 bytes. Output bandwidth: 20 subscribers that receive everything.
    Matching delay: CPU time per publication that matches none of N filters, fitted by least squares of relative errors over
    several N. Capacity: publications to one subscriber. The network card is not measured.
    """
    if name not in BENCHMARKS:
        raise InvalidInput(f"bench: expected one of {', '.join(BENCHMARKS)}, found {excerpt(name)}")
    module = importlib.import_module(BENCHMARKS[name])
    run = module.run
    given: dict[str, Any] = {
        "subscriptions": subscriptions, "publications": publications, "deliveries": deliveries, "replayed": replayed,
        "per_filter": per_filter, "out": out,
        "quick": quick,
    }  # fmt: skip
    options = {option: value for option, value in given.items() if value}
    known = inspect.signature(run).parameters
    for option in options:
        if option not in known:
            raise InvalidInput(f"bench {name}: --{option.replace('_', '-')} is not an option of this benchmark")
    if "on_tasks" in known:
        with task_bar(f"measuring {name}") as bar:
            rows: list[Row] = run(bar.say, on_tasks=bar.on_tasks, **options)
    else:
        with waiting(f"measuring {name}") as say:
            rows = run(say, **options)
    if json:
        put(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
    else:
        _print(name, rows)
        # A fragment of a configuration file.
        if hasattr(module, "fragment"):
            put(f"\n{module.fragment(rows)}".encode())


def _print(name: str, rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    # For terminals of 80 columns: no frame, and common prefixes of rows as headings.
    table = Table("measured", "unit", title=f"bench {name}", box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for heading in ("ours", "baseline", "ratio", "promised"):
        table.add_column(heading, justify="right")
    above = ""
    for row in rows:
        group, colon, rest = row.name.partition(": ")
        if colon and group != above:
            table.add_row(group, style="bold")
        above = group if colon else ""
        promised = "" if row.ratio_min is None else f"≥ {row.ratio_min:,g}×"
        unit = row.unit.replace(" per ", "/")
        label = f" {rest}" if colon else row.name
        table.add_row(label, unit, _figure(row.ours), _figure(row.baseline), _figure(row.ratio, "×"), promised)
    Console().print(table)


def _figure(value: float | None, unit: str = "") -> str:
    return "" if value is None else f"{value:,.4g}{unit}" if abs(value) < 1000 else f"{value:,.0f}{unit}"
