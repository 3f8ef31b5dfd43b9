"""An epoch closes only when the publishers of a restarted broker have sent again what they had in flight, and that is settled.

One half of the network has a publication, from the epoch that is to close. Its copy travels in the other epoch.
"""

import pytest

from overweave.broker.backlogs import BACKLOG_S, Backlogs
from overweave.contract.config import SESSION_EXPIRY_S, BrokerConfig, SessionConfig
from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayStatus, OverlayVersion, Phase
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.headers import OverlayEpoch
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

BROKERS = ["A", "B", "D"]
#: A publication from A to D passes B in one of them.
STAR, CHAIN = Overlay(BROKERS, [("A", "B"), ("A", "D")]), Overlay(BROKERS, [("A", "B"), ("B", "D")])
FILTER = parse_filter("[x,>=,0]")


class Change:
    """A network with a publisher at A and a subscriber at each other broker; its overlay changes from ``old`` to ``new``."""

    def __init__(self, protocol: str, old: Overlay, new: Overlay) -> None:
        config = BrokerConfig(SessionConfig(window=64))
        self.network = SimulatedNetwork(old, PROTOCOLS[protocol].make, costs=Costs(link_delay_s=0.01), config=config)
        self.trees = {0: old, 1: new}
        self.network.add_client("p", "A")
        self.network.say("p", Advertise("p/a", FILTER))
        for client, broker in (("b", "B"), ("d", "D")):
            self.network.add_client(client, broker)
            self.network.say(client, Subscribe(f"{client}/0", FILTER))
        self.run(1.0)

    def run(self, for_s: float) -> None:
        self.network.scheduler.run(self.network.scheduler.now_s + for_s)

    def adopt(self, phase: Phase, epochs: tuple[int, ...], current: int) -> None:
        """Have all brokers adopt a state."""
        pairs = {epoch: tuple(link.ends for link in self.trees[epoch].links) for epoch in epochs}
        trees = tuple(EpochTree(OverlayEpoch(epoch), tuple(BROKERS), pairs[epoch]) for epoch in epochs)
        members = tuple(Member(id, number=number) for number, id in enumerate(BROKERS))
        version = OverlayVersion(1, phase)
        self.network.change_overlay("B", OverlayState(version, members, trees, OverlayEpoch(current), "test"))
        self.run(1.0)
        assert all(status.version == version for status in self.statuses())

    def statuses(self) -> list[OverlayStatus]:
        return [self.network.broker(id).overlay_status() for id in BROKERS]

    def is_quiet(self, epoch: int) -> bool:
        """Whether a coordinator may close an epoch: two observations in a row saw nothing unsettled."""
        for _ in range(2):
            if any(status.unsettled[OverlayEpoch(epoch)] for status in self.statuses()):
                return False
            self.run(0.3)
        return True

    def reach_one_half(self) -> None:
        """A publication reaches B, but not D; its broker restarts, and its publisher needs a while to connect again."""
        network = self.network
        network.cut_link(("A", "D"))
        network.publish("p", Publication({"x": 1}))
        self.run(1.0)
        assert self.arrived() == [("p", 0, "b/0")]
        network.crash("A")
        self.run(1.0)
        del network._table.clients["p"]["A"]
        network.restart("A")
        self.run(1.0)

    def connect_again(self) -> None:
        self.network._table.clients["p"]["A"] = None
        self.network._table.connect(("A", "p"))

    def arrived(self) -> list[tuple[str, int, str]]:
        assert set(self.network.deliveries.values()) <= {1}
        return sorted(self.network.deliveries)


ALL = [("p", 0, "b/0"), ("p", 0, "d/0")]


def used(protocol: str = "filter") -> Change:
    """The old epoch is to close, and half of a publication has arrived in it."""
    change = Change(protocol, STAR, CHAIN)
    change.reach_one_half()
    change.adopt(Phase.PREPARED, (0, 1), 0)
    change.adopt(Phase.USED, (0, 1), 1)
    return change


def reverting(protocol: str = "filter") -> Change:
    """The new epoch is to close, and half of a publication has arrived in it."""
    change = Change(protocol, CHAIN, STAR)
    change.adopt(Phase.PREPARED, (0, 1), 0)
    change.adopt(Phase.USED, (0, 1), 1)
    change.reach_one_half()
    change.adopt(Phase.REVERTING, (0, 1), 0)
    return change


@pytest.mark.parametrize("protocol", ["filter", "simple", "covering-peer"])
@pytest.mark.parametrize(("begin", "closes", "stays"), [(used, 0, 1), (reverting, 1, 0)])
def test_an_epoch_waits_for_a_publisher_that_returns(begin, closes, stays, protocol):
    change = begin(protocol)
    assert not change.is_quiet(closes)
    change.connect_again()
    change.run(1.0)
    assert change.is_quiet(closes)
    change.adopt(Phase.CLOSED if stays else Phase.REVERTED, (stays,), stays)
    change.run(30.0)
    assert (change.network.unsettled(), change.arrived()) == (0, ALL)
    assert all(list(status.unsettled) == [stays] for status in change.statuses())


def test_an_epoch_waits_until_what_has_been_sent_again_is_settled():
    """The second copy has not passed B: closed there, the old epoch would be that of both copies."""
    change = used()
    change.network.cut_link(("A", "B"))
    change.connect_again()
    change.run(1.0)
    assert change.network.broker("A")._context.backlogs.complete
    assert not change.is_quiet(0)
    change.network._table.connect(("A", "B"))
    change.run(1.0)
    assert change.is_quiet(0)
    change.adopt(Phase.CLOSED, (1,), 1)
    assert change.arrived() == ALL


def test_an_epoch_that_does_not_wait_loses_a_publication(monkeypatch):
    monkeypatch.setattr(Backlogs, "publishers_settled", lambda *_: True)
    change = used()
    assert change.is_quiet(0)
    change.adopt(Phase.CLOSED, (1,), 1)
    change.connect_again()
    change.run(30.0)
    assert (change.network.unsettled(), change.arrived()) == (0, ALL[:1])


def test_an_epoch_waits_for_a_publisher_that_does_not_return_until_its_session_expires():
    change = used()
    change.run(SESSION_EXPIRY_S - 5.0)
    assert not change.is_quiet(0)
    change.run(6.0)
    assert change.is_quiet(0)


def test_an_epoch_does_not_wait_for_ever_for_a_publisher_that_has_not_sent_everything():
    change = used()
    backlogs, step = change.network.broker("A")._context.backlogs, change.network.broker("A")._context.step
    change.connect_again()
    change.network._table.disconnect(("A", "p"))
    assert not backlogs.publishers_settled(list)
    step.now_s += BACKLOG_S + 1.0
    assert backlogs.publishers_settled(list)
