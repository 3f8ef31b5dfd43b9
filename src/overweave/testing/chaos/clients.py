"""A process of clients of the chaos harness: ``python -m overweave.testing.chaos.clients``, with its orders on standard input.

It uses the public client API alone, and writes down what it does and gets. Its first line of input is `Orders`, a later one
``finish``: publishers stop and wait until all is acknowledged, subscribers take what is left. It says ``ready``, ``finished``.
"""

import asyncio
import contextlib
import itertools
import random
import sys
import threading
import time
from pathlib import Path

import msgspec

import overweave as ow
from overweave.drivers.tcp.client import Client, Subscription
from overweave.testing.chaos.history import (
    GAPS,
    Flushed,
    Got,
    Publishing,
    Subscribing,
    SubscriptionReturned,
    Trouble,
    Unsubscribing,
    Writer,
)
from overweave.testing.chaos.schedule import PublisherPlan, SubscriberPlan

#: Publishers that cannot flush for so long in the end are stuck.
FLUSH_S = 60.0
#: The numbers of publications that each publisher has.
NUMBERS = 1_000_000


class Orders(msgspec.Struct, frozen=True, kw_only=True):
    """What one process of clients has to do."""

    process: str
    #: Where brokers are, for this process.
    urls: dict[str, str]
    history: str
    seed: int
    start_s: float
    #: With the first of their numbers.
    publishers: tuple[tuple[int, PublisherPlan], ...] = ()
    subscribers: tuple[SubscriberPlan, ...] = ()


class Clients:
    """All clients of a process."""

    def __init__(self, orders: Orders) -> None:
        self._orders = orders
        self._writer = Writer(Path(orders.history))
        self._finish = asyncio.Event()

    def finish(self) -> None:
        """Come to an end."""
        self._finish.set()

    async def run(self) -> None:
        """All that is planned."""
        async with asyncio.TaskGroup() as group:
            keeping = group.create_task(self._keep_flushing())
            tasks = [group.create_task(self._publisher(first, plan)) for first, plan in self._orders.publishers]
            tasks += [group.create_task(self._subscriber(plan)) for plan in self._orders.subscribers]
            if tasks:
                await asyncio.wait(tasks)
            keeping.cancel()
        self._writer.close()

    async def _keep_flushing(self) -> None:
        while True:
            await asyncio.sleep(0.5)
            self._writer.flush()

    # ---- publishers

    async def _publisher(self, number: int, plan: PublisherPlan) -> None:
        if not await self._until(plan.joins_s):
            return
        try:
            async with self._connect(plan) as client:
                await self._publish(client, number, plan)
        except (ow.OverweaveError, TimeoutError) as error:
            self._writer.write(Trouble(time.monotonic(), plan.id, f"{type(error).__name__}: {error}"))

    async def _publish(self, client: Client, number: int, plan: PublisherPlan) -> None:
        dice = random.Random(f"{self._orders.seed} {plan.id}")
        await client.advertise(f"[class,eq,'{plan.kind}'],[x,>=,0],[n,>=,0]")
        while not await self._until(plan.leaves_s, plan.every_s):
            if self._finish.is_set() or self._is_past(plan.leaves_s):
                return
            for _ in range(plan.burst):
                x = dice.randint(0, 99)
                self._writer.write(Publishing(time.monotonic(), plan.id, plan.broker, number, plan.kind, x))
                await client.publish({"class": plan.kind, "x": x, "n": number})
                number += 1
            await self._flush(client, plan, number)

    async def _flush(self, client: Client, plan: PublisherPlan, number: int) -> None:
        """Wait until all is acknowledged, for long but not forever once the faults are over."""
        flushing = asyncio.ensure_future(client.flush())
        finishing = asyncio.ensure_future(self._finish.wait())
        try:
            await asyncio.wait((flushing, finishing), return_when=asyncio.FIRST_COMPLETED)
            await asyncio.wait_for(flushing, FLUSH_S)
        finally:
            finishing.cancel()
        self._writer.write(Flushed(time.monotonic(), plan.id, number - 1))

    # ---- subscribers

    async def _subscriber(self, plan: SubscriberPlan) -> None:
        """Subscribe, and again under another name when told of a gap, until it is time to leave."""
        if not await self._until(plan.joins_s):
            return
        for life in itertools.count():
            id = plan.id if not life else f"{plan.id}.{life}"
            reason = await self._subscribe(msgspec.structs.replace(plan, id=id))
            if reason is None or self._finish.is_set() or self._is_past(plan.leaves_s):
                return
            if reason not in GAPS:
                self._writer.write(Trouble(time.monotonic(), id, reason))
                await asyncio.sleep(1.0)

    async def _subscribe(self, plan: SubscriberPlan) -> str | None:
        """One subscription until it ends; why, if it was told."""
        self._writer.write(Subscribing(time.monotonic(), plan.id, self._orders.process, plan.broker, plan.filter))
        reason = None
        try:
            async with self._connect(plan) as client, client.subscribe(plan.filter) as subscription:
                self._writer.write(SubscriptionReturned(time.monotonic(), plan.id))
                reason = await self._take(subscription, plan)
        except (ow.OverweaveError, TimeoutError) as error:
            reason = reason or _reason(error)
            self._writer.write(Unsubscribing(time.monotonic(), plan.id, reason))
        return reason

    async def _take(self, subscription: Subscription, plan: SubscriberPlan) -> str | None:
        taking = asyncio.ensure_future(self._take_all(subscription, plan))
        leaving = asyncio.ensure_future(self._until(plan.leaves_s))
        try:
            await asyncio.wait((taking, leaving), return_when=asyncio.FIRST_COMPLETED)
            left_s = time.monotonic()
            # What was acknowledged until now is here, but perhaps not taken; a gap may be among it.
            while subscription.pending and not taking.done():
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.01)
        finally:
            for task in (taking, leaving):
                task.cancel()
            await asyncio.wait((taking, leaving))
        error = None if taking.cancelled() else taking.exception()
        reason = None if error is None else _reason(error)
        self._writer.write(Unsubscribing(left_s, plan.id, reason))
        return reason

    async def _take_all(self, subscription: Subscription, plan: SubscriberPlan) -> None:
        async for publication in subscription:
            number, kind, x = publication["n"], publication["class"], publication["x"]
            self._writer.write(Got(time.monotonic(), plan.id, int(number), str(kind), int(x)))

    # ---- time

    def _connect(self, plan: PublisherPlan | SubscriberPlan) -> Client:
        return ow.connect(self._orders.urls[plan.broker], name=plan.id)

    def _is_past(self, at_s: float | None) -> bool:
        return at_s is not None and time.monotonic() >= self._orders.start_s + at_s

    async def _until(self, at_s: float | None, most_s: float = float("inf")) -> bool:
        """Wait for a time, or ``most_s``, or the end of the run; whether the time has come before the end."""
        left_s = most_s if at_s is None else min(most_s, self._orders.start_s + at_s - time.monotonic())
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._finish.wait(), None if left_s == float("inf") else max(left_s, 0.0))
        return not self._finish.is_set() and self._is_past(at_s)


def _reason(error: BaseException) -> str:
    """The code of a refusal, or the name of another error."""
    return error.code if isinstance(error, ow.Refused) else type(error).__name__


async def main() -> None:
    """Do as ordered until standard input ends or all is finished."""
    print("ready", flush=True)
    clients = Clients(msgspec.json.decode(sys.stdin.readline(), type=Orders))
    loop, run = asyncio.get_running_loop(), asyncio.ensure_future(clients.run())

    def obey() -> None:
        for _ in sys.stdin:
            loop.call_soon_threadsafe(clients.finish)
        loop.call_soon_threadsafe(run.cancel)

    threading.Thread(target=obey, daemon=True).start()
    await run
    print("finished", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
