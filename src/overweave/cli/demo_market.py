"""The clients of ``overweave demo``, in one process: ``python -m overweave.cli.demo_market``.

Publishers publish numbered quotes at a constant rate until they are told to stop; traders have filters, and every delivery is
counted. The first line of standard input is a `MarketConfig`, the others are requests; standard output has the replies.
"""

import asyncio
import contextlib
import os
import sys
import time

import msgspec

from overweave.cli.demo_messages import Begun, MarketConfig, Opened, Reply, Request, Spans, Status, Stop
from overweave.cli.demo_oracle import NUMBER, Oracle, Workload, traders_of
from overweave.cli.terminal import say
from overweave.drivers.tcp.client import Client, Subscription, connect
from overweave.errors import OverweaveError
from overweave.testing.stock import SYMBOLS, advertisement

FILTERS_PER_TRADER = 2
#: Clients that connect at the same time.
_TOGETHER = 16
_STATUS_S = 0.5
#: The time without any delivery after which those that are missing are lost, and how long duplicates may take.
_LAST_S_MAX, _DUPLICATES_S = 30.0, 1.0


class Market:
    """A publisher for each symbol, and traders with some filters each, spread over all brokers."""

    def __init__(self, config: MarketConfig, stack: contextlib.AsyncExitStack) -> None:
        self._config, self._stack = config, stack
        self._workload = Workload(config.filters, config.seed)
        self._oracle = Oracle(self._workload)
        self._publishers: dict[str, Client] = {}
        self._clients = 0
        self._limit = asyncio.Semaphore(_TOGETHER)
        self._stopped = asyncio.Event()
        #: Publishers that publish, and traders that count.
        self._publishing: list[asyncio.Task[None]] = []
        self._counting: list[asyncio.Task[None]] = []

    @property
    def status(self) -> Status:
        """The progress so far."""
        return Status(self._clients, self._oracle.publications, self._oracle.deliveries)

    async def open(self) -> None:
        """Connect all clients; their advertisements and filters are in force."""
        await asyncio.gather(*(self._open_publisher(place, symbol) for place, symbol in enumerate(SYMBOLS)))
        traders = traders_of(list(self._workload.filters), FILTERS_PER_TRADER)
        await asyncio.gather(*(self._open_trader(place, numbers) for place, numbers in enumerate(traders)))

    def begin(self, name: str) -> Begun:
        """Begin a span, with the first one the traffic."""
        begun = self._oracle.begin(name, self._now_s())
        if not self._publishing:
            interval_s = 1 / self._config.rate_hz
            for place, symbol in enumerate(SYMBOLS):
                # Publishers take turns.
                work = self._publish(symbol, interval_s, place / len(SYMBOLS) * interval_s)
                self._publishing.append(asyncio.create_task(work))
        return begun

    async def stop(self) -> Spans:
        """End the traffic, wait for all deliveries, and count."""
        self._stopped.set()
        await asyncio.gather(*self._publishing)
        for publisher in self._publishers.values():
            await publisher.flush()
        before, since_s = -1, time.monotonic()
        while (now := self._oracle.deliveries) < self._oracle.expected and time.monotonic() - since_s < _LAST_S_MAX:
            if now > before:
                before, since_s = now, time.monotonic()
            await asyncio.sleep(0.05)
        await asyncio.sleep(_DUPLICATES_S)
        return Spans(self._oracle.spans(self._now_s()))

    def check(self) -> None:
        """Raise the error of a client that was cut off."""
        for task in (*self._publishing, *self._counting):
            if task.done():
                task.result()

    async def _open_publisher(self, place: int, symbol: str) -> None:
        async with self._limit:
            self._publishers[symbol] = await self._client(place, f"market-{symbol}")
            await self._publishers[symbol].advertise(advertisement(symbol))

    async def _open_trader(self, place: int, numbers: list[int]) -> None:
        async with self._limit:
            client = await self._client(place, f"trader-{place + 1}")
            for number in numbers:
                subscription = await self._stack.enter_async_context(client.subscribe(self._workload.filters[number]))
                self._counting.append(asyncio.create_task(self._count(number, subscription)))

    async def _client(self, place: int, name: str) -> Client:
        urls = self._config.urls
        client = await self._stack.enter_async_context(connect(urls[place % len(urls)], name=name, failover_s=None))
        self._clients += 1
        return client

    async def _publish(self, symbol: str, interval_s: float, first_s: float) -> None:
        publisher, loop = self._publishers[symbol], asyncio.get_running_loop()
        next_s = loop.time() + first_s
        while True:
            await asyncio.sleep(max(0.0, next_s - loop.time()))
            if self._stopped.is_set():
                return
            await publisher.publish(self._workload.publication(symbol, self._oracle.next_number(symbol)))
            # On a busy machine publications become fewer: a burst would make it worse.
            next_s = max(next_s + interval_s, loop.time())

    async def _count(self, filter: int, subscription: Subscription) -> None:
        async for quote in subscription:
            number = quote[NUMBER]
            if not isinstance(number, int):
                raise OverweaveError(f"filter {filter}: expected quotes with a number, got {quote}")
            self._oracle.deliver(filter, str(quote["symbol"]), number)

    def _now_s(self) -> float:
        """The time in headers of publications."""
        return next(iter(self._publishers.values())).now_s()


async def serve() -> None:
    """Serve requests until the end of standard input."""
    reader = await _stdin()
    config = msgspec.json.decode(await reader.readline(), type=MarketConfig)
    async with contextlib.AsyncExitStack() as stack:
        market = Market(config, stack)
        reports = asyncio.create_task(_report(market))
        work = asyncio.create_task(_serve(market, reader))
        await asyncio.wait([reports, work], return_when=asyncio.FIRST_COMPLETED)
        for task in (reports, work):
            if task.done():
                task.result()
        # Without farewells: what is left of the clients goes with the network.
        stack.pop_all()


async def _serve(market: Market, reader: asyncio.StreamReader) -> None:
    await market.open()
    _reply(Opened())
    while line := await reader.readline():
        request = msgspec.json.decode(line, type=Request)
        if isinstance(request, Stop):
            _reply(await market.stop())
        else:
            _reply(market.begin(request.span))


async def _report(market: Market) -> None:
    while True:
        await asyncio.sleep(_STATUS_S)
        market.check()
        _reply(market.status)


async def _stdin() -> asyncio.StreamReader:
    loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    return reader


def _reply(reply: Reply) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(reply) + b"\n")
    sys.stdout.buffer.flush()


def main() -> None:
    """Run the process."""
    status = 0
    try:
        asyncio.run(serve())
    except OverweaveError as error:
        say(str(error))
        status = 1
    sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    main()
