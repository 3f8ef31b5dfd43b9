"""A process that was paused gives its peers the full time again; here the event loop stands still, with all that runs on it."""

import asyncio
import time

from overweave.drivers.tcp import absence
from overweave.drivers.tcp import client as client_module
from overweave.drivers.tcp.client import connect
from overweave.overlay.shapes import make_overlay
from overweave.testing.live import network_settings, running, until

PAIR = make_overlay("chain", brokers=2)
#: Longer than any of the times below, and than a timer may be late.
PAUSE_S = 2.5


def stand_still():
    time.sleep(PAUSE_S)  # not asyncio's


async def connections_after_a_pause():
    async with running(network_settings(PAIR, heartbeat_s=0.3)) as nodes:
        node = nodes["B1"]
        async with connect(node.settings.listen, name="c") as client:
            before = [node._connections["B2"], node._connections["c"], client._connection]
            await asyncio.sleep(0.2)
            stand_still()
            await asyncio.sleep(0.5)
            return before, [node._connections.get("B2"), node._connections.get("c"), client._connection]


def test_nobody_is_taken_for_dead_after_a_pause(monkeypatch):
    monkeypatch.setattr(client_module, "_HEARTBEAT_S", 0.3)
    before, after = asyncio.run(connections_after_a_pause())
    assert before == after


async def expiry_after_a_pause():
    async with running(network_settings(PAIR, session_expiry_s=0.5)) as nodes:
        node = nodes["B1"]
        async with connect(node.settings.listen, name="c") as client:
            ticket = node._tickets["c"]
            client._connection.abort()
            await until(lambda: "c" in node._goodbyes)
            stand_still()
            await until(lambda: "c" in node._connections)
            return ticket, node._tickets["c"]


def test_no_session_expires_because_its_broker_was_paused():
    before, after = asyncio.run(expiry_after_a_pause())
    assert before == after


async def lateness():
    on_time = await absence.sleep(0.01)
    asyncio.get_running_loop().call_soon(time.sleep, 1.2)
    return on_time, await absence.sleep(0.01)


def test_a_pause_is_noticed():
    assert asyncio.run(lateness()) == (False, True)
