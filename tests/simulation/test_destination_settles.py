"""Where overlays have cycles ways cross, and brokers wait for each other's rows: nobody waits for ever."""

import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


@pytest.mark.parametrize("heartbeat_s", [None, 0.5])
def test_all_that_brokers_say_when_they_start_is_settled(heartbeat_s):
    """Each row may wait behind others in the same stream: without word of what is settled ahead of those, round a circle."""
    overlay = make_overlay("random-graph", brokers=30, degree=6, seed=1)
    network = SimulatedNetwork(overlay, PROTOCOLS["destination"].make, config=BrokerConfig(heartbeat_s=heartbeat_s))
    network.scheduler.run(2.0)
    assert not any(network.broker(id).statistics().unsettled for id in overlay.ids)


@pytest.mark.parametrize("protocol", ["filter-general", "destination"])
def test_all_that_clients_publish_at_once_is_settled(protocol):
    overlay = make_overlay("random-graph", brokers=20, degree=4, seed=1)
    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make)
    all_filter, event = parse_filter("[class,eq,'C'],[x,isPresent,0]"), parse_publication("[class,'C'],[x,1]")
    for id in overlay.ids:
        network.add_client(f"p{id}", id)
        network.say(f"p{id}", Advertise(f"a{id}", all_filter))
    network.scheduler.run(1.0)
    for id in overlay.ids:
        network.add_client(f"s{id}", id)
        network.say(f"s{id}", Subscribe(f"s{id}", all_filter))
    network.scheduler.run(2.0)
    for _ in range(5):
        for id in overlay.ids:
            network.publish(f"p{id}", event)
    network.scheduler.run(5.0)
    assert network.unsettled() == 0
    assert len(network.deliveries) == 5 * 20 * 20


@pytest.mark.parametrize("protocol", ["filter-general", "destination", "merc"])
@pytest.mark.parametrize("brokers", [5, 6, 9])
def test_windows_that_are_full_all_round_a_circle_empty(protocol, brokers):
    """All publish far more than a window at once for the farthest broker: every link is full of what needs the next."""
    ids, window, each = [f"B{number}" for number in range(brokers)], 8, 100
    ring = Overlay(ids, zip(ids, [*ids[1:], ids[0]], strict=True))
    network = SimulatedNetwork(ring, PROTOCOLS[protocol].make, config=BrokerConfig(SessionConfig(window=window)))
    for number, id in enumerate(ids):
        network.add_client(f"p{id}", id)
        network.say(f"p{id}", Advertise(f"a{id}", parse_filter(f"[from,eq,{number}],[x,isPresent,0]")))
    network.scheduler.run(1.0)
    for number, id in enumerate(ids):
        network.add_client(f"s{id}", id)
        network.say(f"s{id}", Subscribe(f"s{id}", parse_filter(f"[from,eq,{(number + brokers // 2) % brokers}]")))
    network.scheduler.run(2.0)
    for number, id in enumerate(ids):
        network.publish(f"p{id}", *[parse_publication(f"[from,{number}],[x,{x}]") for x in range(each // 2)])
        for x in range(each // 2, each):
            network.publish(f"p{id}", parse_publication(f"[from,{number}],[x,{x}]"))
    while network.unsettled() and network.scheduler.now_s < 60.0:
        network.scheduler.run(network.scheduler.now_s + 0.01)
        for id in ids:
            network.broker(id).validate()
    assert network.unsettled() == 0
    assert sum(network.deliveries.values()) == len(network.deliveries) == brokers * each


def test_brokers_that_start_together_tell_of_their_links_about_once():
    overlay = make_overlay("random-graph", brokers=30, degree=6, seed=1)
    network = SimulatedNetwork(overlay, PROTOCOLS["destination"].make)
    network.scheduler.run(2.0)
    assert network.frames < 2 * len(overlay) * 2 * len(overlay.links)


def test_a_link_that_is_not_tried_delays_word_of_the_others_for_a_heartbeat_only():
    network = SimulatedNetwork(
        make_overlay("chain", brokers=3), PROTOCOLS["destination"].make, config=BrokerConfig(heartbeat_s=0.1)
    )
    network.crash("B3")
    network.scheduler.run(0.05)
    assert set(network.broker("B1").topology.members) == set()
    network.scheduler.run(0.25)  # long before B2 gives the link to B3 up
    assert set(network.broker("B1").topology.members) == {"B2"}


@pytest.mark.parametrize("how", ["one by one", "batch", "word"])
def test_a_publisher_never_has_more_on_its_way_than_can_be_told_from_duplicates(how):
    """A link fails and later rows come first, by another way; then comes the first window, of which nothing may count as seen."""
    window, first, count = 8, 7, 207
    overlay = Overlay(
        [f"B{number}" for number in range(5)], [("B0", "B1"), ("B1", "B4"), ("B0", "B2"), ("B2", "B3"), ("B3", "B4")]
    )
    config = BrokerConfig(SessionConfig(window=window, retransmit_s=0.2), heartbeat_s=0.1, link_timeout_s=0.35)
    network = SimulatedNetwork(overlay, PROTOCOLS["destination"].make, config=config)
    network.add_client("p", "B0")
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.scheduler.run(0.5)
    network.crash("B4", 0.05)  # so that its pulse has another phase than that of B1
    network.scheduler.run(2)
    network.add_client("s", "B4")
    network.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
    network.scheduler.run(3)
    network.cut_link(("B1", "B4"))
    events = [parse_publication(f"[x,{number}]") for number in range(count)]
    for event in events[:first]:
        network.publish("p", event)
    while network.broker("B0").topology.distances["B4"] == 2:
        network.scheduler.run(network.scheduler.now_s + 0.0001)
    if how == "batch":
        network.publish("p", *events[first:])
    else:
        for event in events[first:]:
            network.publish("p", event)
    if how == "word":
        network.say("p", Advertise("a2", parse_filter("[y,>=,0]")))
    network.scheduler.run(30)
    assert dict(network.deliveries) == {("p", number, "s"): 1 for number in range(count)}
    assert network.unsettled() == 0
