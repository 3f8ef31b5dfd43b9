"""Brokers in processes of their own leave complete traces, stopped or killed."""

import asyncio
import time

import pyarrow.dataset

from overweave.drivers.tcp.client import connect
from overweave.overlay.fixed_shapes import chain
from overweave.testing.live import network_settings, processes

COUNT = 300


async def flow(from_url, to_url, name):
    """How many publications there were until a subscriber got COUNT, and how many it got in all."""
    got = 0

    async def take(numbers):
        nonlocal got
        async for _ in numbers:
            got += 1

    async with connect(from_url, name=name) as publisher, connect(to_url, name=f"to-{name}") as subscriber:
        await publisher.advertise("[n,isPresent,0]")
        async with subscriber.subscribe("[n,>=,0]") as numbers:
            taking = asyncio.create_task(take(numbers))
            published = 0
            while got < COUNT:
                for _ in range(50):
                    await publisher.publish({"n": published})
                    published += 1
                await publisher.flush()
                await asyncio.sleep(0.02)
            taking.cancel()
    return published, got


def read(directory):
    return pyarrow.dataset.dataset(directory, format="parquet", partitioning="hive").to_table().to_pylist()


def hidden(directory):
    return list(directory.rglob(".*"))


def test_brokers_that_stop_have_written_all(tmp_path):
    with processes(network_settings(chain(2), trace=tmp_path, run="r1")) as brokers:
        published, got = asyncio.run(flow(brokers["B1"].url, brokers["B2"].url, "p"))
    first, last = ([row for row in read(tmp_path) if row["broker"] == broker] for broker in ("B1", "B2"))
    assert len({row["sequence"] for row in first}) == len(first) == published
    assert len({row["sequence"] for row in last}) == len(last) == got
    assert {(row["publisher"], row["client"], row["hops"]) for row in first} == {("p", None, 0)}
    assert {(row["publisher"], row["client"], row["hops"]) for row in last} == {("p", "to-p", 1)}
    assert hidden(tmp_path) == []


def test_a_broker_that_is_killed_and_comes_back_writes_on(tmp_path):
    with processes(network_settings(chain(1), trace=tmp_path, run="r1")) as brokers:
        url = brokers["B1"].url
        asyncio.run(flow(url, url, "before"))
        brokers["B1"].kill()
        brokers["B1"].start()
        _, got = asyncio.run(flow(url, url, "after"))
    end_s = time.monotonic() + 30
    while hidden(tmp_path) and time.monotonic() < end_s:
        time.sleep(0.05)
    assert hidden(tmp_path) == []
    assert len([row for row in read(tmp_path) if row["client"] == "to-after"]) == got
