"""The subscribers of a process: each counts what its subscriptions get; some subscriptions come and go."""

import asyncio
import contextlib
import random
import time
from collections.abc import Mapping

import numpy as np

import overweave as ow
from overweave.drivers.tcp.client import Client, Subscription
from overweave.testing.counts import Arrivals, Verdict
from overweave.testing.live_reweave.orders import SLOTS, Interest, Places, Window

#: How long a subscription that comes and goes is in force.
_STAY_S = (0.3, 4.0)


class Delays:
    """Delays from publishing to delivery."""

    def __init__(self) -> None:
        self._found: list[float] = []

    def add(self, delay_s: float) -> None:
        """A publication has arrived."""
        self._found.append(delay_s)

    def clear(self) -> None:
        """Begin again."""
        self._found.clear()

    def summary(self) -> tuple[float, float, int]:
        """The 99th percentile, the maximum and the number."""
        if not self._found:
            return 0.0, 0.0, 0
        found = np.array(self._found)
        return float(np.percentile(found, 99)), float(found.max()), len(found)


class CountingSubscription:
    """One subscription of a client, with what it got and the windows in which it was in force."""

    def __init__(self, client: Client, interest: Interest, delays: Delays, *, may_lose: bool) -> None:
        self._client, self._interest, self._delays, self._may_lose = client, interest, delays, may_lose
        self._arrivals = Arrivals(client.name, f"slots {interest.low}..{interest.high - 1}")
        self._subscription: Subscription | None = None
        self._reader: asyncio.Task[None] | None = None
        self.windows: list[Window] = []
        self._errors: list[str] = []
        self.told = 0

    async def open(self) -> None:
        """Subscribe, and read from now on."""
        self._subscription = self._client.subscribe(self._interest.filter)
        await self._subscription.__aenter__()
        self._begin()
        self._reader = asyncio.create_task(self._read())

    async def close(self) -> None:
        """Withdraw it when everything that has arrived is read."""
        assert self._subscription is not None
        self._end(time.time())
        while self._subscription.pending and self._reader is not None and not self._reader.done():
            await asyncio.sleep(0.01)
        self.stop()
        await self._subscription.__aexit__(None, None, None)

    def stop(self) -> None:
        """Read no more."""
        if self._reader is not None:
            self._reader.cancel()

    def check(self, places: Mapping[Window, Places]) -> Verdict:
        """Compare what arrived with what is due."""
        verdict = Verdict(wrong=len(self._errors), examples=list(self._errors))
        for number, window in enumerate(self.windows):
            slots = range(self._interest.low, self._interest.high)
            due = {f"{window.publisher}.{slot}": places[window].due(slot) for slot in slots}
            found = self._arrivals.check(due)
            if number:  # counted with the first window
                found.repeated = found.wrong = found.overtaken = 0
            verdict.add(found)
        return verdict

    async def _read(self) -> None:
        assert self._subscription is not None
        while True:
            try:
                async for message in self._subscription.messages():
                    content = message.publication
                    self._arrivals.add(f"{content['from']}.{content['slot']}", int(str(content["n"])))
                    self._delays.add(time.time() - message.header.published_at_s)
            except ow.SessionLost as error:
                await self._lost(error)
            except ow.OverweaveError as error:
                self._errors.append(f"{self._client.name}: {error}")
                return

    async def _lost(self, error: ow.SessionLost) -> None:
        """The subscription says that publications may be missing: it has a new window when it is in force again."""
        self.told += 1
        if not self._may_lose:
            self._errors.append(f"{self._client.name}: {error}")
        self._end(error.since_s)
        with contextlib.suppress(ow.OverweaveError):
            await self._client.settle()
            self._begin()

    def _begin(self) -> None:
        self.windows.append(Window(self._interest.publisher, time.time(), None))

    def _end(self, at_s: float) -> None:
        last = self.windows[-1]
        if last.until_s is None:
            self.windows[-1] = Window(last.publisher, last.since_s, at_s)


class Churn:
    """Subscriptions that come and go at random clients of a process."""

    def __init__(self, clients: list[Client], publishers: list[str], delays: Delays, seed: int) -> None:
        self._clients, self._publishers, self._delays = clients, publishers, delays
        self._dice = random.Random(seed)
        self._tasks: list[asyncio.Task[None]] = []
        self._stopped = asyncio.Event()
        #: All that ever came.
        self.subscriptions: list[CountingSubscription] = []

    async def set_count(self, count: int) -> None:
        """Set the number from now on; 0: wait until the last one is withdrawn."""
        if count:
            self._stopped.clear()
            self._tasks += [asyncio.create_task(self._come_and_go()) for _ in range(count)]
            return
        self._stopped.set()
        await asyncio.gather(*self._tasks)
        self._tasks.clear()

    async def _come_and_go(self) -> None:
        while not self._stopped.is_set():
            low = self._dice.randrange(SLOTS - 1)
            interest = Interest(self._dice.choice(self._publishers), low, low + 2)
            found = CountingSubscription(self._dice.choice(self._clients), interest, self._delays, may_lose=False)
            await found.open()
            self.subscriptions.append(found)
            await asyncio.sleep(self._dice.uniform(*_STAY_S))
            await found.close()

    def check(self) -> None:
        """Raise the error that has ended one."""
        for task in self._tasks:
            if task.done():
                task.result()
