"""What brokers send, from traces: against what the simulator puts on its channels, and what live brokers count."""

import asyncio
from collections import Counter

import pyarrow.parquet as pq
import pytest

from overweave.contract.frames import BatchFrame
from overweave.drivers.sim import nodes
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.tcp.client import connect
from overweave.drivers.tracing.files import TraceWriter
from overweave.language.headers import Priority
from overweave.overlay.graph import Overlay
from overweave.pipeline.jobs import profile_run
from overweave.testing.live import network_settings, running

DOCUMENT = {
    "duration_s": 10,
    "overlay": {"shape": "balanced", "brokers": 7, "degree": 3},
    "workload": {"publishers": 3, "subscriptions_per_publisher": 8, "rate_hz": 2},
    "costs": {"link_delay_s": 0.01, "output_bandwidth_bytes_per_s": 100_000},
}
CYCLES = {"shape": "random-graph", "brokers": 6, "degree": 3}


def summary_of(out):
    return {row["broker"]: row for row in pq.read_table(out / "summary").to_pylist()}


def sums_of_load(out, name):
    found = Counter()
    for row in pq.read_table(out / "load").to_pylist():
        found[row["broker"]] += row[name] * 0.5
    return found


@pytest.mark.parametrize(
    "more", [{}, {"routing": {"protocol": "flooding"}}, {"routing": {"protocol": "destination"}, "overlay": CYCLES}]
)
def test_brokers_send_what_the_simulator_puts_on_its_channels(spark, tmp_path, monkeypatch, more):
    sent = {True: Counter(), False: Counter()}

    def counted(send):
        def counting(channel, frame):
            if isinstance(frame, BatchFrame) and frame.batch.priority() is Priority.PUBLICATION:
                source, target = channel._source.id, channel._target.id
                sent[target in brokers][source] += frame.batch.size_bytes()
            send(channel, frame)

        return counting

    for kind in (nodes.Channel, nodes.LossyChannel):
        monkeypatch.setattr(kind, "send", counted(kind.send))
    scenario = scenario_of(DOCUMENT | more)
    brokers = scenario.make_overlay().ids
    with TraceWriter(tmp_path / "traces", "r") as on_record:
        simulate(scenario, on_record=on_record, run="r")
    totals = profile_run(spark, tmp_path / "traces", tmp_path / "out", bucket_s=0.5)
    for to_brokers, name in ((True, "forwarded_bytes"), (False, "delivered_bytes")):
        # What publishers send is on channels, too.
        expected = +Counter({id: sent[to_brokers][id] for id in brokers})
        assert expected.total() > 0
        assert +Counter({id: row[name] for id, row in summary_of(tmp_path / "out").items()}) == expected
        assert +sums_of_load(tmp_path / "out", f"{name}_per_s") == pytest.approx(expected)
        assert getattr(totals, name) == expected.total()
    for row in summary_of(tmp_path / "out").values():
        assert row["output_bytes"] == row["delivered_bytes"] + row["forwarded_bytes"]


def test_live_brokers_send_what_they_count(spark, tmp_path):
    chain = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
    counted = {}

    async def network():
        async with running(network_settings(chain, trace=tmp_path / "traces")) as live:
            urls = [live[id].settings.listen for id in chain.ids]
            async with connect(urls[0]) as publisher, connect(urls[0]) as near, connect(urls[2]) as far:
                await publisher.advertise("[n,>=,0]")
                async with near.subscribe("[n,>=,10]"), far.subscribe("[n,>=,5]"), far.subscribe("[n,>=,15]"):
                    for number in range(20):
                        await publisher.publish({"n": number})
                    await publisher.flush()
            for id in chain.ids:
                counted[id] = live[id].core.statistics()

    asyncio.run(network())
    profile_run(spark, tmp_path / "traces", tmp_path / "out")
    found = summary_of(tmp_path / "out")
    (size,) = {row["bytes"] for row in pq.read_table(tmp_path / "traces").to_pylist()}
    assert {id: row["forwarded_bytes"] / size for id, row in found.items()} == {"B1": 15, "B2": 15, "B3": 0}
    for id, statistics in counted.items():
        assert found[id]["forwarded_bytes"] == statistics.publications_out * size
        assert found[id]["delivered_bytes"] == statistics.publications_to_clients * size
    # A delivery is one for each subscription; what goes over the wire is one for each client.
    assert {id: (row["deliveries"], row["useful_arrivals"]) for id, row in found.items()} == {
        "B1": (10, 10), "B2": (0, 0), "B3": (20, 15)
    }  # fmt: skip


@pytest.mark.parametrize("skip_bad", [False, True])
def test_where_a_trace_does_not_say_who_sent_it_nobody_knows(spark, tmp_path, skip_bad):
    with TraceWriter(tmp_path / "traces", "r") as on_record:
        metrics = simulate(scenario_of(DOCUMENT), on_record=on_record, run="r")
    (file,) = (tmp_path / "traces" / "run=r").glob("*.parquet")
    pq.write_table(pq.read_table(file, partitioning=None).drop_columns("previous_hop"), file)
    totals = profile_run(spark, tmp_path / "traces", tmp_path / "out", skip_bad=skip_bad)
    assert (totals.forwarded_bytes, totals.output_bytes, totals.deliveries) == (None, None, metrics.deliveries)
    rows = pq.read_table(tmp_path / "out" / "load").to_pylist()
    assert sum(row["delivered_bytes_per_s"] for row in rows) == totals.delivered_bytes > 0
    assert {row["output_bytes_per_s"] for row in rows if row["forwarded_bytes_per_s"] is None} == {None}
    assert {row["forwarded_bytes"] for row in summary_of(tmp_path / "out").values()} == {None}
