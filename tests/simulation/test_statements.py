"""What brokers tell each other under routing by destination: what was withdrawn, said anew or overtaken on another way leaves no
trace, and takes nothing away that stands."""

import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

SLOW = Costs(link_delay_s=0.01)
ANY = parse_filter("[x,>=,0]")
BOTH = pytest.mark.parametrize("protocol", ["destination", "merc"])


def made(protocol, overlay, costs=None, **times):
    config = BrokerConfig(SessionConfig(retransmit_s=0.2), heartbeat_s=0.1, **times)
    return SimulatedNetwork(overlay, PROTOCOLS[protocol].make, config=config, costs=costs or Costs())


def sizes(network, table):
    return {id: network.broker(id).statistics().tables[table] for id in network.running()}


def publish(network, count):
    for x in range(count):
        network.publish("p", parse_publication(f"[x,{x}]"))
    network.scheduler.run(network.scheduler.now_s + 10)
    assert network.unsettled() == 0
    return {number for _, number, _ in network.deliveries}


@BOTH
def test_an_answer_to_an_advertisement_that_is_another_one_by_now_takes_nothing_away(protocol):
    network = made(protocol, make_overlay("chain", brokers=2), SLOW)
    network.add_client("p", "B1")
    network.say("p", Advertise("a", ANY))
    network.scheduler.run(2)
    network.add_client("s", "B2")
    network.say("s", Subscribe("s", ANY))
    network.scheduler.run(4)
    network.say("p", Advertise("b", parse_filter("[y,>=,0]")))
    network.scheduler.run(4.015)  # it is answered when there is another one
    network.say("p", Unadvertise("b"))
    network.say("p", Advertise("b", parse_filter("[x,>=,5]")))
    network.scheduler.run(4.03)
    network.say("p", Unadvertise("b"))
    network.scheduler.run(10)
    assert publish(network, 5) == set(range(5))


@BOTH
def test_an_advertisement_that_was_withdrawn_before_it_came_is_not_taken(protocol):
    """B is away; what A tells it waits at M, and A withdraws it when it has noticed. B comes back and is told by N first."""
    network = made(
        protocol,
        Overlay(["A", "M", "N", "B"], [("A", "M"), ("M", "B"), ("A", "N"), ("N", "B")]),
        link_timeout_s=0.35,
        undeliverable_timeout_s=20,
    )
    network.add_client("p", "A")
    network.scheduler.run(2)
    network.crash("B")
    network.scheduler.run(2.1)
    network.say("p", Advertise("a", ANY))
    network.scheduler.run(2.2)
    network.cut_link(("A", "M"), 3.0)
    network.scheduler.run(4.0)
    network.say("p", Unadvertise("a"))
    network.scheduler.run(4.5)
    network.restart("B")
    network.cut_link(("B", "M"), 0.5)
    network.scheduler.run(40)
    assert not any(sizes(network, "advertisements").values())


@pytest.mark.parametrize("protocol", ["filter", "destination", "merc"])
def test_what_a_client_says_anew_while_its_broker_is_down_holds(protocol):
    network = made(protocol, make_overlay("chain", brokers=2))
    network.add_client("p", "B1")
    network.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    network.scheduler.run(1)
    network.add_client("s", "B2")
    network.say("s", Subscribe("s", parse_filter("[x,<,5]")))
    network.scheduler.run(2)
    network.crash("B2", 0.5)
    network.say("s", Unsubscribe("s"))
    network.say("s", Subscribe("s", parse_filter("[x,>=,5]")))
    network.scheduler.run(10)
    assert publish(network, 10) == {5, 6, 7, 8, 9}


@BOTH
@pytest.mark.parametrize("after_ms", range(0, 30, 3))
def test_a_publication_goes_by_the_advertisement_that_stood_when_it_was_published(protocol, after_ms):
    """It is held while B3 restarts, and its advertisement is withdrawn meanwhile."""
    network = made(protocol, make_overlay("chain", brokers=3), link_timeout_s=2.0)
    network.add_client("p", "B1")
    network.say("p", Advertise("a", ANY))
    network.scheduler.run(1)
    network.add_client("s", "B2")
    network.say("s", Subscribe("s", ANY))
    network.scheduler.run(2)
    network.crash("B3", 0.1)
    network.scheduler.run(2.1 + after_ms / 1000)
    network.publish("p", parse_publication("[x,1]"))
    network.say("p", Unadvertise("a"))
    network.scheduler.run(20)
    assert network.deliveries == {("p", 0, "s"): 1}
    assert network.unsettled() == 0


def test_a_subscription_whose_way_changes_is_withdrawn_from_those_whom_it_does_not_concern_any_more():
    """E2 and F join Y and Z. When s goes, E3 hears it of E2 first, and F still stands for it by way of Y."""
    clusters = {"W": "X", "E1": "XY", "E3": "XZ", "E2": "YZ", "F": "YZ", "Q": "Y", "R": "Z"}
    brokers = [Broker(id, cluster=names[0], other_clusters=tuple(names[1:])) for id, names in clusters.items()]
    links = [("W", "E1"), ("W", "E3"), ("E1", "Q"), ("Q", "E2"), ("Q", "F"), ("R", "E2"), ("R", "F"), ("R", "E3")]
    network = made("merc", Overlay(brokers, links), SLOW)
    for client, broker in (("p", "Q"), ("w", "W"), ("f", "F")):
        network.add_client(client, broker)
        network.say(client, Advertise(f"a {client}", ANY))
    network.scheduler.run(3)
    network.add_client("s", "E2")
    network.say("s", Subscribe("s", ANY))
    network.scheduler.run(6)
    network.say("s", Unsubscribe("s"))
    network.scheduler.run(20)
    assert not any(sizes(network, "remote subscriptions").values())
