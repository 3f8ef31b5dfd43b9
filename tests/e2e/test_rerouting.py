"""Rerouting around live brokers that are killed for good: every settled publication arrives exactly once."""

import asyncio
import contextlib

import msgspec
import pytest

from overweave.drivers.tcp.client import connect
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.testing.live import network_settings, processes, running, until

RING = [("B1", "B2"), ("B2", "B3"), ("B3", "B4"), ("B4", "B1")]
OVERLAYS = {
    "destination": Overlay(["B1", "B2", "B3", "B4"], RING),
    # B2 and B4 are edge brokers of the same two clusters.
    "merc": Overlay(
        [
            Broker("B1", cluster="C1"),
            Broker("B2", cluster="C1", other_clusters=("C2",)),
            Broker("B3", cluster="C2"),
            Broker("B4", cluster="C1", other_clusters=("C2",)),
        ],
        RING,
    ),
    # Three clusters in a circle: from C1 to C2 directly by B2, and by way of C3.
    "merc, by way of another cluster": Overlay(
        [
            Broker("B1", cluster="C1"),
            Broker("B2", cluster="C1", other_clusters=("C2",)),
            Broker("B3", cluster="C2"),
            Broker("B4", cluster="C1", other_clusters=("C3",)),
            Broker("B5", cluster="C3"),
            Broker("B6", cluster="C3", other_clusters=("C2",)),
        ],
        [("B1", "B2"), ("B2", "B3"), ("B1", "B4"), ("B4", "B5"), ("B5", "B6"), ("B6", "B3")],
    ),
}


async def publish_round(brokers, victim):
    got = []
    async with contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(brokers["B1"].url))
        await publisher.advertise("[n,>=,0]")
        subscriber = await stack.enter_async_context(connect(brokers["B3"].url))
        subscription = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))

        async def take():
            async for publication in subscription:
                got.append(publication["n"])  # noqa: PERF401

        stack.callback(asyncio.create_task(take()).cancel)
        count = 0

        async def publish(several):
            nonlocal count
            for _ in range(several):
                await publisher.publish({"n": count})
                count += 1
                await asyncio.sleep(0.001)

        await publish(300)
        await asyncio.to_thread(brokers[victim].kill)
        await publish(300)
        await asyncio.wait_for(publisher.flush(), timeout=30)
        await until(lambda: len(got) >= count, what="that everything has arrived")
        await publish(100)
        await asyncio.wait_for(publisher.flush(), timeout=5)
        await until(lambda: len(got) >= count)
    assert sorted(got) == list(range(count))


@pytest.mark.parametrize("victim", ["B2", "B4"])
@pytest.mark.parametrize("name", OVERLAYS)
def test_everything_arrives_round_a_broker_that_is_killed_for_good(name, victim):
    with processes(network_settings(OVERLAYS[name], routing=name.partition(",")[0])) as brokers:
        asyncio.run(publish_round(brokers, victim))


async def wait_linked(settings, overlay):
    async with running(settings) as nodes:
        linked = {id: set(overlay.neighbours(id)) for id in overlay.ids}
        await until(lambda: {id: set(node.core.established_neighbours()) for id, node in nodes.items()} == linked)


@pytest.mark.parametrize("name", OVERLAYS)
def test_brokers_accept_the_neighbours_of_the_overlay_whose_urls_they_do_not_have(name):
    overlay = OVERLAYS[name]
    settings = network_settings(overlay, routing=name.partition(",")[0])
    for id, each in settings.items():
        dialled = {other: each.urls[other] for other in overlay.neighbours(id) if other < id}
        settings[id] = msgspec.structs.replace(each, urls=dialled)
        assert {member.id: member.number for member in settings[id].overlay_state.members} == overlay.lookup.positions
    asyncio.run(wait_linked(settings, overlay))
