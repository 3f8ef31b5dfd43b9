"""Brokers that are killed under load and come back: what was settled is everywhere, once.

``OVERWEAVE_KILLS`` sets how often (2).
"""

import asyncio
import contextlib
import os
import random
from collections import Counter

import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.tcp.client import connect
from overweave.overlay.fixed_shapes import chain
from overweave.testing.live import network_settings, processes, until

#: Whether clients keep up depends on the machine; here publishers wait for them, however long.
CONFIG = BrokerConfig(SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005), slow_consumer_timeout_s=5.0)
KILLS = int(os.environ.get("OVERWEAVE_KILLS", "2"))
BURST = 10


class Subscriber:
    """Counts what it gets."""

    def __init__(self, subscription):
        self.numbers = []
        self._subscription = subscription

    async def take(self):
        async for publication in self._subscription:
            self.numbers.append(publication["n"])

    def missing(self, count):
        return sorted(set(range(count)) - set(self.numbers))

    def doubled(self):
        return [number for number, times in Counter(self.numbers).items() if times > 1]


class Publisher:
    """Publishes numbers all the time."""

    def __init__(self, client):
        self.client = client
        self.published = 0
        self.going = True

    @property
    def settled(self):
        return self.published - self.client.unsettled

    async def publish(self):
        while self.going:
            for _ in range(BURST):
                await self.client.publish({"class": "A", "n": self.published}, b"x" * 50)
                self.published += 1
            await asyncio.sleep(0.002)
        await self.client.flush()


async def crash(brokers, victim, kills, seed):
    draw = random.Random(seed)
    async with contextlib.AsyncExitStack() as stack:
        publisher = Publisher(await stack.enter_async_context(connect(brokers["B1"].url, name="publisher")))
        await publisher.client.advertise("[class,eq,'A'],[n,>=,0]")
        subscribers = {}
        for id, broker in brokers.items():
            client = await stack.enter_async_context(connect(broker.url, name=f"at-{id}"))
            subscription = await stack.enter_async_context(client.subscribe("[class,eq,'A']"))
            subscribers[id] = Subscriber(subscription)
            task = asyncio.create_task(subscribers[id].take())
            stack.callback(task.cancel)
        publishing = asyncio.create_task(publisher.publish())
        for kill in range(kills):
            if kill % 3 < 2:  # else while the last crash is not over
                await progress(publisher, draw.randint(100, 2000))
            brokers[victim].kill()
            settled = publisher.settled
            await asyncio.sleep(draw.uniform(0.0, 0.2))
            try:
                check(subscribers, settled, but=victim)
            finally:  # or clients would wait for it for ever
                await asyncio.to_thread(brokers[victim].start)
        await progress(publisher, 100)
        publisher.going = False
        await asyncio.wait_for(publishing, timeout=30)
        assert publisher.settled == publisher.published > 0
        with contextlib.suppress(AssertionError):
            await until(lambda: all(not each.missing(publisher.settled) for each in subscribers.values()), within_s=5)
        check(subscribers, publisher.settled)
        for each in subscribers.values():
            assert each.numbers == sorted(each.numbers)
        return publisher.published


async def progress(publisher, count):
    goal = publisher.published + count
    await until(lambda: publisher.settled >= goal, within_s=30, what=f"that {goal} are settled")


def check(subscribers, settled, but=None):
    for id, each in subscribers.items():
        if id != but:
            missing = each.missing(settled)
            assert not missing, f"at {id} {len(missing)} of {settled} are missing, the first {missing[:5]}"
        assert not each.doubled(), f"at {id} doubled: {each.doubled()[:5]}"


@pytest.mark.parametrize("victim", ["B2", "B1"])
def test_what_was_settled_survives_a_kill(tmp_path, victim):
    with processes(network_settings(chain(3), state=tmp_path, config=CONFIG)) as brokers:
        published = asyncio.run(asyncio.wait_for(crash(brokers, victim, KILLS, seed=7), timeout=40 + 20 * KILLS))
    print(f"{victim}: {KILLS} kills, {published:,} publications")
