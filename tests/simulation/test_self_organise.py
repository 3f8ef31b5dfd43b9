"""The self-organising overlay: ways get shorter, no broker gets too many links, and the overlay never falls apart."""

from collections import Counter

import numpy as np
import pytest

from overweave.broker.modules.self_organise import SelfOrganise, SelfOrganiseOptions
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.modules import Delivered
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.errors import InvalidInput
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

EVERY_S = 10.0
CONFIG = BrokerConfig(SessionConfig(retransmit_s=0.2), heartbeat_s=0.2, link_timeout_s=0.7)


class Watched(SimulatedNetwork):
    """Checks the overlay whenever a link comes or goes."""

    changes = 0

    def open_link(self, ends, kind):
        super().open_link(ends, kind)
        self.check()

    def close_link(self, ends):
        super().close_link(ends)
        self.check()

    def check(self):
        self.changes += 1
        assert Overlay(self.overlay.ids, sorted(self.links)).is_connected()


def run(overlay, options, periods, seed=1, talks=3):
    """Each broker's client talks to those of a few others, as it goes."""
    network = Watched(
        overlay,
        PROTOCOLS["destination"].make,
        seed,
        config=CONFIG,
        make_modules=lambda at: {"organise": SelfOrganise(at.broker, options)},
    )
    random, expected = np.random.default_rng(seed), Counter()
    partners = {id: [overlay.ids[int(i)] for i in random.choice(len(overlay), talks)] for id in overlay.ids}
    for id in overlay.ids:
        network.add_client(f"c{id}", id)
        network.say(f"c{id}", Advertise(f"a{id}", parse_filter("[class,eq,'X'],[to,isPresent,'']")))
        network.say(f"c{id}", Subscribe(f"s{id}", parse_filter(f"[class,eq,'X'],[to,eq,'{id}']")))
    network.scheduler.run(2.0)
    hops, sent = [], Counter()
    for _ in range(periods):
        hops.append(mean_distance(network, partners))
        for _ in range(10):
            for id, others in partners.items():
                for other in others:
                    network.publish(f"c{id}", parse_publication(f"[class,'X'],[to,'{other}']"))
                    expected[f"c{id}", sent[id], f"s{other}"] += 1
                    sent[id] += 1
            network.scheduler.run(network.scheduler.now_s + EVERY_S / 10)
    network.scheduler.run(network.scheduler.now_s + 5.0)
    assert network.deliveries == expected
    assert network.unsettled() == 0
    return network, hops


def mean_distance(network, partners):
    distances = {id: network.broker(id).topology.distances for id in network.running()}
    return np.mean([distances[id][other] for id, others in partners.items() for other in others if other != id])


def degrees(network):
    return Counter(end for ends in network.links for end in ends)


@pytest.mark.parametrize("seed", range(3))
def test_ways_get_shorter_and_nothing_is_lost(seed):
    overlay = make_overlay("random-graph", brokers=16, degree=3, seed=seed + 1)
    most = max(Counter(end for link in overlay.links for end in link.ends).values())
    network, hops = run(overlay, SelfOrganiseOptions(EVERY_S, degree_max=most), periods=6, seed=seed)
    assert hops[-1] < 0.8 * hops[0]
    assert max(degrees(network).values()) <= most
    assert network.changes > 2


def test_it_comes_to_rest():
    overlay = make_overlay("random-graph", brokers=10, degree=3, seed=4)
    network, _ = run(overlay, SelfOrganiseOptions(EVERY_S, degree_max=4), periods=12, talks=2)
    before = network.changes
    network.scheduler.run(network.scheduler.now_s + 3 * EVERY_S)
    assert network.changes == before


def test_no_more_changes_than_allowed():
    overlay = make_overlay("random-graph", brokers=16, degree=3, seed=2)
    network, _ = run(overlay, SelfOrganiseOptions(EVERY_S, degree_max=8, changes_max=1), periods=3)
    assert network.changes <= 2 * 4


@pytest.mark.parametrize(
    ("options", "text"), [({"every_s": 0}, "every_s"), ({"degree_max": 1}, "degree_max"), ({"margin": -1}, "margin")]
)
def test_options_are_checked(options, text):
    with pytest.raises(InvalidInput, match=text):
        SelfOrganiseOptions(**options)


def test_an_overlay_changes_while_a_broker_has_more_to_do_than_it_can():
    """The proposal and its answer pass the queue of B2, which is longer than a change may take."""
    rate_hz = 20
    network = Watched(
        make_overlay("chain", brokers=3),
        PROTOCOLS["destination"].make,
        config=BrokerConfig(SessionConfig(window=1 << 16)),
        own_costs={"B2": Costs(matching_delay_base_s=1.5 / rate_hz)},
        make_modules=lambda at: {"organise": SelfOrganise(at.broker, SelfOrganiseOptions(every_s=20.0))},
    )
    network.add_client("p", "B1")
    network.add_client("s", "B3")
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
    network.scheduler.run(2.0)
    for number in range(60 * rate_hz):
        network.publish("p", parse_publication(f"[x,{number}]"))
        network.scheduler.run(network.scheduler.now_s + 1 / rate_hz)
    assert network.links == {("B1", "B2"), ("B2", "B3"), ("B1", "B3")}
    network.run_until_quiescent()
    assert network.deliveries == {("p", number, "s"): 1 for number in range(60 * rate_hz)}


def test_a_broker_that_restarts_is_heard_again():
    """Its modules must not number what they say as in its last life."""
    heard = []

    class Listening(SelfOrganise):
        def handle(self, stimulus, now_s):
            if isinstance(stimulus, Delivered) and stimulus.publish.publication["sender"] == "B2":
                heard.append((now_s, self._broker))
            return super().handle(stimulus, now_s)

    network = SimulatedNetwork(
        make_overlay("chain", brokers=3),
        PROTOCOLS["destination"].make,
        config=CONFIG,
        make_modules=lambda at: {"organise": Listening(at.broker, SelfOrganiseOptions(every_s=1.0))},
    )
    network.scheduler.run(20.5)
    network.crash("B2", 0.1)
    network.scheduler.run(32)
    assert len([1 for now_s, at in heard if now_s < 20 and at != "B2"]) > 30
    assert len([1 for now_s, at in heard if now_s > 21 and at != "B2"]) > 15
