"""What MINIMAL's networks carry: replay, the congestion kernel, plain oracles and the simulator agree."""

import heapq
import itertools

import numpy as np
import pytest

from overweave.experiments.minimal.congestion import LINK_TICKS, congest
from overweave.experiments.minimal.counts import count
from overweave.experiments.minimal.network import Network, broker_ids, preorder
from overweave.experiments.minimal.simulation import simulate
from overweave.experiments.minimal.workload import GENERATORS, UNIT_TICKS, make_workload
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.pipeline.index_file import build_index
from overweave.pipeline.schemas import PUBLICATIONS, SUBSCRIPTIONS
from overweave.pipeline.steps.replay import COLUMNS, replayed_load

#: Shapes of trees: the parent of broker i, given a generator.
TREES = {
    "random": lambda i, draw: int(draw.integers(i)),
    "chain": lambda i, draw: i - 1,
    "star": lambda i, draw: 0,
    "caterpillar": lambda i, draw: i - 1 if i % 3 else max(0, i - 3),
}


def network(workload, brokers, seed, shape="random"):
    draw = np.random.default_rng(seed)
    links = np.array([[i, TREES[shape](i, draw)] for i in range(1, brokers)], np.int64).reshape(-1, 2)
    names = draw.permutation(brokers)
    of = workload.options
    return Network(
        brokers, names[links], draw.integers(brokers, size=of.publishers), draw.integers(brokers, size=of.subscriptions)
    )


def texts(workload):
    """Filters and publications of a workload as the tables have them."""
    filters = [
        f"[class,eq,'BOX'],[x,>=,{x0}],[x,<=,{x1}],[y,>=,{y0}],[y,<=,{y1}]"
        for (x0, x1), (y0, y1) in workload.boxes.subscriptions.transpose(2, 0, 1).tolist()
    ]
    return filters, [f"[class,'BOX'],[x,{x}],[y,{y}]" for x, y in workload.boxes.points.T.tolist()]


def by_hand(workload, network, capacity, per_message=1.0):
    """The rules of `congestion`, one event at a time, with sets and a heap: latencies, delays, loads."""
    neighbours = {b: set() for b in range(network.brokers)}
    for one, other in network.links.tolist():
        neighbours[one].add(other)
        neighbours[other].add(one)

    def beyond(start, without):
        """The brokers that are reached from one without another."""
        found, stack = {start}, [start]
        while stack:
            fresh = neighbours[stack.pop()] - found - {without}
            found |= fresh
            stack += fresh
        return found

    sides = {(a, b): beyond(b, a) for a in neighbours for b in neighbours[a]}
    matching = np.split(workload.matches, workload.ends[:-1])
    wanted = [network.subscriber[some].tolist() for some in matching]
    order = itertools.count()
    heap = [
        (at, next(order), p, int(network.publisher[workload.boxes.publisher[p]]), None, 0)
        for p, at in enumerate(workload.at_ticks.tolist())
    ]
    heapq.heapify(heap)
    came, free = {b: [] for b in neighbours}, dict.fromkeys(neighbours, 0.0)
    peak, latency, delay = dict.fromkeys(neighbours, 0), [], []
    while heap:
        now, _, p, at, last, hops = heapq.heappop(heap)
        came[at].append(now)
        load = sum(now - UNIT_TICKS + 1e-3 < each for each in came[at])
        peak[at] = max(peak[at], load)
        free[at] = max(free[at], now + per_message * max(0, load - capacity))
        for _ in range(wanted[p].count(at)):
            latency.append(free[at] - workload.at_ticks[p])
            delay.append(latency[-1] - hops * LINK_TICKS)
        for neighbour in sorted(neighbours[at]):
            if neighbour != last and not sides[at, neighbour].isdisjoint(wanted[p]):
                heapq.heappush(heap, (free[at] + LINK_TICKS, next(order), p, neighbour, at, hops + 1))
    return latency, delay, [len(came[b]) for b in neighbours], [peak[b] for b in neighbours]


@pytest.mark.parametrize("generator", GENERATORS)
def test_matches_are_those_of_the_language(generator):
    workload = make_workload(40, generator, 2)
    filters, publications = texts(workload)
    filters, publications = [parse_filter(each) for each in filters], [parse_publication(each) for each in publications]
    expected = [[i for i, wanted in enumerate(filters) if matches(wanted, each)] for each in publications]
    assert [some.tolist() for some in np.split(workload.matches, workload.ends[:-1])] == expected
    assert sum(map(len, expected)) == len(workload.matches) > 0


def test_publishers_publish_evenly_for_ten_time_units():
    workload = make_workload(400, "widths", 1)
    boxes = workload.boxes
    for publisher, rate in enumerate(boxes.rates.tolist()):
        at = workload.at_ticks[boxes.publisher == publisher]
        assert len(at) == 10 * rate
        assert np.diff(at) == pytest.approx(UNIT_TICKS / rate)
        assert 0 <= at[0] < UNIT_TICKS / rate
    assert 1 <= boxes.rates.min() < boxes.rates.max() == 10


@pytest.mark.parametrize("shape", TREES)
def test_preorder_has_every_subtree_in_one_piece(shape):
    workload = make_workload(8, "corners", 1)
    some = network(workload, 40, 3, shape)
    tree = preorder(40, some.links)
    assert sorted(tree.number.tolist()) == list(range(40))
    links = {frozenset(pair) for pair in tree.number[some.links].tolist()}
    assert links == {frozenset((b, int(tree.parent[b]))) for b in range(1, 40)}
    for b in range(40):
        below = [each for each in range(40) if b in ancestors(tree, each)]
        assert below == list(range(b, tree.end[b]))
        assert tree.children[tree.child_start[b] : tree.child_start[b + 1]].tolist() == np.flatnonzero(tree.parent == b).tolist()
    assert tree.degree.sum() == 2 * 39


def ancestors(tree, broker):
    found = [broker]
    while tree.parent[found[-1]] >= 0:
        found.append(int(tree.parent[found[-1]]))
    return found


def test_links_that_are_no_tree_are_refused():
    with pytest.raises(ValueError, match="expected a tree of 4 brokers, found 2 joined by 3 links"):
        preorder(4, np.array([[0, 1], [2, 3], [3, 2]]))


@pytest.mark.parametrize("generator", GENERATORS)
def test_counts_are_those_of_the_replay_step(spark, tmp_path, generator):
    workload = make_workload(60, generator, 3)
    some, ids = network(workload, 11, 5), broker_ids(11)
    filters, contents = texts(workload)
    rows = [(f"s{i}", f"s{i}", ids[b], filters[i]) for i, b in enumerate(some.subscriber.tolist())]
    subscriptions = spark.createDataFrame(rows, SUBSCRIPTIONS)
    build_index(subscriptions, tmp_path / "index")
    sent = [(f"P{p}", i, contents[i]) for i, p in enumerate(workload.boxes.publisher.tolist())]
    publishers = [(f"P{p}", ids[b]) for p, b in enumerate(some.publisher.tolist())]
    found = replayed_load(
        spark.createDataFrame(sent, PUBLICATIONS).coalesce(1),
        tmp_path / "index",
        some.overlay(),
        spark.createDataFrame(publishers, "publisher string, broker string"),
        subscriptions,
    )
    by_broker, counts = {row.broker: row for row in found.collect()}, count(workload, some)
    assert {name: [by_broker[id][name] for id in ids] for name in COLUMNS} == {n: counts[n].tolist() for n in COLUMNS}
    assert counts["pure_forwards"].sum() > 0


@pytest.mark.parametrize("shape", TREES)
@pytest.mark.parametrize(("generator", "capacity"), [("corners", 1000), ("corners", 12), ("widths", 5)])
def test_congestion_is_what_the_rules_give_by_hand(generator, capacity, shape):
    workload = make_workload(48, generator, 4)
    some = network(workload, 14, 6, shape)
    counts = count(workload, some)
    found = congest(workload, some, counts, capacity)
    latency, delay, arrivals, peak = by_hand(workload, some, capacity)
    assert found.deliveries == len(latency) == counts["deliveries"].sum()
    assert found.arrivals.tolist() == arrivals == counts["arrivals"].tolist()
    assert found.peak.tolist() == peak
    assert found.latency_ticks == pytest.approx(np.mean(latency))
    assert found.delay_ticks == pytest.approx(np.mean(delay), abs=1e-6)
    assert (found.delay_ticks > 1) == (capacity < 1000)


def test_one_broker_alone():
    workload = make_workload(40, "corners", 1)
    some = network(workload, 1, 1)
    found = congest(workload, some, count(workload, some), capacity=5)
    _, delay, arrivals, peak = by_hand(workload, some, 5)
    assert (found.arrivals.tolist(), found.peak.tolist()) == (arrivals, peak)
    assert found.latency_ticks == found.delay_ticks == pytest.approx(np.mean(delay))


@pytest.mark.parametrize(("generator", "clients", "capacity"), [("corners", 200, 40), ("widths", 120, 1000), ("widths", 120, 30)])
def test_counts_and_congestion_are_those_of_the_simulator(generator, clients, capacity):
    workload = make_workload(clients, generator, 1)
    some = network(workload, clients // 7, 2)
    counts = count(workload, some)
    found = congest(workload, some, counts, capacity)
    seen, simulated = simulate(workload, some, capacity)
    for name, each in seen.items():
        assert each.tolist() == counts[name].tolist(), name
    assert found.peak.tolist() == simulated.peak.tolist()
    assert found.deliveries == simulated.deliveries
    assert found.latency_ticks == pytest.approx(simulated.latency_ticks, abs=1e-6)
    assert found.delay_ticks == pytest.approx(simulated.delay_ticks, abs=1e-6)
    assert (found.delay_ticks > 1) == (capacity < 1000)
