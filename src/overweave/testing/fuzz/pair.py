"""Two valid clients that publish to each other and check the delivery."""

import asyncio
import contextlib

import numpy as np

from overweave.batches.raw import RawRows
from overweave.drivers.tcp.client import Client, Subscription, connect
from overweave.testing.live import until

_BURST, _EVERY_S = 5, 0.01


class Pair:
    """Two clients that publish to each other, and watch that all arrives once and in order."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing = True
        self._clients: list[Client] = []
        self.published = self.received = 0
        self.latencies_s: list[np.ndarray] = []

    async def __aenter__(self) -> "Pair":
        names = "good-1", "good-2"
        for name in names:
            client = await self._stack.enter_async_context(connect(self._url, name=name))
            await client.advertise(f"[class,eq,'of {name}'],[n,>=,0]")
            self._clients.append(client)
        for name, client, other in zip(names, self._clients, reversed(self._clients), strict=True):
            subscription = await self._stack.enter_async_context(other.subscribe(f"[class,eq,'of {name}']"))
            self._tasks.append(asyncio.create_task(self._publish(client, name)))
            self._tasks.append(asyncio.create_task(self._receive(subscription)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def check(self) -> None:
        """Nobody has stopped for a reason."""
        for task in self._tasks:
            if task.done() and self._publishing:
                task.result()

    async def finish(self) -> None:
        """Publish no more, and wait for what is under way."""
        self._publishing = False
        for client in self._clients:
            await asyncio.wait_for(client.flush(), timeout=30.0)
        with contextlib.suppress(AssertionError):
            await until(lambda: self.received >= self.published, within_s=5.0)
        for task in self._tasks:
            if task.done():
                task.result()

    async def _publish(self, client: Client, name: str) -> None:
        number = 0
        while self._publishing:
            for _ in range(_BURST):
                await client.publish({"class": f"of {name}", "n": number}, b"payload")
                number += 1
                self.published += 1
            await asyncio.sleep(_EVERY_S)

    async def _receive(self, subscription: Subscription) -> None:
        expected = 0
        async for batch in subscription.batches():
            assert isinstance(batch, RawRows)
            self.latencies_s.append(self._clients[0].now_s() - batch.published_at_s())
            for publish in batch.publishes():
                assert publish.publication["n"] == expected, f"expected {expected}, got {publish.publication}"
                expected += 1
                self.received += 1
