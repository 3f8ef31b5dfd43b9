"""A process of clients: ``python -m overweave.testing.live_migrations.client``; orders on standard input are JSON, one a line.

The first line is `ClientOrders`, later ones are `Command`; the response to each is a line. It uses only the public client API.
"""

import asyncio
import contextlib
import time
from pathlib import Path

import msgspec

import overweave as ow
from overweave.drivers.tcp.client import Client, Subscription
from overweave.drivers.tcp.limits import raise_descriptor_limit
from overweave.testing.counts import Arrivals, Due, Verdict
from overweave.testing.line_process import requests, respond

_TICK_S, _FLUSH_EVERY_S = 0.01, 0.1
#: Subscribers that enter at the same time.
_ENTER_MAX = 50


class ClientOrders(msgspec.Struct, frozen=True, kw_only=True):
    """What one process has to do: a publisher of all kinds, or subscribers with one kind each."""

    names: tuple[str, ...]
    url: str
    kinds: tuple[str, ...]
    publishes: bool
    #: The life of a publisher: earlier processes of the same name were killed.
    life: int = 0
    #: The file for the numbers that are acknowledged, a line after each flush; it survives a kill.
    log: str = ""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """``rate``: publish at that rate per second (0: flush, then pause); ``check``: compare arrivals by kind; ``end``: leave."""

    rate_hz: float | None = None
    check: dict[str, dict[str, Due]] | None = None
    end: bool = False


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """The numbers published so far of each kind, or a verdict."""

    published: int = 0
    verdict: Verdict | None = None


class _Publisher:
    """Publishes each number to every kind; its own rate is divided among the kinds."""

    def __init__(self, client: Client, orders: ClientOrders) -> None:
        self._client, self._orders = client, orders
        self._rate_hz = 0.0
        #: The numbers that are published to some kinds, and to all.
        self._begun = self._published = 0
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        name = self._orders.names[0]
        await self._client.advertise(f"[from,eq,'{name}'],[kind,isPresent,''],[life,>=,0],[n,>=,0]")
        self._tasks = [asyncio.create_task(self._publish()), asyncio.create_task(self._flush())]

    async def command(self, command: Command) -> Response:
        for task in self._tasks:
            if task.done():
                task.result()
        if command.rate_hz is not None:
            self._rate_hz = command.rate_hz
            while not command.rate_hz and self._published < self._begun:
                await asyncio.sleep(_TICK_S)
            if not command.rate_hz:
                await self._acknowledge()
        return Response(published=self._begun)

    async def _publish(self) -> None:
        """Publish as often as the rate says; a full window delays all later publications."""
        name, life, kinds = self._orders.names[0], self._orders.life, self._orders.kinds
        due, last_s = 0.0, time.monotonic()
        while True:
            now_s = time.monotonic()
            due = min(due + (now_s - last_s) * self._rate_hz / len(kinds), max(self._rate_hz, len(kinds)))
            last_s = now_s
            while due >= 1 and self._rate_hz:
                self._begun, due = self._begun + 1, due - 1
                for kind in kinds:
                    await self._client.publish({"from": name, "kind": kind, "life": life, "n": self._published})
                self._published += 1
            await asyncio.sleep(_TICK_S)

    async def _flush(self) -> None:
        while True:
            await asyncio.sleep(_FLUSH_EVERY_S)
            await self._acknowledge()

    async def _acknowledge(self) -> None:
        """Flush, and write down how many numbers are acknowledged."""
        published = self._published
        await self._client.flush()
        with Path(self._orders.log).open("ab", buffering=0) as file:
            file.write(b"%d\n" % published)

    def stop(self) -> None:
        for task in self._tasks:
            task.cancel()


class _Subscriber:
    """Counts what one client gets."""

    def __init__(self, name: str, kind: str) -> None:
        self.kind, self._arrivals = kind, Arrivals(name, kind)
        self._errors: list[str] = []
        self._name = name

    async def receive(self, subscription: Subscription) -> None:
        while True:
            try:
                async for publication in subscription:
                    life = f"{publication['from']}/{publication['life']}"
                    self._arrivals.add(life, int(publication["n"]))
            except ow.SessionLost as error:
                self._errors.append(f"{self._name}: {error.code}: {error}")
            except ow.OverweaveError as error:
                self._errors.append(f"{self._name}: {error}")
                return

    def check(self, due: dict[str, Due]) -> Verdict:
        verdict = self._arrivals.check(due)
        verdict.wrong += len(self._errors)
        verdict.examples += self._errors
        return verdict


class _Subscribers:
    def __init__(self, subscribers: list[_Subscriber]) -> None:
        self._subscribers = subscribers

    async def command(self, command: Command) -> Response:
        verdict = Verdict()
        for each in self._subscribers:
            verdict.add(each.check((command.check or {}).get(each.kind, {})))
        verdict.examples = verdict.examples[:20]
        return Response(verdict=verdict)


async def _enter(stack: contextlib.AsyncExitStack, orders: ClientOrders) -> "_Publisher | _Subscribers":
    if orders.publishes:
        publisher = _Publisher(await stack.enter_async_context(ow.connect(orders.url, name=orders.names[0])), orders)
        await publisher.start()
        stack.callback(publisher.stop)
        return publisher
    tasks, turns = [], asyncio.Semaphore(_ENTER_MAX)

    async def enter(name: str, kind: str) -> _Subscriber:
        async with turns:
            client = await stack.enter_async_context(ow.connect(orders.url, name=name))
            subscription = await stack.enter_async_context(client.subscribe(f"[kind,eq,'{kind}'],[n,>=,0]"))
        subscriber = _Subscriber(name, kind)
        tasks.append(asyncio.create_task(subscriber.receive(subscription)))
        return subscriber

    kinds = [orders.kinds[place % len(orders.kinds)] for place in range(len(orders.names))]
    subscribers = await asyncio.gather(*map(enter, orders.names, kinds))
    stack.callback(lambda: [task.cancel() for task in tasks])
    return _Subscribers(subscribers)


async def main() -> None:
    """Do as ordered until standard input ends."""
    raise_descriptor_limit()
    lines = requests()
    orders = msgspec.json.decode(await anext(lines), type=ClientOrders)
    async with contextlib.AsyncExitStack() as stack:
        clients = await _enter(stack, orders)
        _respond(Response())
        async for line in lines:
            command = msgspec.json.decode(line, type=Command)
            if command.end:
                break
            _respond(await clients.command(command))
    _respond(Response())


def _respond(response: Response) -> None:
    respond(msgspec.json.encode(response))


if __name__ == "__main__":
    asyncio.run(main())
