"""A broker process: a node from its start to the signal that ends it."""

import asyncio
import contextlib
import signal
from collections.abc import Callable

from overweave.drivers.tcp.garbage import freeze_survivors
from overweave.drivers.tcp.hangup import Hangup
from overweave.drivers.tcp.limits import raise_descriptor_limit
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.settings import BrokerSettings


async def serve(settings: BrokerSettings, ready: Callable[[], None], drain_s: Callable[[], float | None] = lambda: None) -> None:
    """Run a broker until SIGTERM or SIGINT, then drain it. SIGHUP reads the tokens again.

    At SIGTERM clients move to neighbours for the time that ``drain_s`` returns, or that of the settings (None).

    Raises `OverweaveError` if its core fails.
    """
    raise_descriptor_limit()
    loop, stopped = asyncio.get_running_loop(), asyncio.Event()
    terminated = asyncio.Event()
    for number, event in ((signal.SIGTERM, terminated), (signal.SIGINT, stopped)):
        with contextlib.suppress(NotImplementedError):
            loop.add_signal_handler(number, _second_stops(event, stopped))
    node, hangup = BrokerNode(settings, on_failure=stopped.set), Hangup()
    with contextlib.suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGHUP, lambda: stopped.set() if hangup.is_real() else node.reload())
    await node.start()
    freeze_survivors()
    await _ready(node, ready, terminated, stopped)
    await _first(terminated, stopped)
    limit_s = asked_s if (asked_s := drain_s()) is not None else settings.drain_clients_s
    if limit_s and not stopped.is_set():
        moving = loop.create_task(node.drain_clients(limit_s))
        await _first(moving, stopped)
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
    if node.failure is None:
        await node.drain()
        node.leave()
    await node.stop()
    if node.failure is not None:
        raise node.failure


async def _ready(node: BrokerNode, ready: Callable[[], None], *ends: asyncio.Event) -> None:
    """Report that the broker is ready once it has joined, unless it is stopped before."""
    joining = asyncio.get_running_loop().create_task(node.wait_joined())
    await _first(joining, *ends)
    if joining.done():
        ready()
    joining.cancel()
    await asyncio.gather(joining, return_exceptions=True)


def _second_stops(event: asyncio.Event, stopped: asyncio.Event) -> Callable[[], None]:
    """A signal handler: a second signal stops the broker without a drain of its clients."""
    return lambda: stopped.set() if event.is_set() else event.set()


async def _first(*awaited: asyncio.Event | asyncio.Task[None]) -> None:
    """Wait for the first of events and tasks; tasks go on."""
    loop = asyncio.get_running_loop()
    events = [loop.create_task(each.wait()) for each in awaited if isinstance(each, asyncio.Event)]
    tasks = [each for each in awaited if isinstance(each, asyncio.Task)]
    await asyncio.wait([*events, *tasks], return_when=asyncio.FIRST_COMPLETED)
    for task in events:
        task.cancel()
