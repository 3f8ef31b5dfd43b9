"""After the last fault, within `BOUND_S`, deliveries equal the oracle, whichever brokers of cycles restarted meanwhile."""

from collections import Counter

import numpy as np
import pytest

from overweave.drivers.sim.costs import Costs
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
#: Faults that never strike, but for which frames are sent again and neighbours heard.
WATCHFUL = Faults(crash_every_s=1e9, until_s=1e9)


def ring(brokers):
    ids = [f"B{number}" for number in range(brokers)]
    return Overlay(ids, list(zip(ids, [*ids[1:], ids[0]], strict=True)))


class World:
    """Some publishers and subscribers on an overlay, and the oracle that knows who wants what."""

    def __init__(self, protocol, overlay, seed=1, faults=WATCHFUL, costs=None):
        self.overlay = overlay
        self.random = np.random.default_rng(seed)
        self.network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, seed, faults, costs)
        self.advertised, self.wanted, self._published = {}, {}, Counter()

    def populate(self, publishers=2, subscribers=4):
        for number in range(publishers):
            self.advertise(f"p{number}", self.any(), number)
        for number in range(subscribers):
            text = f"[class,eq,'C{self.random.integers(publishers)}'],[x,>=,{self.random.integers(3)}]"
            self.subscribe(f"s{number}", self.any(), text)

    def advertise(self, id, broker, number):
        self.advertised[id] = number
        self.network.add_client(id, broker)
        self.network.say(id, Advertise(f"a{id}", parse_filter(f"[class,eq,'C{number}'],[x,isPresent,0]")))

    def subscribe(self, id, broker, text):
        self.wanted[id] = parse_filter(text)
        self.network.add_client(id, broker)
        self.network.say(id, Subscribe(id, self.wanted[id]))

    def withdraw(self, id):
        del self.advertised[id]
        self.network.say(id, Unadvertise(f"a{id}"))

    def advertise_again(self, id, number):
        self.advertised[id] = number
        self.network.say(id, Advertise(f"a{id}", parse_filter(f"[class,eq,'C{number}'],[x,isPresent,0]")))

    def leave(self):
        """All clients go, and with them all that brokers remember."""
        for id in [*self.advertised, *self.wanted]:
            self.network.remove_client(id)
        self.go_on(BOUND_S)
        left = {id: self.network.broker(id).statistics().tables for id in self.overlay.ids}
        assert not any(any(tables.values()) for tables in left.values()), left

    def go_on(self, for_s):
        self.network.scheduler.run(self.network.scheduler.now_s + for_s)

    def crash(self, broker, for_s):
        if broker in self.network.running():
            self.network.crash(broker, for_s)

    def heal(self):
        """Wait until all is up, and then as long as it may take until all is in force."""
        while not self.network.all_connected():
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
        self.network.run_until_quiescent()
        self.go_on(1.0)
        got = Counter({key: count for key, count in self.network.deliveries.items() if key in expected})
        assert got == expected, f"missing {expected - got}, too many {got - expected}"
        for id in self.overlay.ids:
            self.network.broker(id).validate()

    def check_trees(self):
        """The trees of `filter-general`: each broker has a path, and all that intersects is known all the way."""
        routings = {id: self.network.broker(id).routing for id in self.overlay.ids}
        for id, number in self.advertised.items():
            trees = {at: routing._trees[f"a{id}"] for at, routing in routings.items()}
            for at, tree in trees.items():
                assert tree.client == (id if at == self.network.client(id).broker else None)
                assert tree.client or trees[tree.parent].route.path == tree.route.path[:-1]
                assert not tree.leaving
                for child, other in trees.items():
                    told = dict(other.offers.forwarded()) if other.parent == at else {}
                    assert dict(tree.table.of(child)) == told, f"{child} at {at}"
            for subscription, filter in self.wanted.items():
                if f"[class,eq,'C{number}']" in str(filter):
                    at = self.network.client(subscription).broker
                    assert trees[at].client or subscription in trees[at].offers

    def any(self):
        """A broker."""
        return self.overlay.ids[int(self.random.integers(len(self.overlay)))]


def restart_in_quick_succession(world):
    """Several brokers are down at once, one comes back while another goes; links break meanwhile, and some publications pass."""
    random = world.random
    for _ in range(int(random.integers(2, 8))):
        if random.random() < 0.75:
            world.crash(world.any(), float(random.uniform(0.05, 3.0)))
        else:
            link = sorted(world.network.links)[int(random.integers(len(world.network.links)))]
            world.network.cut_link(link, float(random.uniform(0.05, 3.0)))
        if random.random() < 0.3:
            world.publish()
        world.go_on(float(random.uniform(0.0, 0.7)))


def overlay_of(seed):
    random = np.random.default_rng((seed, 1))
    brokers = int(random.integers(4, 8))
    if seed % 2:
        return ring(brokers)
    return make_overlay("random-graph", brokers=brokers, degree=4 if brokers % 2 else 3, seed=seed)


def run(protocol, seed):
    faults = Faults(loss=0.1 if seed % 3 == 0 else 0.0, crash_every_s=1e9, until_s=20.0)
    world = World(protocol, overlay_of(seed), seed, faults)
    world.populate()
    world.go_on(8.0)
    restart_in_quick_succession(world)
    if seed % 4 == 0:  # somebody withdraws an advertisement, and makes it again, in the midst of it
        world.withdraw("p0")
        restart_in_quick_succession(world)
        world.advertise_again("p0", 1)
        restart_in_quick_succession(world)
    world.heal()
    world.check()
    if protocol == "filter-general":
        world.check_trees()
    if seed % 5 == 0:
        restart_in_quick_succession(world)
        world.heal()
    world.leave()


@pytest.mark.parametrize(("protocol", "seeds"), [("filter-general", 100), ("destination", 20), ("merc", 20)])
def test_deliveries_equal_the_oracle_after_the_last_fault(protocol, seeds):
    for seed in (*range(seeds), 552):
        run(protocol, seed)


def test_an_advertisement_that_brokers_forget_on_one_path_comes_back_on_another():
    """Once this was a black hole: B2 and B1 took what B3 had forgotten for withdrawn, for good."""
    world = World("filter-general", ring(5))
    world.go_on(5.0)
    world.crash("B1", 5.0)  # so that B2 hears of it by B4 and B3
    world.advertise("p", "B0", 0)
    for at in ("B1", "B2"):
        world.subscribe(f"s{at}", at, "[class,eq,'C0']")
    world.go_on(3.0)
    world.crash("B0", 12.0)
    world.go_on(5.0)  # B1 is back, and knows it from B2
    world.crash("B4", 1.0)
    world.crash("B3", 1.5)
    world.heal()
    world.check()
    world.check_trees()


def test_an_id_may_be_advertised_again_with_another_filter():
    world = World("filter-general", ring(4))
    world.advertise("p", "B0", 0)
    world.subscribe("s", "B2", "[x,>=,0]")
    world.go_on(5.0)
    world.check()
    world.withdraw("p")
    world.advertise_again("p", 1)
    world.go_on(5.0)
    world.check()
    world.check_trees()


def test_a_former_parent_is_told_until_the_new_path_is_in_force():
    """B2 moves from the long way round to the short one when B1 comes; publications that are on the long way still arrive."""
    world = World("filter-general", ring(5), costs=Costs(link_delay_s=0.05))
    world.go_on(5.0)
    world.crash("B1", 5.0)
    world.advertise("p", "B0", 0)
    world.subscribe("s", "B2", "[x,>=,0]")
    world.go_on(4.5)
    assert world.network.broker("B2").routing._trees["ap"].parent == "B3"
    expected = Counter()
    for _ in range(200):
        expected += world.publish()
        world.go_on(0.02)
    world.heal()
    assert world.network.broker("B2").routing._trees["ap"].parent == "B1"
    world.network.run_until_quiescent()
    assert world.network.deliveries == expected
    world.check_trees()
