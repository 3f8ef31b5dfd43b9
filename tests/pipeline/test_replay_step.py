"""Replay counts what the simulator counts, broker by broker."""

import itertools
from collections import Counter

import pytest

from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.sim.workload import make_workload
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.pipeline.index_file import build_index
from overweave.pipeline.schemas import PUBLICATIONS, SUBSCRIPTIONS
from overweave.pipeline.spark_errors import translate_errors
from overweave.pipeline.steps.replay import COLUMNS, replayed_load

WORKLOAD = {"publishers": 4, "subscriptions_per_publisher": 6, "rate_hz": 2.0}
SHAPES = (
    {"shape": "chain", "brokers": 7},
    {"shape": "star", "brokers": 6},
    {"shape": "balanced", "brokers": 13, "degree": 3},
    {"shape": "random-tree", "brokers": 11, "degree_max": 3},
)


def tables(spark, scenario, workload):
    """The workload of a scenario as the tables that replay reads."""
    count = int(scenario.duration_s * WORKLOAD["rate_hz"])
    contents = [(p.id, i, str(q)) for p in workload.publishers for i, q in enumerate(itertools.islice(p.publications(), count))]
    publishers = [(p.id, p.broker) for p in workload.publishers]
    subscriptions = [(s.id, s.id, s.broker, str(s.filter)) for s in workload.subscribers]
    return (
        spark.createDataFrame(contents, PUBLICATIONS).repartition(2),
        spark.createDataFrame(publishers, "publisher string, broker string"),
        spark.createDataFrame(subscriptions, SUBSCRIPTIONS),
    )


def simulated(scenario, workload, overlay):
    """What the simulator's trace says of every broker, by the columns of replay; and its metrics."""
    records = []
    metrics = simulate(scenario, on_record=records.append, workload=workload)
    counted = {id: Counter() for id in overlay.ids}
    for _, some in itertools.groupby(records, lambda row: (row.publisher, row.sequence, row.broker)):
        rows = list(some)
        of, delivered = counted[rows[0].broker], rows[0].subscription is not None
        of["arrivals"] += 1
        of["hops"] += rows[0].hops > 0
        of["useful_arrivals" if delivered else "pure_forwards"] += 1
        of["deliveries"] += len(rows) if delivered else 0
        of["delivery_hops"] += sum(row.hops for row in rows) if delivered else 0
    return counted, metrics


@pytest.mark.parametrize(("overlay", "protocol"), list(zip(SHAPES, ["filter", "simple", "filter", "filter"], strict=True)))
def test_replay_is_what_the_simulator_counts(spark, tmp_path, overlay, protocol):
    document = {"seed": 3, "duration_s": 10, "overlay": overlay, "workload": WORKLOAD}
    publications = index = None
    for routing in (protocol, "flooding"):
        scenario = scenario_of({**document, "routing": {"protocol": routing}})
        network = scenario.make_overlay()
        workload = make_workload(scenario, network)
        if publications is None:
            publications, publishers, subscriptions = tables(spark, scenario, workload)
            index = tmp_path / "index"
            build_index(subscriptions, index)
        expected, metrics = simulated(scenario, workload, network)
        found = {
            row.broker: row for row in replayed_load(publications, index, network, publishers, subscriptions, routing).collect()
        }
        assert set(found) == set(network.ids)
        for id, row in found.items():
            assert {name: row[name] for name in COLUMNS if name != "forwards"} == {
                name: expected[id][name] for name in COLUMNS if name != "forwards"
            }, (routing, id)
        totals = {name: sum(row[name] for row in found.values()) for name in COLUMNS}
        assert metrics.pure_forwards == totals["pure_forwards"] > 0
        assert metrics.useful_arrivals == totals["useful_arrivals"]
        assert metrics.publication_hops == totals["hops"] == totals["forwards"]
        assert metrics.deliveries == totals["deliveries"]
        assert metrics.hops_mean == pytest.approx(totals["delivery_hops"] / totals["deliveries"])


def test_forwards_are_those_of_the_broker_that_sends(spark, tmp_path):
    """A star: the middle sends on to each leaf that wants it; the publisher's leaf sends to the middle alone."""
    star = Overlay(["M", "A", "B", "C"], [("M", "A"), ("M", "B"), ("M", "C")])
    subscriptions = spark.createDataFrame([("s1", "s1", "B", "[x,>,0]"), ("s2", "s2", "C", "[x,>,1]")], SUBSCRIPTIONS)
    build_index(subscriptions, tmp_path / "index")
    publications = spark.createDataFrame([("p", i, f"[x,{i}]") for i in range(3)], PUBLICATIONS).coalesce(1)
    at_a = spark.createDataFrame([("p", "A")], "publisher string, broker string")
    found = replayed_load(publications, tmp_path / "index", star, at_a, subscriptions).collect()
    assert {row.broker: (row.arrivals, row.forwards) for row in found} == {"A": (3, 2), "M": (2, 3), "B": (2, 0), "C": (1, 0)}
    nothing = replayed_load(publications.where("sequence < 0"), tmp_path / "index", star, at_a, subscriptions).collect()
    assert {row.broker: row.arrivals for row in nothing} == {"A": 0, "M": 0, "B": 0, "C": 0}
    for publisher, broker, text in [("q", "A", "found none"), ("p", "Z", "found 'Z'")]:
        elsewhere = spark.createDataFrame([(publisher, broker)], at_a.schema)
        with pytest.raises(InvalidInput, match=rf"^publisher 'p': expected a broker of the overlay, {text}"), translate_errors():
            replayed_load(publications, tmp_path / "index", star, elsewhere, subscriptions).collect()
    with pytest.raises(InvalidInput, match=r"^publisher 'p': .* or several"), translate_errors():
        replayed_load(publications, tmp_path / "index", star, at_a.union(at_a), subscriptions).collect()
    with pytest.raises(InvalidInput, match=r"^subscription 's2': expected a broker of the overlay, found none"):
        replayed_load(publications, tmp_path / "index", star, at_a, subscriptions.where("subscription = 's1'"))
    with pytest.raises(InvalidInput, match=r"^subscription 's1': expected a broker of the overlay, found none, or several"):
        replayed_load(
            publications, tmp_path / "index", star, at_a, subscriptions.union(subscriptions.where("subscription = 's1'"))
        )
    with pytest.raises(InvalidInput, match=r"^subscription 's2': expected a broker of the overlay, found 'Z'"):
        elsewhere = subscriptions.replace("C", "Z", ["broker"])
        replayed_load(publications, tmp_path / "index", star, at_a, elsewhere)
    with pytest.raises(InvalidInput, match=r"^overlay: expected a tree"):
        replayed_load(publications, tmp_path / "index", star.with_link(("A", "B")), at_a, subscriptions)
    with pytest.raises(InvalidInput, match=r"^protocol: expected one of flooding, filter, simple, found 'merc'"):
        replayed_load(publications, tmp_path / "index", star, at_a, subscriptions, "merc")
