"""A live broker of a ring that is stopped and continued under traffic: nothing is lost to subscribers that were never away."""

import asyncio
import contextlib
import signal

import pytest

from overweave.drivers.tcp.client import connect
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, processes, until

RING = Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B2", "B3"), ("B3", "B4"), ("B4", "B1")])
#: Longer than neighbours wait before they give a broker up.
PAUSES_S = (4.0, 2.5)


async def publish_while_paused(brokers, victim):
    """Publishers at the broker that is paused and at another one, subscribers at all others."""
    got, published = {}, {}
    async with contextlib.AsyncExitStack() as stack:
        publishers = {}
        for id in (victim, "B3"):
            publishers[id] = await stack.enter_async_context(connect(brokers[id].url, name=f"p-{id}"))
            await publishers[id].advertise(f"[at,eq,'{id}'],[n,>=,0]")
            published[id] = 0
        for id in (id for id in brokers if id != victim):
            client = await stack.enter_async_context(connect(brokers[id].url, name=f"s-{id}"))
            subscription = await stack.enter_async_context(client.subscribe("[n,>=,0]"))
            got[id] = []

            async def take(subscription=subscription, into=got[id]):
                async for publication in subscription:
                    into.append((publication["at"], publication["n"]))

            stack.callback(asyncio.create_task(take()).cancel)
        await asyncio.sleep(1.0)
        going = True

        async def publish(id):
            while going:
                await publishers[id].publish({"at": id, "n": published[id]})
                published[id] += 1
                await asyncio.sleep(0.004)
            await publishers[id].flush()

        tasks = [asyncio.create_task(publish(id)) for id in publishers]
        await asyncio.sleep(0.7)
        for pause_s in PAUSES_S:
            brokers[victim].signal(signal.SIGSTOP)
            await asyncio.sleep(pause_s)
            brokers[victim].signal(signal.SIGCONT)
            await asyncio.sleep(1.0)
        going = False
        await asyncio.wait_for(asyncio.gather(*tasks), timeout=20)
        due = {(id, n) for id, count in published.items() for n in range(count)}
        with contextlib.suppress(AssertionError):
            await until(lambda: all(len(each) >= len(due) for each in got.values()), within_s=3)
    for id, each in got.items():
        assert len(each) == len(set(each)), f"at {id} {len(each) - len(set(each))} came twice"
        missing = sorted(due - set(each))
        assert not missing, f"at {id} {len(missing)} of {len(due)} are missing, the first {missing[:5]}"


@pytest.mark.parametrize("protocol", ["destination"])
def test_nothing_is_lost_when_a_broker_is_paused(protocol):
    with processes(network_settings(RING, routing=protocol)) as brokers:
        asyncio.run(asyncio.wait_for(publish_while_paused(brokers, "B1"), timeout=60))
