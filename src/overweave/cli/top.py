"""``overweave top``: the table of ``status``, refreshed, with rates of the last interval."""

import asyncio
import contextlib
import os
import sys
import termios
import time
import tty
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import typer

from overweave.cli.broker_lines import (
    WORKING,
    Addresses,
    File,
    Json,
    Line,
    addresses_of,
    console,
    fetch_snapshots,
    lines_of,
    put_json,
    view_of,
)

EXAMPLE = "overweave top --metrics 127.0.0.1:9401 --once"

Show = Callable[[list[Line]], None]


def top(
    file: File = None,
    metrics: Addresses = None,
    interval: Annotated[float, typer.Option(min=0.01, metavar="S", help="Refresh interval in seconds.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and exit.")] = False,
    json: Json = False,
) -> int:
    """Monitor the brokers of a network until q or Ctrl-C.

    Rates are those of the last interval. Brokers may stop and restart. --json implies --once. With --once the exit status is 1
    if any broker is neither up nor degraded.
    """
    addresses, live = addresses_of(file, metrics), not (once or json)
    with _shown(live) as show, _keys(live) as keys:
        lines = asyncio.run(_watch(addresses, interval, not live, put_json if json else show, keys))
    return 0 if live or all(line.state in WORKING for line in lines) else 1


async def _watch(
    addresses: Mapping[str, str | None], interval_s: float, once: bool, show: Show, keys: int | None = None
) -> list[Line]:
    """Show the lines of every interval until q is pressed; returns the last ones."""
    quitting = _quits(keys)
    before = await fetch_snapshots(addresses)
    lines = lines_of(addresses, before)
    if not once:
        show(lines)
    next_s = time.monotonic()
    while not quitting.is_set():
        # Slow answers lower the frequency; missed intervals are not made up for.
        next_s = max(next_s + interval_s, time.monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(quitting.wait(), next_s - time.monotonic())
            break
        now = await fetch_snapshots(addresses)
        lines = lines_of(addresses, now, before)
        show(lines)
        if once:
            break
        before = now
    return lines


def _quits(keys: int | None) -> asyncio.Event:
    """An event that is set when q is pressed."""
    quitting = asyncio.Event()

    def read() -> None:
        typed = os.read(keys or 0, 1024)
        if b"q" in typed.lower():
            quitting.set()
        elif not typed:  # the terminal is gone
            asyncio.get_running_loop().remove_reader(keys or 0)

    if keys is not None:
        asyncio.get_running_loop().add_reader(keys, read)
    return quitting


@contextlib.contextmanager
def _keys(live: bool) -> Iterator[int | None]:
    """The terminal in single-key mode; None if stdin is no terminal."""
    if not live or sys.stdin is None or not sys.stdin.isatty():
        yield None
        return
    keys = sys.stdin.fileno()
    before = termios.tcgetattr(keys)
    tty.setcbreak(keys)
    try:
        yield keys
    finally:
        termios.tcsetattr(keys, termios.TCSADRAIN, before)


@contextlib.contextmanager
def _shown(live: bool) -> Iterator[Show]:
    """A view that is updated in place on a terminal; in a pipe it is a sequence of tables."""
    from rich.live import Live

    screen = console()
    if not (live and screen.is_terminal):
        yield lambda lines: screen.print(view_of(lines))
        return
    with Live(console=screen, auto_refresh=False) as view:
        yield lambda lines: view.update(view_of(lines), refresh=True)
