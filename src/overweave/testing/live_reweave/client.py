"""A process of clients: ``python -m overweave.testing.live_reweave.client``; it uses only the public client API.

The first line of standard input is `ClientOrders`, each later one a `Command`; the response to each is a line.
"""

import asyncio
import contextlib

import msgspec

import overweave as ow
from overweave.drivers.tcp.client import Client
from overweave.drivers.tcp.limits import raise_descriptor_limit
from overweave.drivers.tcp.warm import warm_up
from overweave.testing.counts import Verdict
from overweave.testing.line_process import requests, respond
from overweave.testing.live_reweave.orders import ClientOrders, Command, Places, Response, Subscriber, Window
from overweave.testing.live_reweave.publishers import TimedPublisher, watch_pauses
from overweave.testing.live_reweave.subscribers import Churn, CountingSubscription, Delays

#: Clients that enter at the same time, and examples of failures in one response.
_ENTER_MAX, _EXAMPLES = 20, 20


class Clients:
    """All clients of the process."""

    def __init__(self, orders: ClientOrders, stack: contextlib.AsyncExitStack) -> None:
        self._orders, self._stack = orders, stack
        self._publishers: dict[str, TimedPublisher] = {}
        self._subscriptions: list[CountingSubscription] = []
        self._delays = Delays()
        self._churn: Churn | None = None
        self._watch: asyncio.Task[None] | None = None

    async def enter(self) -> None:
        """Connect all, and return when advertisements and subscriptions are in force."""
        orders, turns = self._orders, asyncio.Semaphore(_ENTER_MAX)
        clients: list[Client] = []

        async def publisher(name: str, url: str) -> None:
            async with turns:
                made = TimedPublisher(await self._connect(name, url))
                await made.start()
            self._publishers[name] = made

        async def subscriber(each: Subscriber) -> None:
            async with turns:
                client = await self._connect(each.name, each.url)
                for interest in each.interests:
                    made = CountingSubscription(client, interest, self._delays, may_lose=orders.may_lose)
                    await made.open()
                    self._subscriptions.append(made)
            clients.append(client)

        await asyncio.gather(*(publisher(*each) for each in orders.publishers), *map(subscriber, orders.subscribers))
        known = sorted({interest.publisher for each in orders.subscribers for interest in each.interests})
        self._churn = Churn(clients, known, self._delays, orders.seed) if clients else None
        if self._publishers:
            self._watch = asyncio.create_task(watch_pauses(self._publishers.values()))

    async def _connect(self, name: str, url: str) -> Client:
        client = ow.connect(url, name=name, failover_s=self._orders.failover_s)
        return await self._stack.enter_async_context(client)

    async def perform(self, command: Command) -> Response:
        """Do as commanded."""
        if self._watch is not None and self._watch.done():
            self._watch.result()
        for publisher in self._publishers.values():
            publisher.check()
        if self._churn is not None:
            self._churn.check()
            if command.churn is not None:
                await self._churn.set_count(command.churn)
        if command.rates is not None:
            own = [(self._publishers[name], hz) for name, hz in command.rates.items() if name in self._publishers]
            await asyncio.gather(*(publisher.set_rate(hz) for publisher, hz in own))
        if command.measure:
            self._delays.clear()
            for publisher in self._publishers.values():
                publisher.forget_pauses()
        return self._response(command)

    def _response(self, command: Command) -> Response:
        delay_p99_s, delay_max_s, deliveries = self._delays.summary()
        every = self._all()
        return Response(
            windows=tuple(sorted({window for each in every for window in each.windows}, key=str)) if command.windows else (),
            places=tuple(self._publishers[window.publisher].places(window) for window in command.resolve),
            verdict=None if command.check is None else self._verdict(dict(command.check)),
            pauses_s=tuple(each.longest_pause_s for each in self._publishers.values()),
            delay_p99_s=delay_p99_s,
            delay_max_s=delay_max_s,
            deliveries=deliveries,
            churned=0 if self._churn is None else len(self._churn.subscriptions),
            told=sum(each.told for each in every),
        )

    def _verdict(self, places: dict[Window, Places]) -> Verdict:
        verdict = Verdict()
        for each in self._all():
            verdict.add(each.check(places))
        verdict.examples = verdict.examples[:_EXAMPLES]
        return verdict

    def _all(self) -> list[CountingSubscription]:
        return [*self._subscriptions, *([] if self._churn is None else self._churn.subscriptions)]

    def stop(self) -> None:
        """Publish and read no more."""
        if self._watch is not None:
            self._watch.cancel()
        for publisher in self._publishers.values():
            for task in publisher.tasks:
                task.cancel()
        for each in self._all():
            each.stop()


async def main() -> None:
    """Do as ordered until standard input ends."""
    raise_descriptor_limit()
    warm_up()  # as 'overweave sub' does: kernels that load on the first publication make a slow consumer
    lines = requests()
    orders = msgspec.json.decode(await anext(lines), type=ClientOrders)
    async with contextlib.AsyncExitStack() as stack:
        clients = Clients(orders, stack)
        await clients.enter()
        stack.callback(clients.stop)
        respond(msgspec.json.encode(Response()))
        async for line in lines:
            command = msgspec.json.decode(line, type=Command)
            if command.end:
                break
            respond(msgspec.json.encode(await clients.perform(command)))
    respond(msgspec.json.encode(Response()))


if __name__ == "__main__":
    asyncio.run(main())
