"""A live network is followed: the tables reach what the batch job says, seconds after files appear."""

import asyncio
import threading

import duckdb

from overweave.drivers.tcp.client import connect
from overweave.overlay.graph import Overlay
from overweave.pipeline.streaming.follow import follow
from overweave.pipeline.streaming.versions import current
from overweave.testing.live import network_settings, running, until

PUBLICATIONS, WANTED, BITS = 60, 40, 64
CHAIN = Overlay(["B1", "B2"], [("B1", "B2")])


def test_a_live_network_is_followed(spark, tmp_path):
    traces, out, stopped, told = tmp_path / "traces", tmp_path / "out", threading.Event(), []

    def work():
        told.append(follow(spark, traces, out, None, BITS, every_s=0.3, stopped=stopped))

    def delivered():
        if not (out / "summary").exists():
            return 0
        return duckdb.sql(f"select sum(deliveries) from read_parquet('{current(out)}/summary/*.parquet')").fetchall()[0][0] or 0

    async def network():
        async with running(network_settings(CHAIN, trace=traces, trace_every_s=0.3)) as nodes:
            urls = [nodes[id].settings.listen for id in CHAIN.ids]
            async with connect(urls[0]) as publisher, connect(urls[1]) as subscriber:
                await publisher.advertise("[n,>=,0]")
                async with subscriber.subscribe(f"[n,>=,{PUBLICATIONS - WANTED}]"):
                    await until(lambda: nodes["B1"].core.statistics().tables["subscriptions"] == 1)
                    for number in range(PUBLICATIONS):
                        await publisher.publish({"n": number})
                        if number == PUBLICATIONS // 2:
                            await publisher.flush()
                            await until(lambda: delivered() > 0, within_s=120, what="that the first half is told")
                    await publisher.flush()
                    await until(lambda: delivered() == WANTED, within_s=120, what="that all is told")

    follower = threading.Thread(target=work)
    follower.start()
    try:
        asyncio.run(asyncio.wait_for(network(), timeout=300))
    finally:
        stopped.set()
        follower.join()
    followed = follow(spark, traces, out, None, BITS)  # what brokers wrote when they were stopped
    assert (followed.publications, followed.useful_arrivals, followed.pure_forwards) == (PUBLICATIONS, WANTED, PUBLICATIONS)
    assert (followed.deliveries, followed.forwarded_bytes) == (WANTED, followed.delivered_bytes)
