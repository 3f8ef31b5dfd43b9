"""MERC when edge brokers die: whoever else joins the same clusters carries on, and nothing is lost."""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

CONFIG = BrokerConfig(SessionConfig(retransmit_s=0.2), heartbeat_s=0.1, link_timeout_s=0.35, undeliverable_timeout_s=1.5)
#: Clusters in a row, and in a circle; two edge brokers join each pair.
OVERLAYS = {
    "tree": make_overlay("transit-stub", clusters=3, brokers_per_cluster=3, degree=4, seed=11, edge_brokers_per_pair=2),
    "circle": make_overlay(
        "transit-stub", clusters=4, brokers_per_cluster=3, degree=4, seed=7, joined_pairs=4, edge_brokers_per_pair=2
    ),
}


def run(shape, seed, trouble):
    """Publish while there is trouble; how much there was."""
    overlay = OVERLAYS[shape]
    inner = [broker.id for broker in overlay.brokers if len(broker.clusters) == 1]
    network = SimulatedNetwork(overlay, PROTOCOLS["merc"].make, seed, config=CONFIG)
    random = np.random.default_rng(seed)
    subscriptions, expected = {}, Counter()
    for p in range(3):
        network.add_client(f"p{p}", inner[int(random.integers(len(inner)))])
        network.say(f"p{p}", Advertise(f"a{p}", parse_filter(f"[class,eq,'C{p}'],[x,isPresent,0]")))
    for s in range(12):
        network.add_client(f"s{s}", inner[int(random.integers(len(inner)))])
        subscriptions[f"s{s}"] = parse_filter(f"[class,eq,'C{random.integers(3)}'],[x,>,{random.integers(10)}]")
        network.say(f"s{s}", Subscribe(f"s{s}", subscriptions[f"s{s}"]))
    network.scheduler.run(3.0)
    made = trouble(network, overlay, random)
    for i in range(90):
        network.scheduler.run(network.scheduler.now_s + 0.1 * random.random())
        publication = parse_publication(f"[class,'C{i % 3}'],[x,{random.integers(10)}]")
        network.publish(f"p{i % 3}", publication)
        expected.update((f"p{i % 3}", i // 3, s) for s, filter in subscriptions.items() if matches(filter, publication))
    network.scheduler.run(network.scheduler.now_s + 15.0)
    missing, extra = expected - network.deliveries, network.deliveries - expected
    assert (missing, extra) == (Counter(), Counter()), f"{shape}, seed {seed}: missing {missing}, too many {extra}"
    assert network.unsettled() == 0
    return made


def clusters_hold(overlay, dead):
    """Whether each cluster is connected by itself without those brokers."""
    for cluster in overlay.clusters:
        members = set(overlay.members(cluster)) - set(dead)
        reached, queue = set(), [min(members)]
        while queue:
            at = queue.pop()
            if at not in reached:
                reached.add(at)
                queue += [
                    next for next in overlay.neighbours(at) if next in members and first_common(overlay, at, next) == cluster
                ]
        if reached != members:
            return False
    return True


def first_common(overlay, one, other):
    first, second = sorted((one, other), key=overlay.position)
    return next(cluster for cluster in overlay.broker(first).clusters if cluster in overlay.broker(second).clusters)


def edge_brokers(overlay):
    """Those who join the same two clusters, by pair of clusters."""
    pairs = sorted({broker.clusters for broker in overlay.brokers if len(broker.clusters) == 2})
    return [[broker.id for broker in overlay.brokers if broker.clusters == pair] for pair in pairs]


def some_die(network, overlay, random, most):
    """One edge broker of some pairs dies, at any time."""
    dead = []
    for both in edge_brokers(overlay)[:most]:
        victim = both[int(random.integers(2))]
        if clusters_hold(overlay, [*dead, victim]):
            dead.append(victim)
            network.scheduler.at(3.0 + 4.0 * random.random(), network.crash, victim)
    return len(dead)


def one_comes_back_and_the_other_dies(network, overlay, random):
    """An edge broker is away for a while and comes back, one link after the other; when it has one in each of its clusters,
    the other of its pair dies."""
    pairs = edge_brokers(overlay)
    both = pairs[int(random.integers(len(pairs)))]
    comes, goes = both if random.random() < 0.5 else both[::-1]
    if not (clusters_hold(overlay, [comes]) and clusters_hold(overlay, [goes])):
        return 0
    away_s = 2.0 + random.random()
    back_s = network.scheduler.now_s + away_s
    network.crash(comes, away_s)
    first_s = dict.fromkeys(overlay.broker(comes).clusters, 1.0)
    for neighbour in overlay.neighbours(comes):
        for_s, cluster = 0.3 * random.random(), first_common(overlay, comes, neighbour)
        network.scheduler.at(back_s, partial(network.cut_link, for_s=for_s), (comes, neighbour))
        if neighbour != goes:
            first_s[cluster] = min(first_s[cluster], for_s)
    network.scheduler.at(back_s + max(first_s.values()) + 0.05 * random.random(), network.crash, goes)
    return 1


@pytest.mark.parametrize("shape", OVERLAYS)
def test_nothing_is_lost_when_one_of_two_edge_brokers_dies(shape):
    assert sum(run(shape, seed, partial(some_die, most=1 + seed % 4)) for seed in range(12)) > 12


@pytest.mark.parametrize("shape", OVERLAYS)
def test_nothing_is_lost_when_one_has_hardly_come_back_and_the_other_dies(shape):
    # Among these seeds are some for each of: advertisements that nobody answers, those answered too early, nothing matched again.
    assert sum(run(shape, seed, one_comes_back_and_the_other_dies) for seed in range(37, 62)) > 20
