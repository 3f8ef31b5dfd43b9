"""The overlay of a running network changes: random trees for random trees, under traffic and faults, against brute force."""

import itertools
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from overweave.broker.epoch_tables import EpochTables
from overweave.broker.registry import OVERLAY_KEY
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Effect, Parts
from overweave.contract.frames import OverlayUpdate
from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayStatus, OverlayVersion, Phase
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.headers import OverlayEpoch
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.reweave.states import trimmed
from overweave.routing import PROTOCOLS
from overweave.routing.ingress import ByEpoch

FAULTS = {
    "none": Faults(),
    "lossy": Faults(loss=0.05, duplication=0.05, reordering=0.05, until_s=20.0),
    "cuts": Faults(cut_every_s=1.0, until_s=20.0),
    "crashes": Faults(crash_every_s=2.0, until_s=20.0),
    "all": Faults(loss=0.03, duplication=0.03, reordering=0.03, cut_every_s=3.0, crash_every_s=3.0, until_s=20.0),
}
HIERARCHICAL = ["hierarchical-simple", "identity", "covering"]


def state_of(number: int, phase: Phase, trees: dict[int, Overlay], current: int) -> OverlayState:
    """A state of the overlay with some trees."""
    ids = tuple(dict.fromkeys(id for tree in trees.values() for id in tree.ids))
    shown = tuple(
        EpochTree(OverlayEpoch(epoch), tree.ids, tuple(link.ends for link in tree.links)) for epoch, tree in trees.items()
    )
    members = tuple(Member(id, number=n) for n, id in enumerate(ids))
    return OverlayState(OverlayVersion(number, phase), members, shown, OverlayEpoch(current), "test")


def _pairs(tree: Overlay) -> tuple[tuple[str, str], ...]:
    return tuple(link.ends for link in tree.links)


class Script:
    """A network with two publishers and six subscribers, whose overlay is changed step by step."""

    def __init__(self, seed: int, protocol: str, faults: str, brokers: int = 7, tree: Overlay | None = None) -> None:
        self.random = np.random.default_rng((seed, 3))
        self.protocol, self.everyone = protocol, list[str]()
        self.tree = tree or make_overlay("random-tree", brokers=brokers, degree_max=3, seed=seed)
        self.received: Counter[tuple[str, int, str]] = Counter()
        lossy = FAULTS[faults].lose_frames
        config = BrokerConfig(SessionConfig(window=64, retransmit_s=0.3 if lossy else None), heartbeat_s=0.5 if lossy else None)
        self.network = SimulatedNetwork(
            self.tree, PROTOCOLS[protocol].make, seed, FAULTS[faults], Costs(link_delay_s=0.01), config, on_delivery=self._count
        )
        self.filters = {}
        self.published = []
        ids = self.tree.ids
        for number in range(2):
            self.network.add_client(f"p{number}", str(self.random.choice(ids)))
            self.network.say(f"p{number}", Advertise(f"p{number}/a", parse_filter("[x,>=,0]")))
        for number in range(6):
            low = 12 * number + int(self.random.integers(12))  # no filter covers another: tables do not depend on their order
            self.network.add_client(f"s{number}", str(self.random.choice(ids)))
            self.filters[f"s{number}/0"] = parse_filter(f"[x,>=,{low}],[x,<=,{low + 30}]")
            self.network.say(f"s{number}", Subscribe(f"s{number}/0", self.filters[f"s{number}/0"]))
        self.network.run_until_quiescent()

    def _count(self, parts: Parts) -> None:
        for subscription, batch in parts:
            for publisher, _, sequence in batch.identities():
                self.received[publisher, sequence, subscription] += 1

    def traffic(self, for_s: float, publishers: tuple[str, ...] = ("p0", "p1")) -> None:
        """Publish for some time."""
        network = self.network
        end_s = network.scheduler.now_s + for_s
        while network.scheduler.now_s < end_s:
            for publisher in publishers:
                if network.client(publisher).unsettled_rows() < 100:
                    content = Publication({"x": int(self.random.integers(100))})
                    self.published.append((publisher, network.client(publisher).next_sequence, content))
                    network.publish(publisher, content)
            network.scheduler.run(network.scheduler.now_s + 0.02)

    def until(self, condition: Callable[[], bool], within_s: float = 300.0) -> None:
        """Publish until a condition holds."""
        end_s = self.network.scheduler.now_s + within_s
        while not condition():
            assert self.network.scheduler.now_s < end_s, {
                id: self.network.broker(id).overlay_status() for id in self.network.running()
            }
            self.traffic(0.2)

    def publish_state(self, state: OverlayState) -> None:
        """Have some running broker publish a state."""
        self.until(lambda: bool(self.network.running()))
        self.network.change_overlay(
            str(self.random.choice([id for id in self.network.running() if id in state.tree(state.current).brokers])), state
        )

    def change(self, number: int, target: Overlay) -> None:
        """Exchange the overlay."""
        before = self.prepare(number, target)
        self.use(number, before, target)
        self.wait_until_quiet(number, before)
        self.close(number, target)

    def prepare(self, number: int, target: Overlay) -> OverlayEpoch:
        """Open an epoch, and wait until all its members are synchronised; the epoch before."""
        before = self.network.broker(self.running_member()).overlay_state().current
        self.publish_state(state_of(number, Phase.PREPARED, {before: self.tree, number: target}, before))
        self.everyone = sorted({*self.tree.ids, *target.ids})
        self.until(lambda: self.all(number, Phase.PREPARED, lambda each, status: each not in target or number in status.synced))
        return before

    def use(self, number: int, before: OverlayEpoch, target: Overlay) -> None:
        """Route new publications in the new epoch."""
        self.publish_state(state_of(number, Phase.USED, {before: self.tree, number: target}, number))
        self.until(lambda: self.all(number, Phase.USED))

    def wait_until_quiet(self, number: int, epoch: OverlayEpoch) -> None:
        """Wait until nothing of the old epoch is unsettled, twice in a row."""
        for _ in range(2):
            self.until(lambda: self.all(number, Phase.USED, lambda _, status: not status.unsettled[epoch]))
            self.traffic(0.2)

    def close(self, number: int, target: Overlay) -> None:
        """Close the old epoch."""
        self.publish_state(state_of(number, Phase.CLOSED, {number: target}, number))
        self.everyone = sorted(target.ids)
        self.until(lambda: self.all(number, Phase.CLOSED, lambda _, status: list(status.unsettled) == [number]))
        self.tree = target

    def running_member(self) -> str:
        """A broker of the present tree that runs."""
        self.until(lambda: bool(self.network.running()))
        return next(id for id in self.network.running() if id in self.tree)

    def all(self, number: int, phase: Phase, condition: Callable[[str, OverlayStatus], bool] = lambda *_: True) -> bool:
        """Whether all brokers run, have a version, and fulfil a condition."""
        if not set(self.everyone) <= set(self.network.running()):
            return False
        statuses = {id: self.network.broker(id).overlay_status() for id in self.everyone}
        version = OverlayVersion(number, phase)
        return all(status.version == version and condition(id, status) for id, status in statuses.items())

    def check(self) -> None:
        """Nothing is lost or duplicated, and tables are those of a freshly built network."""
        self.network.run_until_quiescent()
        self.check_deliveries()
        for id in self.network.running():
            self.network.broker(id).validate()
        assert self.tables() == self.fresh_tables()

    def check_deliveries(self) -> None:
        """Every subscription has received all that it matches, once."""
        for publisher, sequence, content in self.published:
            for id, filter in self.filters.items():
                count = self.received.pop((publisher, sequence, id), 0)
                assert count == matches(filter, content), (publisher, sequence, id, count)
        assert not self.received

    def due(self, subscription: str) -> int:
        """The number of publications so far that a subscription matches."""
        return sum(matches(self.filters[subscription], content) for _, _, content in self.published)

    def tables(self) -> dict[str, dict[str, int]]:
        """The sizes of all tables."""
        return {id: self.network.broker(id).statistics().tables for id in self.network.running() if id in self.tree}

    def fresh_tables(self) -> dict[str, dict[str, int]]:
        """Those of a network that was built with the present tree."""
        fresh = SimulatedNetwork(self.tree, PROTOCOLS[self.protocol].make)
        for client in self.network.clients():
            (broker,) = self.network._table.clients[client]
            fresh.add_client(client, broker)
            if client.startswith("p"):
                fresh.say(client, Advertise(f"{client}/a", parse_filter("[x,>=,0]")))
        fresh.run_until_quiescent()
        for id, filter in self.filters.items():
            fresh.say(id.split("/")[0], Subscribe(id, filter))
        fresh.run_until_quiescent()
        return {id: fresh.broker(id).statistics().tables for id in fresh.running()}


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("protocol", ["filter", "simple", "covering-peer", "hierarchical-simple"])
def test_a_random_tree_replaces_another_under_traffic(protocol: str, faults: str) -> None:
    for seed in range(2):
        script = Script(seed, protocol, faults)
        script.traffic(2.0)
        for number in (1, 2):
            target = make_overlay("random-tree", brokers=7, degree_max=3, seed=100 * number + seed)
            script.change(number, target)
        script.traffic(1.0)
        script.check()


def test_an_epoch_that_closes_before_it_is_quiet_loses_publications(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check of deliveries fails without "a link closes only when its epoch is quiet"."""
    monkeypatch.setattr(Script, "wait_until_quiet", lambda *_: None)
    monkeypatch.setattr(EpochTables, "unsettled", lambda *_: 0)
    with pytest.raises(AssertionError):
        for seed in range(8):
            _replace(Script(seed, "filter", "cuts"), seed)


def test_copies_in_two_epochs_do_not_drop_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher repeats what its crashed broker has not settled: one copy may travel in each epoch."""
    monkeypatch.setattr(ByEpoch, "_update_scopes", _one_scope)
    with pytest.raises(AssertionError):
        for seed in range(25):
            _replace(Script(seed, "simple", "all"), seed)


def _one_scope(ingress: ByEpoch) -> None:
    ingress._scopes = dict.fromkeys(ingress._plane.epochs, ingress._local)


def _replace(script: Script, seed: int) -> None:
    script.traffic(2.0)
    for number in (1, 2):
        script.change(number, make_overlay("random-tree", brokers=7, degree_max=3, seed=100 * number + seed))
    script.check()


def test_a_broker_without_a_journal_rejoins_the_present_overlay() -> None:
    """It starts with the links of the network file, which its neighbours have no longer."""
    script = Script(3, "filter", "none")
    target = make_overlay("random-tree", brokers=7, degree_max=3, seed=103)
    script.change(1, target)
    network = script.network
    for broker in target.ids:
        network.crash(broker)
        network._journals._durable.pop(broker, None)
        network.restart(broker)
        for client in network._table.clients_of(broker):
            network.client(client).renew_epoch(broker)
            network.cut_link((client, broker), 0.1)
        network.scheduler.run(network.scheduler.now_s + 3.0)
        state = network.broker(broker).overlay_state()
        assert state.version == OverlayVersion(1, Phase.CLOSED), broker
        assert set(network.broker(broker).neighbour_kinds()) == set(target.neighbours(broker))
    assert {frozenset(ends) for ends in network.links} == {frozenset(link.ends) for link in target.links}
    script.published.clear()
    script.received.clear()
    script.traffic(1.0)
    script.check()


@pytest.mark.parametrize("protocol", ["filter", "simple", "covering-peer", *HIERARCHICAL])
def test_a_guest_of_a_network_that_has_never_changed_publishes_and_receives(protocol: str) -> None:
    """Its first tables are those of a broker alone; the epoch of the network has the same number."""
    script = Script(4, protocol, "none")
    network = script.network
    network.join_broker("B9", "B3")
    _add_guests(script)
    script.traffic(1.0, ("p0", "p1", "p9"))
    for broker in ("B9", "B3"):
        network.crash(broker, 0.5)
        script.traffic(1.0, ("p0", "p1", "p9"))
    network.run_until_quiescent()
    script.check_deliveries()
    assert len({key for key in script.published if key[0] == "p9"}) > 50


def _add_guests(script: Script) -> None:
    """A subscriber and a publisher at the guest."""
    network = script.network
    network.add_client("s9", "B9")
    network.add_client("p9", "B9")
    script.filters["s9/0"] = parse_filter("[x,>=,90]")
    network.say("s9", Subscribe("s9/0", script.filters["s9/0"]))
    network.say("p9", Advertise("p9/a", parse_filter("[x,>=,0]")))
    network.run_until_quiescent()


@pytest.mark.parametrize("protocol", ["filter", *HIERARCHICAL])
@pytest.mark.parametrize("star", [False, True])
def test_the_first_broker_leaves_and_others_restart_with_the_old_network_file(protocol: str, star: bool) -> None:
    """No new epoch is opened, because the tree is the same. The broker that the first one was linked to is the new root."""
    ids = ("B1", "B2", "B3", "B4")
    tree = Overlay(ids, [("B3", id) for id in ids if id != "B3"] if star else list(itertools.pairwise(ids)))
    script = Script(8, protocol, "none", tree=tree)
    network = script.network
    assert not any("B1" in network._table.clients[client] for client in network.clients())
    before = state_of(1, Phase.CLOSED, {0: tree}, 0)
    script.publish_state(before)
    script.until(lambda: all(network.broker(id).overlay_state() == before for id in ids))
    after = trimmed(before, ["B1"])
    script.tree = Overlay(after.trees[0].brokers, after.trees[0].links)
    script.publish_state(after)
    script.until(lambda: all(network.broker(id).overlay_state() == after for id in ids[1:]))
    network.run_until_quiescent()
    network.stop_broker("B1")
    for broker in ids[1:]:
        script.traffic(1.0)
        network.crash(broker, 0.5)
    script.traffic(1.0)
    script.check()


@pytest.mark.parametrize("protocol", ["filter", "simple", "hierarchical-simple"])
def test_a_broker_joins_becomes_a_member_and_leaves(protocol: str) -> None:
    script = Script(4, protocol, "none")
    network = script.network
    network.join_broker("B9", "B3")
    network.add_client("s9", "B9")
    script.filters["s9/0"] = parse_filter("[x,>=,90]")
    network.say("s9", Subscribe("s9/0", script.filters["s9/0"]))
    network.run_until_quiescent()
    script.traffic(1.0)
    network.run_until_quiescent()
    assert sum(key[2] == "s9/0" for key in script.received) == script.due("s9/0") > 0
    network.crash("B3", 0.5)
    script.traffic(2.0)
    member = Overlay([*script.tree.ids, "B9"], [*(link.ends for link in script.tree.links), ("B9", "B1")])
    script.change(1, member)
    assert set(network.broker("B9").neighbour_kinds()) == {"B1"}
    script.traffic(1.0)
    network.run_until_quiescent()
    network.remove_client("s9")
    last = {id: script.filters.pop(id) for id in ["s9/0"]}
    without = Overlay(script.tree.ids[:7], [link.ends for link in script.tree.links if "B9" not in link.ends])
    script.publish_state(state_of(1, Phase.TRIMMED, {1: without}, 1))
    script.everyone, script.tree = list(without.ids), without
    script.until(lambda: script.all(1, Phase.TRIMMED))
    network.stop_broker("B9")
    script.traffic(1.0)
    network.run_until_quiescent()
    got = {key for key in script.received if key[2] == "s9/0"}
    due = {(publisher, sequence, "s9/0") for publisher, sequence, content in script.published if matches(last["s9/0"], content)}
    assert got <= due
    assert len(got) > 20
    for key in got:
        assert script.received.pop(key) == 1
    script.check()


def test_a_change_is_taken_back() -> None:
    """The new epoch is closed instead of the old one, before and after it was used."""
    script = Script(5, "filter", "crashes")
    target = make_overlay("random-tree", brokers=7, degree_max=3, seed=205)
    before = script.prepare(1, target)
    script.use(1, before, target)
    script.publish_state(state_of(1, Phase.REVERTING, {before: script.tree, 1: target}, before))
    script.until(lambda: script.all(1, Phase.REVERTING))
    for _ in range(2):
        script.until(lambda: script.all(1, Phase.REVERTING, lambda _, status: not status.unsettled[OverlayEpoch(1)]))
        script.traffic(0.2)
    script.publish_state(state_of(1, Phase.REVERTED, {before: script.tree}, before))
    script.until(lambda: script.all(1, Phase.REVERTED))
    script.traffic(1.0)
    script.check()


@pytest.mark.parametrize("protocol", ["destination", "merc"])
def test_protocols_that_route_around_failures_open_wait_and_close(protocol: str) -> None:
    script = Script(6, protocol, "none")
    target = make_overlay("random-tree", brokers=7, degree_max=3, seed=306)
    script.traffic(3.0)
    script.change(1, target)
    script.traffic(2.0)
    network = script.network
    network.run_until_quiescent()
    network.scheduler.run(network.scheduler.now_s + 30.0)
    assert {frozenset(ends) for ends in network.links} == {frozenset(link.ends) for link in target.links}
    for publisher, sequence, content in script.published:
        for id, filter in script.filters.items():
            assert script.received.pop((publisher, sequence, id), 0) == matches(filter, content), (publisher, sequence, id)
    assert not script.received


@pytest.mark.parametrize("protocol", ["destination", "filter"])
def test_a_link_that_is_wanted_again_while_it_is_retired_is_opened_again(protocol: str) -> None:
    """A change is aborted and begun again, while the new links drain."""
    script = Script(6, protocol, "none")
    network, old = script.network, script.tree
    new = make_overlay("random-tree", brokers=7, degree_max=3, seed=306)
    before, target = ({frozenset(link.ends) for link in tree.links} for tree in (old, new))
    script.publish_state(state_of(1, Phase.PREPARED, {0: old, 1: new}, 0))
    script.traffic(3.0)
    assert {frozenset(ends) for ends in network.links} == before | target
    script.publish_state(state_of(1, Phase.REVERTED, {0: old}, 0))

    def retiring() -> bool:
        return any(len(network.broker(id)._parts.retirement.links) for id in old.ids)

    while not retiring():
        network.scheduler.run(network.scheduler.now_s + 0.001)
    script.publish_state(state_of(2, Phase.PREPARED, {0: old, 2: new}, 0))
    script.traffic(1.0)
    network.run_until_quiescent()
    network.scheduler.run(network.scheduler.now_s + 10.0)
    assert not retiring()
    assert {frozenset(ends) for ends in network.links} == before | target
    assert all(set(status.synced) == {0, 2} for status in (network.broker(id).overlay_status() for id in old.ids))
    script.traffic(1.0)
    network.run_until_quiescent()
    script.check_deliveries()


def test_a_client_cannot_change_the_overlay() -> None:
    script = Script(7, "filter", "none")
    network, state = script.network, state_of(1, Phase.CLOSED, {1: Overlay(["B1"])}, 1)
    client = network.nodes["s0"]
    (broker,) = network._table.clients["s0"]
    attachment = network.client("s0")._attachments.at(broker)
    assert attachment is not None
    effects: list[Effect] = []
    attachment.session.send_control(OverlayUpdate(state), effects)
    client.run(effects)
    network.scheduler.run(network.scheduler.now_s + 1.0)
    assert network.broker(broker).overlay_state().version.epoch == 0
    assert any(reject.peer == "s0" and reject.code == "bad-frame" for reject in network.refusals)


@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_a_guest_that_does_not_return_is_removed_so_that_nothing_waits_for_it(protocol: str) -> None:
    script = Script(4, protocol, "none")
    network = script.network
    network.join_broker("B9", "B3")
    network.run_until_quiescent()
    assert "B9" in network.broker("B3").neighbour_kinds()
    network.stop_broker("B9")
    network.crash("B3", 0.5)
    network.scheduler.run(network.scheduler.now_s + 20.0)
    assert "B9" in network.broker("B3").neighbour_kinds(), "it may return"
    network.scheduler.run(network.scheduler.now_s + 20.0)
    assert "B9" not in network.broker("B3").neighbour_kinds()
    assert OVERLAY_KEY not in network.broker("B3").journal()
    script.traffic(1.0)
    network.run_until_quiescent()
    script.check_deliveries()
