"""Two coordinators at once, on one simulated network under traffic: the network ends in one state, and nothing is lost."""

from collections import Counter

import msgspec
import numpy as np
import pytest

from overweave.broker.modules.collector import Collector
from overweave.contract.config import BrokerConfig
from overweave.contract.observation import CHANGE, COLLECTOR
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.reweave import states
from overweave.reweave.coordinator import Done, next_abort_step, next_step
from overweave.reweave.target import Target
from overweave.routing import PROTOCOLS
from overweave.testing.reweave.executor import SimulatedApply


class Race:
    """A random tree of seven brokers with two publishers and four subscribers, and several coordinators."""

    def __init__(self, seed, protocol="filter"):
        self.random, self.received = np.random.default_rng(seed), Counter()
        self.old = make_overlay("random-tree", brokers=7, degree_max=3, seed=seed)
        beat_s = 0.5 if PROTOCOLS[protocol].reroutes else None
        self.network = SimulatedNetwork(
            self.old, PROTOCOLS[protocol].make, seed, costs=Costs(link_delay_s=0.05), config=BrokerConfig(heartbeat_s=beat_s),
            make_modules=lambda at: {COLLECTOR: Collector(at)}, on_delivery=self._count,
        )  # fmt: skip
        for name in ("p0", "p1", "s0", "s1", "s2", "s3"):
            self.network.add_client(name, str(self.random.choice(self.old.ids)))
            about = parse_filter("[x,>=,0]")
            self.network.say(name, Advertise(f"{name}/a", about) if name[0] == "p" else Subscribe(f"{name}/0", about))
        self.network.run_until_quiescent()
        self.published, self.begun = [], []

    def _count(self, parts):
        for subscription, batch in parts:
            for publisher, _, sequence in batch.identities():
                self.received[publisher, sequence, subscription] += 1

    def target(self, change):
        tree = make_overlay("random-tree", brokers=7, degree_max=3, seed=int(self.random.integers(1 << 30)))
        links = tuple(sorted(link.ends for link in tree.links))
        return Target(change=change, brokers=tree.ids, links=links, clients={"s0": "B1", "p0": "B2"}, before=self.old.ids)

    def run(self, targets, step=next_step, within_s=120.0):
        """Execute all targets at once, each by a coordinator of its own; how each has ended."""
        network, end_s = self.network, self.network.scheduler.now_s + within_s
        changes = [
            SimulatedApply(network, target, np.random.default_rng((seed, 5)), on_published=self.begun.append, step=step)
            for seed, target in enumerate(targets)
        ]
        while any(change.ended is None for change in changes):
            assert network.scheduler.now_s < end_s, [change.ended or change.last_reason for change in changes]
            for change in changes:
                change.tick()
            self.publish()
            network.scheduler.run(network.scheduler.now_s + 0.02)
        return [change.ended for change in changes]

    def publish(self):
        for publisher in ("p0", "p1"):
            self.published.append((publisher, self.network.client(publisher).next_sequence))
            self.network.publish(publisher, Publication({"x": len(self.published)}))

    def check(self):
        """All brokers have one state; each publication arrived everywhere once."""
        self.network.run_until_quiescent()
        found = [self.network.broker(id).overlay_state() for id in self.network.running()]
        assert all(state == found[0] for state in found)
        for id in self.network.running():
            self.network.broker(id).validate()
        expected = {(publisher, at, f"s{n}/0"): 1 for publisher, at in self.published for n in range(4)}
        assert self.received == expected
        return found[0]

    def split(self, targets):
        """Two coordinators publish the first state of their changes at the same moment, at different brokers."""
        network, brokers = self.network, self.random.permutation(self.old.ids)
        for broker, target in zip(brokers, targets, strict=False):
            state = states.prepared(network.broker(broker).overlay_state(), target, {})
            network.ask(broker, COLLECTOR, CHANGE, msgspec.msgpack.encode(state))
        network.scheduler.run(network.scheduler.now_s + 2.0)
        found = {network.broker(id).overlay_state().change for id in network.running()}
        assert found == {target.change for target in targets}, "each is at some brokers"
        for id in network.running():
            network.broker(id).validate()


@pytest.mark.parametrize("is_split", [False, True])
@pytest.mark.parametrize("protocol", ["filter", "simple", "destination"])
def test_of_two_changes_at_once_one_wins_and_nothing_is_lost(protocol, is_split):
    for seed in range(5):
        race = Race(seed, protocol)
        targets = [race.target("X"), race.target("Y")]
        if is_split:
            race.split(targets)
        ended = race.run(targets)
        state = race.check()
        done = [target for target, each in zip(targets, ended, strict=True) if isinstance(each, Done)]
        assert done, ended
        assert states.has_tree_of(state, done[-1])
        for each in ended:
            assert isinstance(each, Done) or "at the same time" in each.reason or "in progress" in each.reason


def test_one_plan_by_two_coordinators_is_one_change():
    for seed in range(5):
        race = Race(seed)
        target = race.target("X")
        assert [type(each) for each in race.run([target, target])] == [Done, Done]
        assert states.has_tree_of(race.check(), target)
        assert {each.version.epoch for each in race.begun} == {1}


def test_changes_that_began_at_once_are_aborted():
    for seed in range(5):
        race = Race(seed)
        race.split([race.target("X"), race.target("Y")])
        (ended,) = race.run([race.target("any")], lambda _, found: next_abort_step(found))
        assert isinstance(ended, Done)
        assert states.links_of(states.current_tree(race.check())) == {link.ends for link in race.old.links}
