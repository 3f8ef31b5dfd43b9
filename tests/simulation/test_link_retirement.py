"""A link that is retired under traffic: it drains, closes, and nothing is lost, doubled or redirected."""

import pytest

from overweave.broker.forwarder import Forwarder
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import RetireLink, SetTimer
from overweave.contract.modules import Started
from overweave.contract.stimuli import TimerFired
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

RING = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3"), ("B1", "B3")])
ANY = parse_filter("[x,>=,0]")
RETIRE_S, MESSAGES = 1.0, 200


class Retirer:
    """A module that retires one link."""

    watches = ()

    def __init__(self, broker):
        self._broker = broker

    def handle(self, stimulus, now_s):
        if isinstance(stimulus, Started) and self._broker == "B1":
            yield SetTimer("retire", RETIRE_S)
        elif isinstance(stimulus, TimerFired):
            yield RetireLink("B3")


def network(protocol, link_delay_s=0.02):
    made = SimulatedNetwork(
        RING,
        PROTOCOLS[protocol].make,
        costs=Costs(link_delay_s=link_delay_s),
        config=BrokerConfig(SessionConfig(), heartbeat_s=0.1, link_timeout_s=2.0, undeliverable_timeout_s=5.0),
        make_modules=lambda at: {"retirer": Retirer(at.broker)},
    )
    for client, broker in (("p", "B1"), ("s", "B3"), ("q", "B3"), ("t", "B1")):
        made.add_client(client, broker)
    for client in "pq":
        made.say(client, Advertise(f"a{client}", ANY))
    for client in "st":
        made.say(client, Subscribe(f"s{client}", ANY))
    made.scheduler.run(0.5)
    return made


def traffic(made):
    """Publications in both directions over the link, before, while and after it is retired."""
    for number in range(MESSAGES):
        made.publish("p", parse_publication(f"[x,{number}]"))
        made.publish("q", parse_publication(f"[x,{number}]"))
        made.scheduler.run(made.scheduler.now_s + 0.005)
    made.scheduler.run(made.scheduler.now_s + 3.0)


def test_a_link_that_is_retired_under_traffic_drains(monkeypatch):
    made, rerouted = network("destination"), []
    reroute = Forwarder._reroute
    monkeypatch.setattr(Forwarder, "_reroute", lambda self, *rest: (rerouted.append(rest), reroute(self, *rest)))
    assert ("B1", "B3") in made.links
    traffic(made)
    assert ("B1", "B3") not in made.links
    assert set(made.deliveries.values()) == {1}
    assert len(made.deliveries) == 4 * MESSAGES
    assert rerouted == []
    assert made.unsettled() == 0
    assert "B3" not in made.broker("B1").topology.up()


def test_a_link_whose_other_end_is_silent_closes_in_the_end():
    made = network("destination")
    made.pause("B3", 20.0)
    made.scheduler.run(RETIRE_S + 4.9)
    assert ("B1", "B3") in made.links
    made.scheduler.run(RETIRE_S + 5.5)
    assert ("B1", "B3") not in made.links


@pytest.mark.parametrize("protocol", ["filter-general", "merc"])
def test_other_protocols_retire_links_too(protocol):
    made = network(protocol)
    made.scheduler.run(RETIRE_S + 3.0)
    assert ("B1", "B3") not in made.links
    for client in "pq":
        made.publish(client, parse_publication("[x,1]"))
    made.scheduler.run(made.scheduler.now_s + 3.0)
    assert set(made.deliveries.values()) == {1}
    assert len(made.deliveries) == 4
    for broker in RING.ids:
        made.broker(broker).validate()
