"""``overweave sweep``: a grid of scenarios on Spark, and what came out as a table, figures and a page."""

import contextlib
import functools
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.terminal import progress, say, waiting
from overweave.errors import OverweaveError
from overweave.pipeline.locations import Location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from overweave.pipeline.sweeps.file import Sweep
    from overweave.pipeline.sweeps.running import Outcome

EXAMPLE = """\
printf '%s\\n' 'duration_s = 10' '[sweep]' 'repetitions = 3' '[overlay]' 'shape = "chain"' 'brokers = [2, 4, 8]' \\
  '[routing]' 'protocol = ["filter", "flooding"]' '[workload]' 'publishers = 2' 'subscriptions_per_publisher = 5' > sweep.toml
overweave sweep sweep.toml --out sweep --json"""


def sweep(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A scenario in TOML, with lists of values.", show_default=False)],
    out: Annotated[str, typer.Option(metavar="DIR", help="A directory, new, empty or of an earlier run.", show_default=False)],
    again: Annotated[bool, typer.Option("--retry-failed", help="Retry the failed scenarios of an earlier run.")] = False,
    parallel: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Groups of scenarios at a time; else one per core, four on clusters.")
    ] = None,
    master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark master; else all cores of this machine.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; several times.", show_default=False)
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Evaluate every scenario of a grid, by simulation or another kind that the file names.

    Writes the table metrics (Parquet, one row per scenario: its parameters, its measures, its error if it failed), figures
    (SVG and PNG) and report.html into DIR. Overloaded scenarios and the number of faults are reported. The whole file is checked
    before anything runs. Finished scenarios survive an interrupted run, and the same command computes the rest.
    """
    began_s = time.monotonic()
    with waiting("reading the grid"):
        from overweave.pipeline.sweeps.file import read_sweep
        from overweave.pipeline.sweeps.results import check_free

        target = Location.of(out)
        grid = read_sweep(file)
        if not target.is_remote:
            check_free(target)
    with contextlib.ExitStack() as stack:
        start = _starter(stack, master, conf or [])
        if target.is_remote:
            start()
        outcome = _run(grid, target, again, parallel, start)
        with waiting("drawing"):
            from overweave.pipeline.sweeps.results import read_metrics
            from overweave.pipeline.sweeps.summary import fault_totals, overloaded_scenarios
            from overweave.reports import write_report
            from overweave.reports.sweep import write_figures

            page, figures = target / "report.html", write_figures(target)
            write_report(target, page, start)
    metrics = read_metrics(target)
    overloaded, faults = overloaded_scenarios(metrics), fault_totals(metrics)
    if outcome.failed:
        say(f"{outcome.failed:,} of {outcome.scenarios:,} scenarios failed; see the column 'error'; --retry-failed retries them")
    answer = outcome._asdict() | {
        "overloaded": overloaded,
        "faults": faults,
        "metrics": str(target / "metrics"),
        "figures": [str(path) for path in figures],
        "report": str(page),
        "seconds": round(time.monotonic() - began_s, 3),
    }
    put(msgspec.json.format(msgspec.json.encode(answer), indent=2) + b"\n" if json else _text(answer, overloaded))
    if outcome.failed == outcome.scenarios:
        raise OverweaveError(f"{file}: no scenario could be evaluated; the column 'error' of {target / 'metrics'} has the errors")


def _starter(stack: contextlib.ExitStack, master: str | None, conf: list[str]) -> Callable[[], "SparkSession"]:
    """Starts Spark when somebody first needs it: not where everything is finished."""
    from overweave.pipeline.session import session

    @functools.cache
    def start() -> "SparkSession":
        with waiting("starting Spark"):
            return stack.enter_context(session(master, conf=conf))

    return start


def _run(grid: "Sweep", out: Location, again: bool, parallel: int | None, start: Callable[[], "SparkSession"]) -> "Outcome":
    from overweave.pipeline.sweeps.results import Results
    from overweave.pipeline.sweeps.running import run_sweep

    results, total, finished = Results(grid, out), len(grid.tasks), 0
    with progress("sweeping", total) as show:

        def on_done(done: int) -> None:
            nonlocal finished
            finished = done
            show(done)

        try:
            return run_sweep(start, grid, results, again=again, parallel=parallel, on_done=on_done)
        except KeyboardInterrupt:
            say(f"{finished:,} of {total:,} scenarios are finished; the same command goes on with the rest")
            raise


def _text(answer: dict[str, object], overloaded: list[dict[str, str]]) -> bytes:
    """The answer as text, with a line for each overloaded scenario."""
    from overweave.drivers.sim.utilisation import NAMED_MAX, overload_text

    lines = [f"{name:12}{_shown(value)}" for name, value in (answer | {"overloaded": len(overloaded)}).items()]
    lines += [f"scenario {each['scenario']} {overload_text([each['overloaded']])}" for each in overloaded[:NAMED_MAX]]
    if len(overloaded) > NAMED_MAX:
        lines.append(f"{len(overloaded) - NAMED_MAX:,} more scenarios are overloaded: column 'overloaded' of the metrics")
    return "".join(f"{line}\n" for line in lines).encode()


def _shown(value: object) -> str:
    if isinstance(value, list):
        return f"{len(value)} files"
    return f"{value:,}" if isinstance(value, int | float) else str(value)
