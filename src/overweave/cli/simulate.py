"""``overweave simulate``: one scenario in the simulator, its metrics and, if wanted, its trace."""

import contextlib
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.terminal import progress
from overweave.drivers.sim.metrics import Metrics
from overweave.drivers.sim.runner import simulate as simulate_scenario
from overweave.drivers.sim.scenario import read_scenario
from overweave.drivers.sim.series_file import SeriesWriter, series_path
from overweave.drivers.sim.utilisation import overload_text
from overweave.drivers.tracing.files import TraceWriter
from overweave.drivers.tracing.names import run_name
from overweave.errors import InvalidInput

EXAMPLE = """\
printf '%s\\n' 'duration_s = 10' '[overlay]' 'shape = "balanced"' 'brokers = 12' 'degree = 3' \\
  '[workload]' 'publishers = 4' 'subscriptions_per_publisher = 5' > scenario.toml
overweave simulate scenario.toml --json"""


def simulate(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scenario in TOML.", show_default=False)],
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", help="Instead of the scenario's seed.")] = None,
    trace: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the trace, the table 'deliveries', as Parquet into DIR.")
    ] = None,
    series: Annotated[
        Path | None,
        typer.Option(metavar="FILE|DIR", help="Write measures per broker and interval: .csv, .parquet, or Parquet into DIR."),
    ] = None,
    every: Annotated[float, typer.Option(metavar="S", help="The interval of --series in simulated seconds.")] = 1.0,
    json: Annotated[bool, typer.Option("--json", help="Write the metrics as JSON.")] = False,
) -> None:
    """Simulate a network of brokers under a workload, and report its metrics, its faults and overloaded brokers.

    The same scenario and seed give the same metrics and, byte by byte, the same trace. The trace of scenario.toml with
    seed 1 is DIR/run=scenario-seed-1; it appears when the run is complete and replaces an earlier one of that name.
    'overweave protocols' lists the protocols for [routing] and their options.
    """
    if not every > 0:
        raise InvalidInput(f"--every: expected a time above 0, got {every:g}")
    scenario = read_scenario(file, seed)
    run = run_name(f"{file.stem}-seed-{scenario.seed}")
    with contextlib.ExitStack() as stack:
        writer = TraceWriter(trace, run) if trace is not None else None
        on_record = stack.enter_context(writer) if writer is not None else _ignore
        on_statement = writer.add_statement if writer is not None else _ignore
        on_decision = writer.add_decision if writer is not None else _ignore
        on_sample = None if series is None else stack.enter_context(SeriesWriter(series_path(series, run)))
        done = stack.enter_context(progress("simulating", _milliseconds(scenario.duration_s)))
        done(0)
        metrics = simulate_scenario(
            scenario,
            lambda done_s: done(_milliseconds(done_s)),
            on_record,
            run,
            on_statement=on_statement,
            on_decision=on_decision,
            on_sample=on_sample,
            sample_every_s=every,
        )
    if json:
        put(msgspec.json.format(msgspec.json.encode(metrics), indent=2) + b"\n")
    else:
        _print(metrics)


def _ignore(_: object) -> None:
    pass


def _milliseconds(time_s: float) -> int:
    return round(time_s * 1000)


def _print(metrics: Metrics) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("measure", box=None, pad_edge=False, show_header=False)
    table.add_column("value", justify="right")
    for name, value in msgspec.to_builtins(metrics).items():
        if name in ("faults", "overloaded"):
            continue
        parts = {f"{name} {part}": figure for part, figure in value.items()} if isinstance(value, dict) else {name: value}
        for label, figure in parts.items():
            table.add_row(label.replace("_", " ").removesuffix(" s"), _figure(figure))
    table.add_row("faults", str(metrics.faults))
    console = Console(highlight=False)
    console.print(table)
    if metrics.overloaded:
        console.print(overload_text([str(each) for each in metrics.overloaded]), soft_wrap=True)


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"
