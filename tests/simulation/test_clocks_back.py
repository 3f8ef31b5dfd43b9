"""A broker whose clock has gone back when it restarts comes with an incarnation of the past, and starts again."""

from collections import Counter

import msgspec
import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

CHAIN = make_overlay("chain", brokers=4)
TREE = make_overlay("balanced", brokers=7, degree=3)
GRAPH = make_overlay("random-graph", brokers=8, degree=3, seed=5)
ROUTING = ["filter", "filter-general", "destination", "merc"]
ALL = Faults(
    loss=0.1,
    duplication=0.1,
    reordering=0.1,
    cut_every_s=2.0,
    crash_every_s=2.0,
    partition_every_s=6.0,
    pause_every_s=2.0,
    clock_back=0.7,
    clock_skew_s=5.0,
    until_s=15,
)
#: No faults but what the test does itself; all is sent again all the same.
CONFIG = BrokerConfig(SessionConfig(retransmit_s=0.3), heartbeat_s=0.5)
#: No broker is considered failed: a cut right before a crash is a silence of two seconds.
PATIENT = BrokerConfig(SessionConfig(retransmit_s=0.3), heartbeat_s=0.5, link_timeout_s=6.0)


def network(protocol, overlay, seed, faults, config=None):
    """One publisher at the first broker, and a subscriber at each."""
    made = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, seed, faults, config=config)
    made.add_client("p", overlay.ids[0])
    made.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    for id in overlay.ids:
        made.add_client(f"s{id}", id)
        made.say(f"s{id}", Subscribe(f"s{id}", parse_filter("[x,>=,0]")))
    return made


def publish(made, numbers):
    for number in numbers:
        made.publish("p", parse_publication(f"[x,{number}]"))
        made.scheduler.run(made.scheduler.now_s + 0.1)


def got(made, overlay, numbers):
    """How often each subscriber has each number, of those that it has not exactly once."""
    counts = {(id, number): made.deliveries["p", number, f"s{id}"] for id in overlay.ids for number in numbers}
    return {which: count for which, count in counts.items() if count != 1}


@pytest.mark.parametrize("broker", ["B1", "B2", "B4"])
@pytest.mark.parametrize("protocol", ROUTING)
def test_a_broker_that_comes_back_with_a_clock_of_the_past_goes_on(protocol, broker):
    made = network(protocol, CHAIN, 1, Faults(clock_back=0.5), CONFIG)
    made.scheduler.run(3.0)
    publish(made, range(5))
    made.crash(broker, 1.0, clock_back=True)
    publish(made, range(5, 10))
    made.scheduler.run(made.scheduler.now_s + 5.0)
    publish(made, range(10, 15))
    made.run_until_quiescent(30)
    assert got(made, CHAIN, range(15)) == {}
    assert [id for id, _ in made.restarts][:1] == [broker]
    assert made.broker(broker).incarnation > 1001


@pytest.mark.parametrize("broker", ["B1", "B2", "B4"])
@pytest.mark.parametrize("protocol", [*ROUTING, "covering-peer"])
def test_a_broker_that_comes_back_with_an_incarnation_that_it_had_begins_again(protocol, broker):
    """Its neighbours would take it for the earlier one: they would not send it what that one has settled."""
    made = network(protocol, CHAIN, 1, Faults(clock_back=0.5), CONFIG)
    made.scheduler.run(3.0)
    publish(made, range(5))
    made.crash(broker)
    publish(made, range(5, 10))
    made.restart(broker, incarnation=1001)
    publish(made, range(10, 15))
    made.run_until_quiescent(30)
    assert got(made, CHAIN, range(15)) == {}
    assert {id for id, incarnation in made.restarts if incarnation == 1001} == {broker}
    assert made.broker(broker).incarnation == 1002


@pytest.mark.parametrize("protocol", [*ROUTING, "covering-peer"])
def test_an_incarnation_of_the_past_is_not_taken_twice(protocol):
    """Two crashes, and each time the same clock of the past: after the first one no neighbour knew better."""
    made = network(protocol, CHAIN, 1, Faults(clock_back=0.5), CONFIG)
    made.scheduler.run(3.0)
    publish(made, range(5))
    for broker in ("B3", "B4"):
        made.crash(broker)
    made.restart("B4", incarnation=7)
    made.restart("B3")
    publish(made, range(5, 10))
    made.crash("B4")
    made.restart("B4", incarnation=7)
    publish(made, range(10, 15))
    made.run_until_quiescent(30)
    assert got(made, CHAIN, range(15)) == {}
    assert made.broker("B4").incarnation > 7


@pytest.mark.parametrize("protocol", [*ROUTING, "covering-peer"])
def test_two_neighbours_lead_a_broker_to_the_same_incarnation(protocol):
    """Its clock is of the past at each start. One neighbour leads it above its first incarnation. After another crash the other
    one does, which has not heard of that.
    """
    made = network(protocol, CHAIN, 1, Faults(clock_back=0.5), CONFIG)
    made.scheduler.run(3.0)
    publish(made, range(5))
    made.crash("B2")
    for paused in ("B1", "B3"):
        made.pause(paused, 1.0)
        made.restart("B2", incarnation=7)
        made.scheduler.run(made.scheduler.now_s + 0.9)
        assert made.broker("B2").incarnation == 1002
        if paused == "B1":
            made.crash("B2")
            made.scheduler.run(made.scheduler.now_s + 0.5)
    publish(made, range(5, 15))
    made.run_until_quiescent(30)
    assert got(made, CHAIN, range(15)) == {}
    assert made.broker("B2").incarnation == 1003


@pytest.mark.parametrize("protocol", ["destination", "merc"])
def test_who_is_known_from_a_later_life_only_far_away_begins_again_too(protocol):
    """Its neighbours have restarted at the same time and know nothing of it; what they hear of its links is of its later life."""
    made = network(protocol, CHAIN, 1, Faults(clock_back=0.5), CONFIG)
    made.scheduler.run(3.0)
    publish(made, range(3))
    made.crash("B1", 1.0, clock_back=True)
    made.crash("B2", 0.5)
    made.scheduler.run(made.scheduler.now_s + 8.0)
    publish(made, range(3, 6))
    made.run_until_quiescent(30)
    assert got(made, CHAIN, range(6)) == {}
    assert made.broker("B1").incarnation > 1001


@pytest.mark.parametrize("protocol", ["filter", "destination", "merc"])
def test_nothing_is_lost_or_doubled_on_a_tree_with_every_fault(protocol):
    restarts = Counter()
    for seed in range(12):
        made = network(protocol, TREE, seed, ALL, PATIENT)
        made.scheduler.run(2.0)
        made.run_until_quiescent()
        made.scheduler.run(made.scheduler.now_s + 3.0)
        numbers = range(60)
        publish(made, numbers)
        made.run_until_quiescent()
        assert got(made, TREE, numbers) == {}, f"seed {seed}"
        for id in TREE.ids:
            made.broker(id).validate()
        restarts.update(id for id, _ in made.restarts)
    assert restarts.total() > 12


@pytest.mark.parametrize("protocol", ["destination", "merc"])
def test_where_there_are_cycles_all_arrives_when_the_faults_are_over(protocol):
    for seed in range(6):
        made = network(protocol, GRAPH, seed, ALL)
        made.scheduler.run(2.0)
        made.run_until_quiescent()
        publish(made, range(30))
        made.scheduler.run(ALL.until_s + 10.0)
        after_faults(made, GRAPH, f"seed {seed}")


@pytest.mark.parametrize("overlay", [TREE, GRAPH], ids=["tree", "graph"])
def test_filter_general_goes_on_after_one_crash_with_every_other_fault(overlay):
    """What it loses when brokers crash in quick succession, it loses with good clocks too."""
    faults = msgspec.structs.replace(ALL, crash_every_s=None)
    for seed in range(12):
        made = network("filter-general", overlay, seed, faults)
        made.scheduler.run(2.0)
        made.run_until_quiescent()
        publish(made, range(10))
        made.crash(overlay.ids[seed % len(overlay.ids)], 1.0, clock_back=True)
        publish(made, range(10, 30))
        made.scheduler.run(ALL.until_s + 10.0)
        after_faults(made, overlay, f"seed {seed}")
        assert made.restarts


def after_faults(made, overlay, what):
    """All arrives, once."""
    made.run_until_quiescent()
    publish(made, range(30, 40))
    made.run_until_quiescent()
    made.scheduler.run(made.scheduler.now_s + 5.0)
    assert got(made, overlay, range(30, 40)) == {}, what
    assert max(made.deliveries.values()) == 1


def test_a_client_that_is_attached_again_is_heard_though_it_counts_from_the_start():
    made = network("filter", CHAIN, 1, Faults())
    made.scheduler.run(1.0)
    publish(made, range(3))
    made.remove_client("p")
    made.scheduler.run(made.scheduler.now_s + 1.0)
    made.deliveries.clear()
    made.add_client("p", "B3")
    made.say("p", Advertise("b", parse_filter("[x,>=,0]")))
    made.scheduler.run(made.scheduler.now_s + 1.0)
    publish(made, range(3))
    made.run_until_quiescent()
    assert got(made, CHAIN, range(3)) == {}


def test_a_chance_of_clocks_that_go_back_changes_nothing_else():
    plain = msgspec.structs.replace(ALL, clock_back=0.0)
    first, second = (network("filter", TREE, 3, plain) for _ in range(2))
    for made in (first, second):
        made.scheduler.run(10.0)
    assert (first.frames, first.restarts) == (second.frames, [])
