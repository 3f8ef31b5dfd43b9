"""A publisher fails over while its broker, or a connection, has delivered some of its publications to some brokers only."""

from collections import Counter

import numpy as np
import pytest

from overweave.batches.objects import Rows
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Parts
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

FILTER = parse_filter("[x,>=,0]")
ROUTED_BY_DESTINATION = ("destination", "merc")


class Failovers:
    """A publisher that fails over now and then, and a subscriber at each broker that is to have one."""

    def __init__(
        self, protocol: str, overlay: Overlay, subscribers: list[str], seed: int = 1, faults: Faults | None = None
    ) -> None:
        self.random = np.random.default_rng((seed, 5))
        self.received: Counter[tuple[str, int, str]] = Counter()
        self.published, self.home = 0, overlay.ids[0]
        lossy = protocol in ROUTED_BY_DESTINATION
        config = BrokerConfig(SessionConfig(window=64), heartbeat_s=0.5 if lossy else None)
        make, costs = PROTOCOLS[protocol].make, Costs(link_delay_s=0.01)
        self.network = SimulatedNetwork(overlay, make, seed, faults, costs, config, on_delivery=self._count)
        self.run(5.0)
        self.network.add_client("p", self.home)
        self.network.say("p", Advertise("p/a", FILTER))
        self.subscriptions = []
        for broker in subscribers:
            self.network.add_client(f"s{broker}", broker)
            self.network.say(f"s{broker}", Subscribe(f"s{broker}/0", FILTER))
            self.subscriptions.append(f"s{broker}/0")
        self.run(5.0)

    def run(self, for_s: float) -> None:
        self.network.scheduler.run(self.network.scheduler.now_s + for_s)

    def publish(self, for_s: float = 0.0) -> None:
        """Publish one, or for some time."""
        end_s = self.network.scheduler.now_s + for_s
        while True:
            if self.network.client("p").unsettled_rows() < 100:
                self.network.publish("p", Publication({"x": self.published}))
                self.published += 1
            self.run(0.02)
            if self.network.scheduler.now_s >= end_s:
                return

    def fail_over(self, to: str) -> None:
        """The publisher leaves its broker for another one."""
        self.network.fail_over("p", self.home, to)
        self.home = to

    def settle(self) -> None:
        """Everything settled has arrived once at each subscriber."""
        self.network.run_until_quiescent()
        self.run(10.0)
        assert not self.network.client("p").unsettled_rows()
        due = {("p", number, id) for number in range(self.published) for id in self.subscriptions}
        assert (due - self.received.keys(), {each for each, count in self.received.items() if count > 1}) == (set(), set())
        for id in self.network.running():
            self.network.broker(id).validate()
        self.network.client("p").validate()

    def _count(self, parts: Parts) -> None:
        for subscription, batch in parts:
            for publisher, _, sequence in batch.identities():
                self.received[publisher, sequence, subscription] += 1


BRANCHES, TRIANGLE = [("A", "B"), ("A", "D")], [("A", "B"), ("A", "D"), ("B", "D")]


def half_delivered(protocol: str, links: list[tuple[str, str]]) -> Failovers:
    """B has a publication and D has not when their publisher's broker crashes."""
    run = Failovers(protocol, Overlay(["A", "B", "D"], links), ["B", "D"])
    run.publish()
    run.run(2.0)
    run.network.cut_link(("A", "D"))  # as if the frame were still in a buffer of A
    run.publish()
    run.run(0.2)
    assert (run.received["p", 1, "sB/0"], run.received["p", 1, "sD/0"]) == (1, 0)
    run.network.crash("A")
    run.run(6.0)
    run.fail_over("B")
    run.run(1.0)
    if protocol not in ROUTED_BY_DESTINATION:
        run.network.restart("A")  # else advertisements are never in force again
    return run


@pytest.mark.parametrize("protocol", ["filter", "simple", "flooding", "covering-peer", "filter-general"])
def test_brokers_that_have_a_publication_pass_it_on_when_it_is_sent_again(protocol):
    half_delivered(protocol, TRIANGLE if protocol == "filter-general" else BRANCHES).settle()


@pytest.mark.parametrize("protocol", ROUTED_BY_DESTINATION)
def test_a_broker_that_was_a_destination_sends_it_to_the_others(protocol):
    run = half_delivered(protocol, TRIANGLE)
    run.run(30.0)
    assert not run.network.client("p").unsettled_rows()
    assert [run.received["p", 1, id] for id in run.subscriptions] == [1, 1]


def test_a_copy_that_the_old_broker_still_has_is_not_delivered_again():
    """The publisher has lost its connection; its broker has not failed, and is without one of its own for some time."""
    run = Failovers("filter", Overlay(["A", "B", "D"], BRANCHES), ["B", "D"])
    run.network.cut_link(("A", "D"))
    run.publish()
    run.network._table.disconnect(("p", "A"))
    run.fail_over("B")
    run.run(10.0)
    run.network._table.connect(("A", "D"))
    run.settle()
    assert run.received["p", 0, "sD/0"] == 1


def random_run(protocol: str, seed: int) -> Failovers:
    """Brokers fail one after the other, each while the publisher is there, and links are cut."""
    overlay = make_overlay("random-tree", brokers=5, degree_max=3, seed=seed)
    run = Failovers(protocol, overlay, list(overlay.ids), seed, Faults(cut_every_s=1.0, until_s=30.0))
    for _ in range(4):
        run.publish(float(run.random.uniform(0.3, 2.0)))
        if run.home in run.network.running() and run.random.random() < 0.7:
            run.network.crash(run.home, for_s=float(run.random.uniform(1.0, 6.0)))
        else:
            run.network._table.disconnect(("p", run.home))
        run.publish(float(run.random.uniform(0.1, 3.0)))
        run.fail_over(str(run.random.choice([id for id in overlay.ids if id != run.home])))
    run.publish(2.0)
    return run


@pytest.mark.parametrize("protocol", ["filter", "simple", "covering-peer", "hierarchical-simple"])
def test_everything_settled_arrives_once_whenever_brokers_fail(protocol):
    for seed in range(8):
        run = random_run(protocol, seed)
        run.settle()
        assert run.published > 100


def test_publications_that_are_sent_again_as_they_were_are_lost(monkeypatch):
    """The same runs, without another generation."""
    monkeypatch.setattr(Rows, "next_generation", lambda rows: rows)
    with pytest.raises(AssertionError, match="sD/0"):
        half_delivered("filter", BRANCHES).settle()
    with pytest.raises(AssertionError, match="'p'"):
        for seed in range(8):
            random_run("filter", seed).settle()
