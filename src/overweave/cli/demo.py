"""``overweave demo``: a live network, its traces, a plan on Spark, the plan applied while traffic flows, before and after."""

import contextlib
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from overweave.cli.demo_children import held_signals
from overweave.cli.output import put
from overweave.cli.stopping import terminating
from overweave.cli.terminal import Phases
from overweave.errors import InvalidInput

EXAMPLE = "overweave demo"

_PHASES = 10
#: Files and folders of the demonstration; others in its directory are an error.
_OWNED = (
    "network.toml", ".network.toml.lock", "traces", "profiles", "plan.json", "plan.html", "report.html"
)  # fmt: skip
#: The time for what may still write there to end.
_LAST_S_MAX = 15.0
#: What the network was before the plan.
_BACKUPS = "network.toml.before-"


def demo(
    brokers: Annotated[int, typer.Option(min=2, max=100, help="Number of brokers before the plan.")] = 12,
    filters: Annotated[int, typer.Option(min=1, max=100_000, help="Number of subscriptions, two to a client.")] = 400,
    seconds: Annotated[
        float, typer.Option(min=0.1, max=3600, help="Duration of the measurements before and after, each.")
    ] = 20.0,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Output directory.")] = Path("out/demo"),
    seed: Annotated[int, typer.Option(help="Random seed.")] = 1,
    json: Annotated[bool, typer.Option("--json", help="Write the summary as JSON.")] = False,
) -> None:
    """Run a network on this machine, plan it from its own traces, apply the plan while traffic flows, and compare.

    Every broker is a process, and stock quotes are published all the time. Spark computes profiles from the traces, and a plan
    for fewer brokers. The plan is applied as by 'overweave apply'. Every delivery is checked: one that is lost or duplicated is
    an error. The result is a report of the network before and after. It takes two to three minutes. Ctrl-C stops and removes
    everything.
    """
    with terminating(signal.SIGTERM, signal.SIGHUP), _directory(out):
        phases = Phases(_PHASES)
        with phases.phase("preparing (first run: compiling takes half a minute)"):
            from overweave.cli.demo_run import Demonstration, DemoOptions
            from overweave.cli.demo_summary import check_exactly_once, summary_text

            demonstration = Demonstration(DemoOptions(brokers, filters, seconds, out, seed), phases)
            demonstration.prepare()
        summary = demonstration.run()
    check_exactly_once(summary)  # if not, the traces are kept
    put(msgspec.json.format(msgspec.json.encode(summary), indent=2) + b"\n" if json else summary_text(summary).encode())


@contextlib.contextmanager
def _directory(out: Path) -> Iterator[None]:
    """A new output directory, which is removed when the demonstration fails or is interrupted."""
    _clear(out)
    out.mkdir(parents=True)
    try:
        yield
    except BaseException:  # also Ctrl-C: partial results are of no use
        with held_signals():
            _remove(out)
        raise


def _remove(out: Path) -> None:
    """Remove the output directory; a process that was killed may have left others that end, and still write there."""
    end_s = time.monotonic() + _LAST_S_MAX
    while out.exists() and time.monotonic() < end_s:
        shutil.rmtree(out, ignore_errors=True)
        if out.exists():
            time.sleep(0.1)


def _clear(out: Path) -> None:
    """Remove the results of an earlier demonstration."""
    if out.is_dir():
        names = [path.name for path in out.iterdir()]
        others = [name for name in names if name not in _OWNED and not name.startswith(_BACKUPS)]
        if others:
            raise InvalidInput(f"{out}: expected a new directory, or one of an earlier demo, found {sorted(others)[0]}")
        shutil.rmtree(out)
    elif out.exists():
        raise InvalidInput(f"{out}: expected a directory, found a file")
