"""``overweave profile``: profiles of subscriptions and publishers and the load of brokers, from traces, on Spark."""

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overweave.cli.output import put
from overweave.cli.spark_options import Conf, Master
from overweave.cli.stopping import stopping
from overweave.cli.terminal import say, task_bar, waiting
from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location

if TYPE_CHECKING:
    from overweave.pipeline.jobs import Totals

EXAMPLE = """\
overweave simulate examples/scenario.toml --trace traces
overweave profile traces --out profiles --json"""


def profile(
    traces: Annotated[str, typer.Argument(metavar="TRACES", help="Directory of traces.", show_default=False)],
    out: Annotated[str, typer.Option(metavar="DIR", help="Output directory.", show_default=False)],
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Run id, if there are several.")] = None,
    bits: Annotated[int, typer.Option(metavar="N", help="Window of profiles in publications; a multiple of 64.")] = 1280,
    bucket: Annotated[float, typer.Option(metavar="SECONDS", help="Time resolution of the load.")] = 1.0,
    master: Master = None,
    conf: Conf = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Skip invalid rows and files; the table 'bad' counts them.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Update the tables as the trace grows, until Ctrl-C.")] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --follow: polling interval.")] = 5.0,
    json: Annotated[bool, typer.Option("--json", help="Write the totals as JSON.")] = False,
) -> None:
    """Profile the traffic of a network, simulated or live.

    Writes Parquet tables into DIR, atomically when all are complete: profiles (a bit vector per subscription and publisher),
    publisher_profiles (rates), subscription_lifetimes (client, broker and filter, also without deliveries), load (brokers over
    time) and summary (per broker: arrivals, yield, bytes in and out, deliveries with their hops and delays).

    With --follow the run may be in progress, or not have started. DIR then always has complete tables of the rows read so far,
    equal to those without --follow. After Ctrl-C the same command resumes.
    """
    if follow and skip_bad:
        raise InvalidInput("--skip-bad: expected without --follow, found both")
    source, target = Location.of(traces), Location.of(out)
    if follow:
        totals = _followed(source, target, run, bits, bucket, every, master, conf or [])
    else:
        _check(source, target)
        totals = _profiled(source, target, run, bits, bucket, master, conf or [], skip_bad)
    if totals.bad_rows or totals.bad_files:
        counted = target / "bad"
        say(f"skipped {totals.bad_rows:,} bad rows and {totals.bad_files:,} unreadable files; see {counted}")
    if json:
        put(msgspec.json.format(msgspec.json.encode(totals), indent=2) + b"\n")
        return
    lines = (f"{name.replace('_', ' '):16}{_figure(value)}\n" for name, value in msgspec.to_builtins(totals).items())
    put("".join(lines).encode())


def _check(traces: Location, out: Location) -> None:
    """Checks that do not need Spark."""
    from overweave.pipeline.jobs import check_out

    if not traces.is_remote and not traces.exists():
        raise InvalidInput(f"{traces}: expected a file or directory, found nothing")
    if not out.is_remote:
        check_out(out)


def _profiled(
    traces: Location,
    out: Location,
    run: str | None,
    bits: int,
    bucket: float,
    master: str | None,
    conf: list[str],
    skip_bad: bool,
) -> "Totals":
    with task_bar("starting Spark") as bar:
        from overweave.pipeline.jobs import profile_run
        from overweave.pipeline.session import session
        from overweave.pipeline.task_progress import report_progress

        with session(master, conf=conf) as spark, report_progress(spark, bar.on_tasks):
            return profile_run(
                spark, traces, out, run, bits, bucket, lambda name: bar.say(f"computing {name}"), skip_bad=skip_bad
            )


def _followed(
    traces: Location, out: Location, run: str | None, bits: int, bucket: float, every: float, master: str | None, conf: list[str]
) -> "Totals":
    stopped = threading.Event()
    with stopping(stopped, signal.SIGINT, signal.SIGTERM), waiting("starting Spark") as show:
        from overweave.pipeline.session import session
        from overweave.pipeline.streaming.follow import follow

        # The start of Spark replaced the handler of Ctrl-C.
        with session(master, conf=conf) as spark, stopping(stopped, signal.SIGINT):
            return follow(spark, traces, out, run, bits, bucket, every, stopped, show)


def _figure(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
