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
        list[int] | None, typer.Option(min=1, metavar="N", help="How many; several times for several sizes.")
    ] = None,
    publications: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="pipeline: likewise; the first sizes are 1 and 10 million.")
    ] = None,
    deliveries: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="pipeline: rows of traces to profile, likewise.")
    ] = None,
    replayed: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="pipeline: subscriptions to replay, likewise.")
    ] = None,
    per_filter: Annotated[
        list[int] | None, typer.Option(min=1, metavar="N", help="scale: publishers per filter, likewise.")
    ] = None,
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="scale: where figures and a plot go.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="capacity: in half a minute, less exactly.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Write a JSON list of rows.")] = False,
) -> None:
    """Measure against a baseline in the same run, and print how many times better we are.

    Absolute times belong to this machine at this moment; the ratios are what to compare. All sizes of matching take about two
    and a half minutes.

    capacity has no baseline: it measures what one broker process on this machine can carry, with clients over TCP on the
    loopback interface, and ends with the [[broker]] fragment of a network file that says so. Rates are per second of the
    broker's processor time, as if it had a core for itself, so that other work on the machine does not count. Messages have 200
    bytes. Output: what goes to 20 subscribers that get everything. Matching delay: processor time per publication that matches
    none of N filters, a line by least squares of relative errors over several N. Capacity: publications that go to one
    subscriber. A network card that is slower than that is not measured.
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
            raise InvalidInput(f"bench {name}: expected no --{option.replace('_', '-')}, which this benchmark does not know")
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
        # What follows from the rows, to be pasted elsewhere.
        if hasattr(module, "fragment"):
            put(f"\n{module.fragment(rows)}".encode())


def _print(name: str, rows: "list[Row]") -> None:
    from rich.console import Console
    from rich.table import Table

    # A terminal of 80 columns is enough: no frame, and what rows have in common stands above them once.
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
