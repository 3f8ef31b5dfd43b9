"""``overweave top``: the lines of ``status`` again and again, with what happened in between."""

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
    lines_of,
    look,
    put_json,
    view_of,
)

EXAMPLE = "overweave top --metrics 127.0.0.1:9401 --once"

Show = Callable[[list[Line]], None]


def top(
    file: File = None,
    metrics: Addresses = None,
    interval: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds from one look to the next.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and end.")] = False,
    json: Json = False,
) -> int:
    """Watch the brokers of a network until q or Ctrl-C.

    Rates are those of the last interval. Brokers may go away and come back. With --json it is one interval, as with --once;
    the exit status is then 1 when some broker is neither up nor degraded.
    """
    addresses, live = addresses_of(file, metrics), not (once or json)
    with _shown(live) as show, _keys(live) as keys:
        lines = asyncio.run(_watch(addresses, interval, not live, put_json if json else show, keys))
    return 0 if live or all(line.state in WORKING for line in lines) else 1


async def _watch(
    addresses: Mapping[str, str | None], interval_s: float, once: bool, show: Show, keys: int | None = None
) -> list[Line]:
    """Show lines again and again until somebody quits; the last ones."""
    quitting = _quits(keys)
    before = await look(addresses)
    lines = lines_of(addresses, before)
    if not once:
        show(lines)
    next_s = time.monotonic()
    while not quitting.is_set():
        # When an answer takes long we look less often, and do not catch up.
        next_s = max(next_s + interval_s, time.monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(quitting.wait(), next_s - time.monotonic())
            break
        now = await look(addresses)
        lines = lines_of(addresses, now, before)
        show(lines)
        if once:
            break
        before = now
    return lines


def _quits(keys: int | None) -> asyncio.Event:
    """Set when q is pressed."""
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
    """The terminal, which tells single keys meanwhile; None where nobody types."""
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
    """A view that is renewed in its place on a terminal; in a pipe one table follows another."""
    from rich.live import Live

    screen = console()
    if not (live and screen.is_terminal):
        yield lambda lines: screen.print(view_of(lines))
        return
    with Live(console=screen, auto_refresh=False) as view:
        yield lambda lines: view.update(view_of(lines), refresh=True)
