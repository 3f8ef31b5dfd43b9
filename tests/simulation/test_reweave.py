"""Plans on simulated networks under faults, with crashes of brokers and of the coordinator in every phase."""

import msgspec
import numpy as np
import pytest

from overweave.broker import epoch_tables
from overweave.broker.client import migration
from overweave.broker.modules.collector import Collector
from overweave.contract.observation import COLLECTOR
from overweave.contract.overlay_state import Phase
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.reweave import coordinator
from overweave.reweave.coordinator import Done
from overweave.reweave.target import Target
from overweave.routing import PROTOCOLS
from overweave.testing.reweave import FAULTS, GRAPHS, run_seed
from overweave.testing.reweave.executor import SimulatedApply
from overweave.testing.reweave.tables import differences, entries


@pytest.mark.parametrize("faults", FAULTS)
def test_a_plan_is_applied_and_nothing_is_lost_or_duplicated(faults):
    seed = list(FAULTS).index(faults)
    outcome = run_seed(seed, ["filter", "covering-peer"][seed % 2], faults)
    assert outcome.failures == []
    assert outcome.moved
    assert outcome.crashes >= 3 * (faults not in ("none", "cuts"))


@pytest.mark.parametrize("protocol", GRAPHS)
@pytest.mark.parametrize(("seed", "faults"), [(1, "none"), (3, "cuts")])  # a broker joins in the first of them
def test_a_protocol_that_routes_around_failures(protocol, seed, faults):
    outcome = run_seed(seed, protocol, faults)
    assert outcome.failures == []
    assert outcome.came > 3


def lost(faults, seeds=8):
    """The publications lost in the first seed that loses any."""
    failures = (run_seed(seed, "filter", faults).failures for seed in range(seeds))
    return next((each for each in ([f for f in found if "lost" in f] for found in failures) if each), [])


def test_an_epoch_that_closes_before_it_is_quiet_loses_publications(monkeypatch):
    monkeypatch.setattr(coordinator, "unsettled_reason", lambda *_: None)
    monkeypatch.setattr(epoch_tables.EpochTables, "unsettled", lambda *_: 0)
    assert lost("cuts")


def is_caught_up_at_once(current):
    """Without a barrier; a client that does not advertise does not even wait for its new subscriptions, as the drain does."""
    if not current.source.of_kind(Advertise):
        current.order = msgspec.structs.replace(current.order, publishing=False)
    return current.target.session.established


def test_a_subscription_that_is_withdrawn_before_the_barrier_loses_publications(monkeypatch):
    monkeypatch.setattr(migration, "is_caught_up", is_caught_up_at_once)
    assert lost("none")


class Change:
    """The chain B1, B2, B3 with a publisher at B1 and a subscriber at B3 becomes another network."""

    def __init__(self, brokers, links):
        make = PROTOCOLS["filter"].make
        self.network = SimulatedNetwork(
            make_overlay("chain", brokers=3),
            make,
            costs=Costs(link_delay_s=0.01),
            make_modules=lambda at: {COLLECTOR: Collector(at)},
        )
        self.network.add_client("p", "B1")
        self.network.add_client("s", "B3")
        self.network.say("p", Advertise("p/a", parse_filter("[x,>=,0]")))
        self.network.say("s", Subscribe("s/1", parse_filter("[x,>=,0]")))
        self.network.run_until_quiescent()
        target = Target(change="c", brokers=brokers, links=links, before=("B1", "B2", "B3"), clients={})
        self.phases = {}
        self._apply = SimulatedApply(self.network, target, np.random.default_rng(1), on_published=self._published)
        self._count = 0

    def _published(self, state):
        self.phases[state.version.phase] = self.network.scheduler.now_s

    def run(self, meanwhile=lambda *_: None, traffic_s=0.0):
        """Run it under traffic; the publications that are lost, and the most that were under way."""
        scheduler, late = self.network.scheduler, 0
        start_s = scheduler.now_s
        while scheduler.now_s < start_s + 10 or (self._apply.ended is None and scheduler.now_s < start_s + 60):
            self._apply.tick()
            meanwhile(self.network, scheduler.now_s - start_s)
            if scheduler.now_s > start_s + traffic_s:
                self.network.publish("p", Publication({"x": 1}))
                self._count += 1
            scheduler.run(scheduler.now_s + 0.005)
            late = max(late, self._count - len(self.network.deliveries))
        scheduler.run(scheduler.now_s + 10.0)
        assert isinstance(self._apply.ended, Done)
        return self._count - len(self.network.deliveries), late


@pytest.mark.parametrize("is_disabled", [False, True])
def test_an_epoch_that_is_used_before_all_brokers_are_synchronised_stops_deliveries(is_disabled, monkeypatch):
    """Brokers hold back what travels in an epoch that they do not know yet: nothing is lost, but nothing arrives either."""
    if is_disabled:
        monkeypatch.setattr(coordinator, "unsynced", lambda *_: [])
    change = Change(("B1", "B2", "B3"), (("B1", "B2"), ("B1", "B3")))

    def cut_the_new_link(network, now_s):
        if now_s < 3.0:
            network.cut_link(("B1", "B3"), 3.0)

    lost, late = change.run(cut_the_new_link)
    assert lost == 0
    assert late > 400 if is_disabled else late < 40
    assert (change.phases[Phase.USED] > change.phases[Phase.PREPARED] + 2.0) == (not is_disabled)


@pytest.mark.parametrize("is_disabled", [False, True])
def test_a_broker_that_leaves_with_a_client_that_is_away_loses_publications(is_disabled, monkeypatch):
    if is_disabled:
        monkeypatch.setattr(coordinator, "occupied", lambda *_: None)
    change = Change(("B1", "B2"), (("B1", "B2"),))
    change.network.cut_link(("s", "B3"), 6.0)
    lost, _ = change.run(traffic_s=3.0)
    assert bool(lost) == is_disabled


def fresh(subscriptions, protocol):
    """A chain of brokers with a publisher at B1 and some subscriptions, each of a client of its own."""
    network = SimulatedNetwork(make_overlay("chain", brokers=3), PROTOCOLS[protocol].make)
    network.add_client("p", "B1")
    network.say("p", Advertise("p/a", parse_filter("[x,>=,0]")))
    network.run_until_quiescent()
    for name, broker, filter in subscriptions:
        network.add_client(name, broker)
        network.say(name, Subscribe(f"{name}/1", parse_filter(filter)))
        network.run_until_quiescent()
    return network


WIDE, NARROW, OTHER = "[x,>,1]", "[x,>,5]", "[x,<,3]"


@pytest.mark.parametrize("protocol", ["filter", "simple", "covering-peer", "identity-advertised", "destination", "merc"])
def test_tables_with_as_many_entries_are_not_equal(protocol):
    one = fresh([("r", "B3", OTHER), ("s", "B3", NARROW)], protocol)
    assert not list(differences(one, fresh([("s", "B3", NARROW), ("r", "B3", OTHER)], protocol), protocol))
    for others in ([("r", "B3", WIDE), ("s", "B3", NARROW)], [("r", "B3", OTHER), ("s", "B1", NARROW)], [("r", "B3", OTHER)]):
        found = {text.split(":")[0] for text in differences(one, fresh(others, protocol), protocol)}
        assert found, others


@pytest.mark.parametrize("protocol", ["filter", "covering-peer"])
def test_tables_do_not_depend_on_whether_the_wider_filter_came_first(protocol):
    one, other = (
        fresh(order, protocol) for order in ([("r", "B3", NARROW), ("s", "B3", WIDE)], [("s", "B3", WIDE), ("r", "B3", NARROW)])
    )
    assert not list(differences(one, other, protocol))
    told = [filter for peer, kind, _, filter in entries(one.broker("B1"), protocol) if (peer, kind) == ("B2", "subscription")]
    assert told == [parse_filter(WIDE)]
