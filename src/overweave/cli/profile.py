"""``overweave profile``: from traces to profiles of subscriptions and publishers, and the load of brokers, on Spark."""

import signal
import threading
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from overweave.cli.output import put
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
    traces: Annotated[str, typer.Argument(metavar="TRACES", help="A directory of traces.", show_default=False)],
    out: Annotated[str, typer.Option(metavar="DIR", help="Where the tables go.", show_default=False)],
    run: Annotated[str | None, typer.Option(metavar="RUN", help="Which run, where there are several.")] = None,
    bits: Annotated[int, typer.Option(metavar="N", help="Last publications that profiles tell of; a multiple of 64.")] = 1280,
    bucket: Annotated[float, typer.Option(metavar="SECONDS", help="How finely the load is told.")] = 1.0,
    master: Annotated[str | None, typer.Option(metavar="URL", help="A Spark master; else all cores of this machine.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A setting of Spark; several times.", show_default=False)
    ] = None,
    skip_bad: Annotated[
        bool, typer.Option("--skip-bad", help="Leave out rows and files that are bad; the table 'bad' counts them.")
    ] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Keep the tables up to date as the trace grows, until Ctrl-C.")
    ] = False,
    every: Annotated[float, typer.Option(metavar="SECONDS", help="With --follow: how often to look for new files.")] = 5.0,
    json: Annotated[bool, typer.Option("--json", help="Write the totals as JSON.")] = False,
) -> None:
    """Profile what a network carried, simulated or live.

    Writes the tables profiles (a bit vector per subscription and publisher), publisher_profiles (rates), subscription_lifetimes
    (client, broker and filter, also of those that got nothing), load (brokers over time) and summary (arrivals, yield, bytes in
    and out, deliveries with their hops and delays, per broker) as Parquet into DIR, all at once when they are complete.

    With --follow the run may still be going on, or not have begun. DIR then always has complete tables, which say what they would
    say without --follow of the rows read so far; after Ctrl-C the same command goes on where it was.
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
        say(f"left out {totals.bad_rows:,} bad rows and {totals.bad_files:,} files that cannot be read; {counted} counts them")
    if json:
        put(msgspec.json.format(msgspec.json.encode(totals), indent=2) + b"\n")
        return
    lines = (f"{name.replace('_', ' '):16}{_figure(value)}\n" for name, value in msgspec.to_builtins(totals).items())
    put("".join(lines).encode())


def _check(traces: Location, out: Location) -> None:
    """What can be seen to be wrong before Spark is started."""
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

        # Spark has taken Ctrl-C for itself when it started.
        with session(master, conf=conf) as spark, stopping(stopped, signal.SIGINT):
            return follow(spark, traces, out, run, bits, bucket, every, stopped, show)


def _figure(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.4g}"
    return "–" if value is None else f"{value:,}" if isinstance(value, int) else str(value)
