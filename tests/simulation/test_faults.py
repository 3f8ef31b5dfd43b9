"""Nothing lost, nothing twice, whatever goes wrong on the way."""

import os
from collections import Counter

import msgspec
import numpy as np
import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.errors import InvalidInput
from overweave.language.messages import Advertise, Subscribe
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

OVERLAYS = {
    "chain": make_overlay("chain", brokers=4),
    "balanced": make_overlay("balanced", brokers=7, degree=3),
    "star": make_overlay("star", brokers=5),
}
GRAPH = make_overlay("random-graph", brokers=8, degree=3, seed=5)
FAULTS = {
    "none": Faults(),
    "loss": Faults(loss=0.2, until_s=20),
    "duplication": Faults(duplication=0.3, until_s=20),
    "reordering": Faults(reordering=0.2, until_s=20),
    "cuts": Faults(cut_every_s=1.0, until_s=20),
    "crashes": Faults(crash_every_s=3.0, until_s=20),
    "journals": Faults(crash_every_s=3.0, journal_sync_s=0.5, until_s=20),
    "partitions": Faults(partition_every_s=3.0, until_s=20),
    "pauses": Faults(pause_every_s=0.5, until_s=20),
    # Shorter than the silence after which neighbours forget a broker and its subscribers.
    "broker pauses": Faults(broker_pause_every_s=2.0, broker_pause_s=1.2, until_s=20),
    "skew": Faults(clock_skew_s=30.0, loss=0.1, until_s=20),
    "all": Faults(
        loss=0.1,
        duplication=0.1,
        reordering=0.1,
        cut_every_s=2.0,
        crash_every_s=4.0,
        partition_every_s=6.0,
        pause_every_s=2.0,
        clock_skew_s=5.0,
        journal_sync_s=0.2,
        until_s=20,
    ),
}


def run(protocol, overlay, faults, seed, publications=60, config=None):
    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, seed, faults, config=config)
    random = np.random.default_rng(seed)
    subscriptions = {}
    for p in range(2):
        network.add_client(f"p{p}", overlay.ids[int(random.integers(len(overlay)))])
        network.say(f"p{p}", Advertise(f"a{p}", parse_filter(f"[class,eq,'C{p}'],[x,isPresent,0]")))
    for s in range(8):
        network.add_client(f"s{s}", overlay.ids[int(random.integers(len(overlay)))])
        text = f"[class,eq,'C{random.integers(2)}'],[x,{random.choice(['>', '<', '>='])},{random.integers(10)}]"
        subscriptions[f"s{s}"] = parse_filter(text)
        network.say(f"s{s}", Subscribe(f"s{s}", subscriptions[f"s{s}"]))
    network.scheduler.run(2.0)
    network.run_until_quiescent()
    network.scheduler.run(network.scheduler.now_s + 3.0)
    expected = Counter()
    for i in range(publications):
        p, publication = i % 2, parse_publication(f"[class,'C{i % 2}'],[x,{random.integers(10)}]")
        network.scheduler.run(network.scheduler.now_s + 0.2 * random.random())
        network.publish(f"p{p}", publication)
        for id, filter in subscriptions.items():
            if matches(filter, publication):
                expected[f"p{p}", i // 2, id] += 1
    network.run_until_quiescent()
    if config is not None:
        network.scheduler.run(network.scheduler.now_s + 10.0)  # brokers may still have something on their own account
    for id in overlay.ids:
        network.broker(id).validate()
    missing, extra = expected - network.deliveries, network.deliveries - expected
    assert (missing, extra) == (Counter(), Counter()), f"seed {seed}: missing {missing}, too many {extra}"
    return network


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("shape", OVERLAYS)
def test_nothing_is_lost_and_nothing_comes_twice(shape, kind):
    for seed in range(4):
        run("filter", OVERLAYS[shape], FAULTS[kind], seed)


def test_nothing_is_lost_or_doubled_in_two_hundred_runs_with_every_fault():
    """More of them: OVERWEAVE_FAULT_SEEDS=10000."""
    for seed in range(int(os.environ.get("OVERWEAVE_FAULT_SEEDS", "200"))):
        run("filter", list(OVERLAYS.values())[seed % 3], FAULTS["all"], seed)


@pytest.mark.parametrize("kind", [kind for kind in FAULTS if kind not in ("crashes", "journals")])
def test_nothing_is_lost_or_doubled_when_brokers_keep_what_waits_for_others_unless_they_crash(kind):
    faults = msgspec.structs.replace(FAULTS[kind], crash_every_s=None)
    for seed in range(8):
        run(
            "filter",
            OVERLAYS["balanced"],
            faults,
            seed,
            config=BrokerConfig(SessionConfig(retransmit_s=0.3), stall_timeout_s=0.1),
        )


@pytest.mark.parametrize("kind", FAULTS)
def test_nothing_is_lost_where_there_are_cycles(kind):
    """Brokers that come back find other ways up trees, and are told on the old ones until these are in force (0016)."""
    for seed in range(6):
        run("filter-general", GRAPH, FAULTS[kind], seed)


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize("protocol", ["destination", "merc"])
def test_nothing_is_lost_where_there_are_cycles_and_routing_goes_by_destination(protocol, kind):
    for seed in range(3):
        run(protocol, GRAPH, FAULTS[kind], seed)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_protocol_survives_every_fault(protocol):
    for seed in range(4):
        run(protocol, OVERLAYS["balanced"], FAULTS["all"], seed)


def test_same_seed_same_run():
    first, second = (run("filter", OVERLAYS["balanced"], FAULTS["all"], 7) for _ in range(2))
    assert (first.frames, first.scheduler.now_s) == (second.frames, second.scheduler.now_s)


def test_faults_are_checked():
    with pytest.raises(InvalidInput, match=r"faults\.loss"):
        Faults(loss=1.5)
    with pytest.raises(InvalidInput, match=r"faults\.cut_s"):
        Faults(cut_s=-1)
