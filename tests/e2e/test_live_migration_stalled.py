"""A live client that stands still when the order to move comes: its publishers wait, and nothing that is settled gets lost."""

import asyncio
import contextlib
import time

import pytest

from overweave.contract.stimuli import MigrateClient
from overweave.drivers.tcp.client import CONFIG, connect
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, until

CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
ROWS, STALLED_S = 500, 1.5
WITHIN_S = 30


class Flood:
    """A publisher of numbers that never rests, and a subscriber that counts them."""

    def __init__(self, publisher, subscription):
        self.sent, self.received, self._stopped = 0, [], False
        self._tasks = [asyncio.create_task(self._publish(publisher)), asyncio.create_task(self._receive(subscription))]

    async def _publish(self, publisher):
        while not self._stopped:
            await publisher.publish_encoded(publisher.encode([{"n": self.sent + i} for i in range(ROWS)], bytes(100)))
            self.sent += ROWS
            await asyncio.sleep(0)
        await publisher.flush()

    async def _receive(self, subscription):
        async for publication in subscription:
            self.received.append(publication["n"])

    async def stop(self):
        """The numbers that are settled and have not arrived."""
        self._stopped = True
        await asyncio.wait_for(self._tasks[0], WITHIN_S)
        with contextlib.suppress(AssertionError):
            await until(lambda: len(self.received) >= self.sent, 2.0)
        self._tasks[1].cancel()
        return sorted({*range(self.sent)} - {*self.received})


async def move_while_stalled(first):
    """The rows published during the stall, the missing numbers, and whether each arrived once."""
    async with running(network_settings(CHAIN)) as nodes, contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(nodes["B1"].settings.listen, name="p"))
        subscriber = await stack.enter_async_context(connect(nodes["B3"].settings.listen, name="s"))
        await publisher.advertise("[n,>=,0]")
        subscription = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))
        flood = Flood(publisher, subscription)
        await until(lambda: flood.received)
        (connection,) = subscriber.host.attachments.connections.values()
        if first == "stall":
            connection.pause_reading()
        nodes["B3"].handle(MigrateClient("t", "s", "B1"))
        if first == "order":
            connection.pause_reading()
        before, start_s = flood.sent, time.monotonic()
        await asyncio.sleep(STALLED_S)
        during = flood.sent - before
        assert time.monotonic() - start_s < 4.0, "the machine was too busy: the client would be cut off"
        connection.resume_reading()
        await until(lambda: subscriber.broker == "B1" and not subscriber.host.core.is_migrating, WITHIN_S)
        missing = await flood.stop()
        return during, missing, len(flood.received) == len(set(flood.received))


@pytest.mark.parametrize("first", ["stall", "order"])
def test_publishers_wait_for_a_client_that_stands_still_around_an_order(first):
    during, missing, are_unique = asyncio.run(move_while_stalled(first))
    assert (missing, are_unique) == ([], True)
    assert during <= CONFIG.window + ROWS
