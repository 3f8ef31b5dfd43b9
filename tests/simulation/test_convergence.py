"""After the last fault, within `BOUND_S`, deliveries equal the oracle: brokers of cycles restart in quick succession, links are cut."""

from collections import Counter

import numpy as np
import pytest

from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unadvertise
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

#: So long after all brokers run and all connections are open everything is in force.
BOUND_S = 10.0
PROTOCOLS_OF_CYCLES = ("filter-general", "destination", "merc")


def ring(brokers):
    ids = [f"B{number}" for number in range(brokers)]
    return Overlay(ids, list(zip(ids, [*ids[1:], ids[0]], strict=True)))


class World:
    """Some publishers and subscribers on an overlay, and the oracle that knows who wants what."""

    def __init__(self, protocol, overlay, seed, faults=None):
        self.overlay = overlay
        self.random = np.random.default_rng(seed)
        self.network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, seed, faults or Faults(crash_every_s=1.0, until_s=1e-9))
        self.advertised, self.wanted, self._published = {}, {}, Counter()

    def populate(self, publishers=2, subscribers=4):
        for number in range(publishers):
            self.advertise(f"p{number}", self._any(), number)
        for number in range(subscribers):
            text = f"[class,eq,'C{self.random.integers(publishers)}'],[x,>=,{self.random.integers(3)}]"
            self.subscribe(f"s{number}", self._any(), text)

    def advertise(self, id, broker, number):
        self.advertised[id] = number
        self.network.add_client(id, broker)
        self.network.say(id, Advertise(f"a{id}", parse_filter(f"[class,eq,'C{number}'],[x,isPresent,0]")))

    def subscribe(self, id, broker, text):
        self.wanted[id] = parse_filter(text)
        self.network.add_client(id, broker)
        self.network.say(id, Subscribe(id, self.wanted[id]))

    def go_on(self, for_s):
        self.network.kernel.run(self.network.kernel.now_s + for_s)

    def crash(self, broker, for_s):
        if broker in self.network.running():
            self.network.crash(broker, for_s)

    def heal(self):
        """Wait until all is up, and then as long as it may take until all is in force."""
        while not self.network.is_whole():
            self.go_on(0.1)
        self.go_on(BOUND_S)

    def publish(self):
        """Publish through every advertisement; who should get it is returned."""
        expected = Counter()
        for id, number in self.advertised.items():
            for x in range(3):
                publication = parse_publication(f"[class,'C{number}'],[x,{x}]")
                for subscription, filter in self.wanted.items():
                    if matches(filter, publication):
                        expected[id, self._published[id], subscription] += 1
                self.network.publish(id, publication)
                self._published[id] += 1
        return expected

    def check(self):
        """Whether deliveries equal the oracle."""
        self.network.deliveries.clear()
        expected = self.publish()
        self.network.settle()
        self.go_on(1.0)
        got = Counter({key: count for key, count in self.network.deliveries.items() if key in expected})
        assert got == expected, f"missing {expected - got}, too many {got - expected}"
        for id in self.overlay.ids:
            self.network.broker(id).validate()

    def _any(self):
        return self.overlay.ids[int(self.random.integers(len(self.overlay)))]


def restart_in_quick_succession(world):
    """Several brokers are down at once, one comes back while another goes; links break meanwhile, and some publications pass."""
    random = world.random
    for _ in range(int(random.integers(2, 8))):
        if random.random() < 0.75:
            world.crash(world._any(), float(random.uniform(0.05, 3.0)))
        else:
            link = list(world.network.links)[int(random.integers(len(world.network.links)))]
            world.network.cut(link, float(random.uniform(0.05, 3.0)))
        if random.random() < 0.3:
            world.publish()
        world.go_on(float(random.uniform(0.0, 0.7)))


def run(protocol, seed):
    random = np.random.default_rng((seed, 1))
    brokers = int(random.integers(4, 8))
    overlay = ring(brokers) if seed % 2 else make_overlay("random-graph", brokers=brokers, degree=3 if brokers % 2 == 0 else 4, seed=seed)
    faults = Faults(loss=0.1 if seed % 3 == 0 else 0.0, crash_every_s=1e9, until_s=20.0)
    world = World(protocol, overlay, seed, faults)
    world.populate()
    world.go_on(8.0)
    restart_in_quick_succession(world)
    world.heal()
    world.check()
    return world


@pytest.mark.parametrize("protocol", ["filter-general"])
def test_deliveries_equal_the_oracle_after_the_last_fault(protocol):
    for seed in range(80):
        run(protocol, seed)
