"""A process that was paused gives its peers the full time again; here the event loop stands still, with all that runs on it."""

import asyncio
import time

from overweave.drivers.tcp import absence, uplink
from overweave.drivers.tcp.client import connect
from overweave.overlay.shapes import make_overlay
from overweave.testing.live import network_settings, running, until, uplink_of

PAIR = make_overlay("chain", brokers=2)
#: Longer than any of the times below, and than a timer may be late.
PAUSE_S = 2.5


def stand_still():
    time.sleep(PAUSE_S)  # not asyncio's


async def connections_after_a_pause():
    async with running(network_settings(PAIR, ping_interval_s=0.3)) as nodes:
        node = nodes["B1"]
        async with connect(node.settings.listen, name="c") as client:
            before = [node.peers["B2"], node.peers["c"], uplink_of(client).connection]
            await asyncio.sleep(0.2)
            stand_still()
            await asyncio.sleep(0.5)
            return before, [node.peers.get("B2"), node.peers.get("c"), uplink_of(client).connection]


def test_nobody_is_taken_for_dead_after_a_pause(monkeypatch):
    monkeypatch.setattr(uplink, "PING_INTERVAL_S", 0.3)
    before, after = asyncio.run(connections_after_a_pause())
    assert before == after


async def expiry_after_a_pause():
    async with running(network_settings(PAIR, session_expiry_s=0.5)) as nodes:
        node = nodes["B1"]
        async with connect(node.settings.listen, name="c") as client:
            ticket = node.sessions.get("c").reply
            uplink_of(client).connection.abort()
            await until(lambda: node.sessions.get("c").expiry_timer is not None)
            stand_still()
            await until(lambda: "c" in node.peers)
            return ticket, node.sessions.get("c").reply


def test_no_session_expires_because_its_broker_was_paused():
    before, after = asyncio.run(expiry_after_a_pause())
    assert before == after


async def lateness():
    on_time = await absence.sleep(0.01)
    asyncio.get_running_loop().call_soon(time.sleep, 1.2)
    return on_time, await absence.sleep(0.01)


def test_a_pause_is_noticed():
    assert asyncio.run(lateness()) == (False, True)
