"""MERC when edge brokers die: whoever else joins the same clusters carries on, and nothing is lost."""

from collections import Counter

import numpy as np
import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

CONFIG = BrokerConfig(SessionConfig(resend_s=0.2), heartbeat_s=0.1, silence_s=0.35, unreachable_s=1.5)
#: Clusters in a row, and in a circle; two edge brokers join each pair.
OVERLAYS = {
    "tree": make_overlay("transit-stub", clusters=3, brokers_per_cluster=3, degree=4, seed=11, edge_brokers_per_pair=2),
    "circle": make_overlay(
        "transit-stub", clusters=4, brokers_per_cluster=3, degree=4, seed=7, joined_pairs=4, edge_brokers_per_pair=2
    ),
}


def run(shape, seed, deaths):
    overlay = OVERLAYS[shape]
    inner = [broker.id for broker in overlay.brokers if len(broker.clusters) == 1]
    pairs = sorted({broker.clusters for broker in overlay.brokers if len(broker.clusters) == 2})
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
    network.kernel.run(3.0)
    # One edge broker of some pairs dies, at any time.
    dead = []
    for pair in pairs[:deaths]:
        both = [broker.id for broker in overlay.brokers if broker.clusters == pair]
        victim = both[int(random.integers(2))]
        if clusters_hold(overlay, [*dead, victim]):
            dead.append(victim)
            network.kernel.at(3.0 + 4.0 * random.random(), network.crash, victim)
    for i in range(90):
        network.kernel.run(network.kernel.now_s + 0.1 * random.random())
        publication = parse_publication(f"[class,'C{i % 3}'],[x,{random.integers(10)}]")
        network.publish(f"p{i % 3}", publication)
        expected.update((f"p{i % 3}", i // 3, s) for s, filter in subscriptions.items() if matches(filter, publication))
    network.kernel.run(network.kernel.now_s + 15.0)
    missing, extra = expected - network.deliveries, network.deliveries - expected
    assert (missing, extra) == (Counter(), Counter()), f"{shape}, seed {seed}: missing {missing}, too many {extra}"
    assert network.unsettled() == 0
    return len(dead)


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


@pytest.mark.parametrize("shape", OVERLAYS)
def test_nothing_is_lost_when_one_of_two_edge_brokers_dies(shape):
    assert sum(run(shape, seed, deaths=1 + seed % 4) for seed in range(25)) > 25
