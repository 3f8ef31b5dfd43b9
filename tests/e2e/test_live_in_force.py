"""Live: publications sent after `subscribe` and `advertise` have returned arrive; and these return fast, whoever publishes.

``OVERWEAVE_IN_FORCE_LIVE`` sets how many rounds (60 for each network).
"""

import asyncio
import contextlib
import os
import statistics
import time

import pytest

from overweave.drivers.tcp.client import connect
from overweave.overlay.fixed_shapes import chain
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, processes, running

RING = Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B2", "B3"), ("B3", "B4"), ("B4", "B1")])
NETWORKS = [
    ("filter", chain(3)),
    ("filter", chain(5)),
    ("filter-general", RING),
    ("destination", RING),
]
ROUNDS = int(os.environ.get("OVERWEAVE_IN_FORCE_LIVE", "60"))
EACH = 20


async def rounds(urls, overlay, count):
    """How many of the publications of each round did not arrive; and how long subscribing took."""
    lost, took_s = [], []
    async with contextlib.AsyncExitStack() as stack:
        clients = {id: await stack.enter_async_context(connect(urls[id])) for id in overlay.ids}
        ends = [(a, b) for a in overlay.ids for b in overlay.ids if a != b]
        for number in range(count):
            publishes, subscribes = ends[number % len(ends)]
            publisher, subscriber = clients[publishes], clients[subscribes]
            subscription = subscriber.subscribe(f"[class,eq,'R{number}'],[n,>=,0]")

            async def enter(subscription=subscription):
                begin_s = time.perf_counter()
                await subscription.__aenter__()
                return time.perf_counter() - begin_s

            advertised, entered_s = await asyncio.gather(publisher.advertise(f"[class,eq,'R{number}'],[n,isPresent,0]"), enter())
            took_s.append(entered_s)
            for n in range(EACH):
                await publisher.publish({"class": f"R{number}", "n": n})
            await publisher.flush()
            found = set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(2.0):
                    async for publication in subscription:
                        found.add(publication["n"])
                        if len(found) == EACH:
                            break
            lost.append(EACH - len(found))
            await subscription.__aexit__(None, None, None)
            await publisher.unadvertise(advertised)
    return lost, took_s


@pytest.mark.parametrize(("routing", "overlay"), NETWORKS, ids=lambda value: value if isinstance(value, str) else len(value))
def test_nothing_is_lost_after_subscribe_and_advertise_have_returned(routing, overlay):
    async def work(urls):
        lost, _ = await rounds(urls, overlay, ROUNDS)
        assert sum(lost) == 0, [(number, count) for number, count in enumerate(lost) if count]

    settings = network_settings(overlay, routing=routing)
    with processes(settings):
        asyncio.run(asyncio.wait_for(work({id: each.listen for id, each in settings.items()}), timeout=40 + ROUNDS))


def test_flush_and_subscribe_wait_only_for_what_was_sent_before():
    """Another task of the same client publishes all the time."""

    async def work():
        settings = network_settings(chain(2))
        async with (
            running(settings),
            connect(settings["B1"].listen) as client,
            connect(settings["B2"].listen) as other,
            other.subscribe("[n,>=,0]"),
        ):
            await client.advertise("[n,isPresent,0]")

            async def publish():
                number = 0
                while True:
                    await client.publish({"n": number})
                    number += 1
                    if number % 10 == 0:
                        await asyncio.sleep(0)

            task = asyncio.create_task(publish())
            took_s = []
            for number in range(5):
                begin_s = time.perf_counter()
                await asyncio.wait_for(client.flush(), 10)
                await asyncio.wait_for(client.advertise(f"[m,=,{number}]"), 10)
                async with asyncio.timeout(10):
                    async with client.subscribe(f"[m,=,{number}]"):
                        pass
                took_s.append(time.perf_counter() - begin_s)
            task.cancel()
            assert statistics.median(took_s) < 5

    asyncio.run(asyncio.wait_for(work(), timeout=90))


def test_subscribe_can_go_on_without_waiting():
    """A broker on the way is down: the subscription is not in force, and who does not wait hears what is local."""

    async def work(urls, brokers):
        async with connect(urls["B1"]) as client:
            await client.advertise("[n,isPresent,0]")
            brokers["B2"].kill()
            await client.advertise("[m,isPresent,0]", wait=False)
            async with client.subscribe("[n,>=,0]", wait=False) as numbers:
                await client.publish({"n": 1})
                assert (await asyncio.wait_for(anext(aiter(numbers)), 10))["n"] == 1
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(client.advertise("[k,isPresent,0]"), 0.5)
                brokers["B2"].start()
                async with asyncio.timeout(20), client.subscribe("[n,>=,6]"):
                    pass

    settings = network_settings(chain(2))
    with processes(settings) as brokers:
        asyncio.run(asyncio.wait_for(work({id: each.listen for id, each in settings.items()}, brokers), timeout=60))
