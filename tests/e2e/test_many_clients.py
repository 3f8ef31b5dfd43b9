"""Many clients at one broker, each with a filter of its own: ``OVERWEAVE_CLIENTS`` says how many (200)."""

import asyncio
import contextlib
import os
import time

from overweave.drivers.tcp.client import connect
from overweave.overlay.graph import Overlay
from overweave.testing.live import network_settings, processes, raise_descriptor_limit, until

CLIENTS = int(os.environ.get("OVERWEAVE_CLIENTS", "200"))
ROUNDS = 3


async def subscriber(url, number, stack, got):
    client = await stack.enter_async_context(connect(url, name=f"c{number}"))
    subscription = await stack.enter_async_context(client.subscribe(f"[class,eq,'A'],[to,=,{number}]"))

    async def take():
        async for publication in subscription:
            got[number].append((publication["to"], publication["round"]))

    stack.callback(asyncio.create_task(take()).cancel)


async def serve_all(broker):
    got = [[] for _ in range(CLIENTS)]
    async with contextlib.AsyncExitStack() as stack:
        before, start_s = broker.memory_bytes(), time.perf_counter()
        for first in range(0, CLIENTS, 100):
            await asyncio.gather(*(subscriber(broker.url, i, stack, got) for i in range(first, min(first + 100, CLIENTS))))
        connected_s = time.perf_counter() - start_s
        each_bytes = (broker.memory_bytes() - before) / CLIENTS
        publisher = await stack.enter_async_context(connect(broker.url))
        await publisher.advertise("[class,eq,'A'],[to,>=,0],[round,>=,0]")
        start_s = time.perf_counter()
        for round in range(ROUNDS):
            for number in range(CLIENTS):
                await publisher.publish({"class": "A", "to": number, "round": round})
        await asyncio.wait_for(publisher.flush(), timeout=60)
        await until(lambda: sum(map(len, got)) >= CLIENTS * ROUNDS)
        print(
            f"{CLIENTS} clients: connected in {connected_s:.2f} s, {each_bytes / 1e3:.1f} kB each, "
            f"{CLIENTS * ROUNDS} publications in {time.perf_counter() - start_s:.2f} s"
        )
    return got, each_bytes


def test_every_client_gets_exactly_its_publications():
    assert raise_descriptor_limit() > CLIENTS + 100
    with processes(network_settings(Overlay(["B1"]))) as brokers:
        got, each_bytes = asyncio.run(serve_all(brokers["B1"]))
    assert got == [[(number, round) for round in range(ROUNDS)] for number in range(CLIENTS)]
    assert each_bytes < 100_000
