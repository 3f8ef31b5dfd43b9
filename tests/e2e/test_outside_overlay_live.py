"""Brokers outside the overlay serve no clients: one that has left it, and one that has not joined yet."""

import asyncio

import msgspec
import pytest

from overweave.contract.overlay_state import OverlayVersion, Phase
from overweave.contract.stimuli import ChangeOverlay
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import connect
from overweave.drivers.tcp.node import BrokerNode
from overweave.drivers.tcp.operator import Operator
from overweave.errors import Refused, SessionLost
from overweave.overlay.graph import Overlay
from overweave.reweave.states import trimmed
from overweave.testing.live import BrokerProcess, joining_settings, network_settings, running, until

CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])


def run(work):
    asyncio.run(asyncio.wait_for(work, timeout=60))


def remove(nodes, broker):
    """Have the overlay go on without a broker, which clients may have connected to since it was seen empty."""
    first = nodes["B1"].core.overlay_state()
    closed = msgspec.structs.replace(first, version=OverlayVersion(1, Phase.CLOSED), change="a plan")
    nodes["B1"].handle(ChangeOverlay(trimmed(closed, (broker,))))


@pytest.mark.parametrize("routing", ["filter", "destination"])
def test_clients_of_a_broker_that_leaves_the_overlay_fail_over_at_once_and_lose_nothing(routing):
    async def work():
        settings = network_settings(CHAIN, routing=routing)
        async with (
            running(settings) as nodes,
            connect(settings["B1"].listen, name="near") as near,
            connect(settings["B3"].listen, name="late") as late,
            near.subscribe("[n,>=,0]") as numbers,
            late.subscribe("[m,>=,0]") as others,
        ):
            await late.advertise("[n,>=,0]")
            await near.advertise("[m,>=,0]")
            found, count = aiter(numbers), 0
            remove(nodes, "B3")
            while late.broker == "B3":
                await asyncio.wait_for(late.publish({"n": count}), 10)
                count += 1
                await asyncio.sleep(0.001)
            assert late.broker in ("B1", "B2")
            await late.flush()
            assert late.unmatched == 0
            assert [(await asyncio.wait_for(anext(found), 10))["n"] for _ in range(count)] == list(range(count))
            with pytest.raises(SessionLost, match="failed-over"):
                await asyncio.wait_for(anext(aiter(others)), 10)
            await near.publish({"m": 7})
            assert (await asyncio.wait_for(anext(aiter(others)), 10))["m"] == 7
            assert nodes["B3"].core.clients() == []

    run(work())


def test_a_broker_that_has_left_rejects_new_clients_and_operators():
    async def work():
        settings = network_settings(CHAIN)
        async with running(settings) as nodes:
            remove(nodes, "B3")
            await until(lambda: nodes["B3"].health_problem() is not None, what="that B3 has left")
            assert nodes["B3"].health_problem() == "this broker is not in the overlay (epoch 1)"
            with pytest.raises(Refused, match=r"left-overlay: broker B3: this broker is not in the overlay \(epoch 1\)"):
                await asyncio.wait_for(connect(settings["B3"].listen).__aenter__(), 10)
            with pytest.raises(Refused, match="left-overlay"):
                await Operator(parse_address(settings["B3"].listen), None).__aenter__()

    run(work())


def test_a_broker_serves_clients_only_once_it_has_joined():
    async def work():
        settings = network_settings(Overlay(["B1"]))
        guest = BrokerNode(joining_settings(settings, "B13", "B1"))
        await guest.start()
        client = connect(guest.settings.listen, name="early")
        try:
            entered = asyncio.create_task(client.__aenter__())
            await asyncio.sleep(0.5)
            assert not entered.done(), "it waits, as for a broker that is not up"
            assert guest.core.clients() == []
            async with running(settings), connect(settings["B1"].listen) as reader, reader.subscribe("[n,>=,0]") as numbers:
                await asyncio.wait_for(entered, 20)
                await client.publish({"n": 7})
                assert (await client.flush()).unmatched == 0
                assert (await asyncio.wait_for(anext(aiter(numbers)), 10))["n"] == 7
                await client.close()
        finally:
            await guest.stop()

    run(work())


def test_a_broker_process_is_ready_once_it_has_joined():
    async def work():
        settings = network_settings(Overlay(["B1"]))
        guest = BrokerProcess(joining_settings(settings, "B13", "B1"))
        guest.launch()
        ready = asyncio.create_task(asyncio.to_thread(guest.wait_ready))
        try:
            async with asyncio.timeout(30):
                while not await accepts(guest.url):
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.3)
            assert not ready.done()
            async with running(settings) as nodes:
                await asyncio.wait_for(ready, 20)
                assert "B13" in nodes["B1"].links
        finally:
            guest.stop()
            await asyncio.gather(ready, return_exceptions=True)

    run(work())


async def accepts(url):
    host, port, _ = parse_address(url)
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
