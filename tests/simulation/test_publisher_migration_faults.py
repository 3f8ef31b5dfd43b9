"""A publisher moves while brokers on its path crash: from when the next generation is settled, every publication arrives once."""

from collections import Counter

import numpy as np
import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.generations import at_generation
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.paths import path_between
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.routing.base import Engine
from overweave.routing.filter import FilterBased

OVERLAYS = {
    "chain": make_overlay("chain", brokers=5),
    "random-tree": make_overlay("random-tree", brokers=9, degree_max=4, seed=3),
}
FILTER = parse_filter("[class,eq,'C'],[x,isPresent,0]")
QUIET = Faults()
LOSSY = Faults(loss=0.1, duplication=0.1, reordering=0.1, until_s=1e9)


class Moves:
    """One publisher that moves between brokers, as a client of its own at each; a subscriber at each broker."""

    def __init__(self, overlay, make, seed, faults):
        self.overlay, self.random = overlay, np.random.default_rng(seed)
        config = BrokerConfig(SessionConfig(retransmit_s=0.3 if faults.lose_frames else None), heartbeat_s=0.5)
        costs = Costs(link_delay_s=0.02 + 0.03 * self.random.random())
        self.network = SimulatedNetwork(overlay, make, seed, faults, costs, config=config)
        self.generation, self.broker, self.sequence, self.expected = 0, self.any_broker(), 0, Counter()
        self.subscriptions = {}
        for id in overlay.ids:
            self.network.add_client(f"s {id}", id)
            self.subscriptions[f"s {id}"] = parse_filter(f"[class,eq,'C'],[x,>=,{self.random.integers(5)}]")
            self.network.say(f"s {id}", Subscribe(f"s {id}", self.subscriptions[f"s {id}"]))
        self.attach()

    @property
    def client(self):
        return f"p {self.generation}"

    def any_broker(self):
        return self.overlay.ids[int(self.random.integers(len(self.overlay)))]

    def attach(self):
        """Advertise the present generation, and publish as soon as it is settled."""
        self.network.add_client(self.client, self.broker)
        self.network.say(self.client, Advertise(at_generation("p/a", self.generation), FILTER))

    def settle(self, *clients):
        end_s = self.network.scheduler.now_s + 300
        while any(self.network.client(client).unsettled() for client in clients):
            assert self.network.scheduler.now_s < end_s, f"{clients} have not settled"
            self.network.scheduler.run(self.network.scheduler.now_s + 0.01)

    def publish(self):
        for sequence in range(3):
            publication = parse_publication(f"[class,'C'],[x,{self.random.integers(6)}]")
            self.network.publish(self.client, publication)
            for id, filter in self.subscriptions.items():
                if matches(filter, publication):
                    self.expected[self.client, sequence, id] = 1

    def move(self, crashes):
        """Drain, then move to another broker, while brokers between crash at random moments."""
        self.settle(self.client)
        old, withdrawn = self.broker, self.client
        while self.broker == old:
            self.broker = self.any_broker()
        gone = Unadvertise(at_generation("p/a", self.generation))
        self.generation += 1
        between = path_between(self.overlay, old, self.broker)
        self.attach()
        for _ in range(crashes):
            self.run(0.2 * self.random.random())
            broker = between[int(self.random.integers(len(between)))]
            if broker in self.network.running():
                self.network.crash(broker, for_s=0.1 + 0.5 * self.random.random())
        self.settle_move()
        self.publish()
        self.network.say(withdrawn, gone)
        if crashes and self.random.random() < 0.3 and between[0] in self.network.running():
            self.network.crash(between[0], for_s=0.3)
        self.settle(withdrawn, self.client)
        self.network.remove_client(withdrawn)

    def settle_move(self):
        """The MCM: without this wait publications are lost."""
        self.settle(self.client)

    def run(self, for_s):
        self.network.scheduler.run(self.network.scheduler.now_s + for_s)

    def end(self):
        """Have all clients leave."""
        self.network.say(self.client, Unadvertise(at_generation("p/a", self.generation)))
        for id in self.subscriptions:
            self.network.say(id, Unsubscribe(id))
        self.network.run_until_quiescent()
        self.run(30.0)
        for id in self.overlay.ids:
            broker = self.network.broker(id)
            broker.validate()
            assert not any(broker.statistics().tables.values()), f"{id} has {broker.statistics().tables}"
            assert not self.network.journal(id)


def check(overlay, seed, crashes, faults=QUIET, make=PROTOCOLS["filter"].make, moves=4):
    script = Moves(overlay, make, seed, faults)
    script.settle(*script.subscriptions, script.client)
    script.publish()
    for _ in range(moves):
        script.move(crashes)
    assert script.network.deliveries == script.expected, f"seed {seed}"
    script.end()


@pytest.mark.parametrize("shape", OVERLAYS)
@pytest.mark.parametrize(("crashes", "faults"), [(0, QUIET), (0, LOSSY), (1, QUIET), (3, QUIET), (2, LOSSY)])
def test_publications_arrive_from_when_the_move_is_settled(shape, crashes, faults):
    for seed in range(8):
        check(OVERLAYS[shape], seed, crashes, faults)


class IgnoresGenerations(FilterBased):
    """Takes a later generation for a known advertisement."""

    def _advertise(self, message, peer):
        known = [entry for entry in self._advertisements.values() if entry.id != message.id]
        return [] if known else super()._advertise(message, peer)


def test_a_broken_protocol_is_caught():
    with pytest.raises(AssertionError):
        for seed in range(20):
            check(OVERLAYS["random-tree"], seed, 0, make=lambda *_: Engine(IgnoresGenerations()))


def test_publications_before_the_move_is_settled_are_lost(monkeypatch):
    monkeypatch.setattr(Moves, "settle_move", lambda _: None)
    with pytest.raises(AssertionError, match="seed"):
        for seed in range(20):
            check(OVERLAYS["random-tree"], seed, 0)
