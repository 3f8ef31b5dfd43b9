"""Two brokers that open a link to each other at the same time keep one connection, the same one."""

import asyncio

import pytest

from overweave.broker.modules.self_organise import SelfOrganiseOptions
from overweave.drivers.tcp.client import connect
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.testing.live import network_settings, running, until

CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])


async def work():
    settings = network_settings(CHAIN, routing="destination", modules={"self_organise": SelfOrganiseOptions(1000.0)})
    async with running(settings) as nodes:
        ends = nodes["B1"], nodes["B3"]
        made = []
        for node in ends:
            node.log.info = lambda event, made=made, node=node, **about: made.append((node.settings.id, event, about.get("peer")))
        for node, other in (ends, ends[::-1]):
            node.links.open(other.settings.id, LinkKind.PRIMARY)
        await until(lambda: all(other in node.peers for node, other in zip(ends, ("B3", "B1"), strict=True)))
        await asyncio.sleep(0.5)  # they flapped about every 50 ms
        connected = [entry for entry in made if entry[1] == "connected"]
        assert len(connected) <= 4, connected
        ports = [end.peers[of]._transport.get_extra_info("sockname")[1] for end, of in zip(ends, ("B3", "B1"), strict=True)]
        peers = [end.peers[of]._transport.get_extra_info("peername")[1] for end, of in zip(ends, ("B3", "B1"), strict=True)]
        assert ports == peers[::-1]
        async with connect(settings["B1"].listen) as publisher, connect(settings["B3"].listen) as subscriber:
            await publisher.advertise("[n,>=,0]")
            async with subscriber.subscribe("[n,>=,0]") as numbers:
                await publisher.publish({"n": 1})
                assert (await asyncio.wait_for(anext(aiter(numbers)), 10))["n"] == 1


@pytest.mark.parametrize("trial", range(4))
def test_two_brokers_that_dial_each_other_keep_one_connection(trial):
    asyncio.run(asyncio.wait_for(work(), timeout=60))
