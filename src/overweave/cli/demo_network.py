"""The live part of ``overweave demo``: broker processes, publishers, subscribers, and a count of deliveries."""

import asyncio
import contextlib
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from overweave.cli.broker_command import broker_command
from overweave.drivers.tcp.client import Client, Subscription, connect
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.ports import free_ports
from overweave.drivers.tcp.processes import supervise
from overweave.errors import OverweaveError
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.testing.stock import advertisement

#: A tree: B1 in the middle, two below it, and two more at the ends.
LINKS = (("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B3", "B5"))
BROKERS = ("B1", "B2", "B3", "B4", "B5")
FILTERS_PER_CLIENT = 10
#: The timeout for deliveries after the last publication.
_LAST_S_MAX = 20.0
#: Deliveries by filter number, symbol and day.
Account = Counter[tuple[int, str, int]]


class Traffic(msgspec.Struct, frozen=True):
    """Publications and deliveries of a run."""

    publications: int
    lasted_s: float
    delivered: Account


def write_network(directory: Path, run: str, bandwidth_bytes_per_s: float) -> Path:
    """Write a network file with free ports, traces and the output bandwidth of brokers."""
    lines = ["[network]", 'routing = "filter"', 'trace = "traces"', f'run = "{run}"']
    for id, port in zip(BROKERS, free_ports(len(BROKERS)), strict=True):
        lines += ["", "[[broker]]", f'id = "{id}"', f'listen = "tcp://127.0.0.1:{port}"']
        lines.append(f"output_bandwidth_bytes_per_s = {bandwidth_bytes_per_s:.0f}  # a limit for plans; traffic is not throttled")
    for first, second in LINKS:
        lines += ["", "[[link]]", f'between = ["{first}", "{second}"]']
    file = directory / "network.toml"
    file.write_text("\n".join(lines) + "\n")
    return file


def run_traffic(
    file: Path,
    wanted: Sequence[Filter],
    published: Sequence[Publication],
    seconds: float,
    expected: int,
    done: Callable[[int], None],
) -> Traffic | None:
    """Start the network of a file, publish over some seconds, and stop it when all have what they want; None: interrupted.

    ``expected`` is how many deliveries there have to be.
    """
    with tempfile.TemporaryDirectory(prefix="overweave-") as state:
        return asyncio.run(_with_network(file, Path(state), wanted, published, seconds, expected, done))


async def _with_network(
    file: Path,
    state: Path,
    wanted: Sequence[Filter],
    published: Sequence[Publication],
    seconds: float,
    expected: int,
    done: Callable[[int], None],
) -> Traffic | None:
    network = read_network(file)
    up = asyncio.Event()
    brokers = asyncio.create_task(supervise({id: broker_command(file, id, state) for id in network.overlay.ids}, up.set))

    async def work() -> Traffic:
        await up.wait()
        async with contextlib.AsyncExitStack() as stack:
            market = _Market(stack, network.running_urls)
            await market.open(wanted, published)
            return await market.publish(published, seconds, expected, done)

    traffic = asyncio.create_task(work())
    try:
        await asyncio.wait([brokers, traffic], return_when=asyncio.FIRST_COMPLETED)
        if brokers.done():
            await brokers  # an error if a broker exited; otherwise a stop request
            return None
        return await traffic
    finally:
        for task in (traffic, brokers):
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


class _Market:
    """One publisher per symbol, and subscribers at every broker."""

    def __init__(self, stack: contextlib.AsyncExitStack, urls: Mapping[str, str]) -> None:
        self._stack = stack
        self._urls = list(urls.values())
        self._publishers: dict[str, Client] = {}
        self._takers: list[asyncio.Task[None]] = []
        self._delivered: Account = Counter()

    async def open(self, wanted: Sequence[Filter], published: Sequence[Publication]) -> None:
        symbols = list(dict.fromkeys(str(quote["symbol"]) for quote in published))
        for number, symbol in enumerate(symbols):
            self._publishers[symbol] = await self._client(number, f"market-{symbol}")
            await self._publishers[symbol].advertise(advertisement(symbol))
        for first in range(0, len(wanted), FILTERS_PER_CLIENT):
            number = first // FILTERS_PER_CLIENT
            client = await self._client(number, f"trader-{number + 1}")
            for at in range(first, min(first + FILTERS_PER_CLIENT, len(wanted))):
                subscription = await self._stack.enter_async_context(client.subscribe(wanted[at]))
                self._takers.append(asyncio.create_task(self._take(at + 1, subscription)))
                self._stack.callback(self._takers[-1].cancel)

    async def publish(
        self, published: Sequence[Publication], seconds: float, expected: int, done: Callable[[int], None]
    ) -> Traffic:
        start_s = time.perf_counter()
        for number, quote in enumerate(published):
            ahead_s = number / len(published) * seconds - (time.perf_counter() - start_s)
            if ahead_s > 0:
                await asyncio.sleep(ahead_s)
            await self._publishers[str(quote["symbol"])].publish(quote)
            done(number + 1)
        for publisher in self._publishers.values():
            await asyncio.wait_for(publisher.flush(), _LAST_S_MAX)
        lasted_s = time.perf_counter() - start_s
        await self._all_counted(expected)
        return Traffic(len(published), lasted_s, self._delivered)

    async def _all_counted(self, expected: int) -> None:
        """Wait until all is there, and for more than that a moment; on a busy machine brokers may still keep some of it."""
        before, since_s = -1, time.perf_counter()
        while (now := self._delivered.total()) < expected and time.perf_counter() - since_s < _LAST_S_MAX:
            if now > before:
                before, since_s = now, time.perf_counter()
            for taker in self._takers:
                if taker.done():
                    taker.result()  # raises the reason of a disconnect
            await asyncio.sleep(0.05)
        await asyncio.sleep(0.1)

    async def _client(self, number: int, name: str) -> Client:
        return await self._stack.enter_async_context(connect(self._urls[number % len(self._urls)], name=name))

    async def _take(self, number: int, subscription: Subscription) -> None:
        async for quote in subscription:
            day = quote["day"]
            if not isinstance(day, int):
                raise OverweaveError(f"filter {number}: expected quotes with a day, got {quote}")
            self._delivered[number, str(quote["symbol"]), day] += 1
