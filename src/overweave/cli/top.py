"""``overweave top``: the lines of ``status`` again and again, with what happened in between."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Annotated

import typer

from overweave.cli.status import Addresses, File, Json, Line, addresses_of, console, lines_of, look, put_json, view_of

EXAMPLE = "overweave top --metrics 127.0.0.1:9401 --once"

Show = Callable[[list[Line]], None]


def top(
    file: File = None,
    metrics: Addresses = None,
    interval: Annotated[float, typer.Option(min=0.01, metavar="S", help="Seconds from one look to the next.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Show one interval and end.")] = False,
    json: Json = False,
) -> None:
    """Watch the brokers of a network until Ctrl-C.

    Rates are those of the last interval. Brokers may go away and come back. With --json it is one interval, as with --once.
    """
    addresses = addresses_of(file, metrics)
    with _shown(live=not (once or json)) as show:
        asyncio.run(_watch(addresses, interval, once or json, put_json if json else show))


async def _watch(addresses: Mapping[str, str | None], interval_s: float, once: bool, show: Show) -> None:
    before = await look(addresses)
    if not once:
        show(lines_of(addresses, before))
    next_s = time.monotonic()
    while True:
        # When an answer takes long we look less often, and do not catch up.
        next_s = max(next_s + interval_s, time.monotonic())
        await asyncio.sleep(next_s - time.monotonic())
        now = await look(addresses)
        show(lines_of(addresses, now, before))
        if once:
            return
        before = now


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
