"""A live network that organises itself: brokers far apart that talk much get a link, and nothing is lost on the way."""

import asyncio
import contextlib

from overweave.broker.modules.self_organise import SelfOrganiseOptions
from overweave.drivers.tcp.client import connect
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, running, until

RING = Overlay([f"B{i}" for i in range(1, 7)], [(f"B{i}", f"B{i % 6 + 1}") for i in range(1, 7)])


async def go():
    settings = network_settings(RING, routing="destination", modules={"self_organise": SelfOrganiseOptions(0.5, degree_max=3)})
    async with running(settings) as nodes, contextlib.AsyncExitStack() as stack:
        publisher = await stack.enter_async_context(connect(settings["B1"].listen))
        await publisher.advertise("[n,>=,0]")
        subscriber = await stack.enter_async_context(connect(settings["B4"].listen))
        subscription = await stack.enter_async_context(subscriber.subscribe("[n,>=,0]"))
        got, hops = [], []

        async def take():
            async for publish in subscription.messages():
                got.append(publish.publication["n"])
                hops.append(publish.header.hops)

        stack.callback(asyncio.create_task(take()).cancel)
        sent = 0
        while not hops or hops[-1] > 2:
            assert sent < 3_000, "the two never got a link"
            await publisher.publish({"n": sent})
            sent += 1
            await asyncio.sleep(0.005)
        await publisher.flush()
        await until(lambda: len(got) == sent)
        assert sorted(got) == list(range(sent))
        assert hops[0] == 4  # brokers on the way, both ends included
        assert "B4" in nodes["B1"].links.neighbours
        assert all(node.health_problem() is None for node in nodes.values())


def test_who_talks_much_gets_a_link():
    asyncio.run(asyncio.wait_for(go(), timeout=60))
