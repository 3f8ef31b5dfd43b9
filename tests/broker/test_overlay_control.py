"""States of the overlay at one broker: those that it cannot use, and epochs that are opened anew."""

import msgspec
import pytest

from overweave.broker.core import BrokerCore
from overweave.contract.effects import TraceDecision
from overweave.contract.frames import (
    NO_EPOCH,
    AdvertisementsEnd,
    ControlFrame,
    ControlMessage,
    EpochOpened,
    Hello,
    OverlayUpdate,
    SessionEpoch,
    SyncEnd,
)
from overweave.contract.overlay_state import EpochTree, Member, OverlayState, OverlayVersion, Phase, first_state, joining_state
from overweave.contract.stimuli import ChangeOverlay, FrameArrived, PeerConnected
from overweave.errors import InvalidInput
from overweave.language.headers import FIRST_EPOCH, OverlayEpoch
from overweave.language.messages import Subscribe
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS
from overweave.routing.options import RootOptions

CHAIN = Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])
PAIR = (("B2", "B3"),)
TICKS = parse_filter("[class,eq,'TICK']")


def state(number: int, brokers: tuple[str, ...], links: tuple[tuple[str, str], ...]) -> OverlayState:
    """A state with one tree."""
    tree = EpochTree(OverlayEpoch(number), brokers, links)
    return OverlayState(
        OverlayVersion(number, Phase.CLOSED), tuple(Member(id) for id in brokers), (tree,), OverlayEpoch(number), "test"
    )


def rooted(root: str | None = "B1") -> BrokerCore:
    """The middle broker of a chain under a hierarchical protocol."""
    made = PROTOCOLS["hierarchical-simple"].make("B2", CHAIN, options=RootOptions(root=root))
    return BrokerCore("B2", made, CHAIN.neighbours("B2"), overlay=first_state(CHAIN))


class Peer:
    """A neighbour of a broker, with a session."""

    def __init__(self, broker: BrokerCore, id: str, guest: bool = False, contact: bool = False) -> None:
        self.broker, self.id, self.sequence = broker, id, 0
        broker.handle(PeerConnected(id, guest=guest, contact=contact), 1.0)
        self.epoch = SessionEpoch(5, 0)
        for known in (NO_EPOCH, broker._sessions[id].epoch):
            broker.handle(FrameArrived(id, Hello(self.epoch, known, 0, 0, False)), 1.0)

    def send(self, *messages: ControlMessage) -> list[object]:
        """Send control messages; the effects."""
        effects: list[object] = []
        for message in messages:
            frame = ControlFrame(self.epoch, self.broker._sessions[self.id].epoch, self.sequence, 0, message)
            effects += self.broker.handle(FrameArrived(self.id, frame), 2.0)
            self.sequence += 1
        return effects


def test_a_tree_without_the_root_of_the_options_is_refused() -> None:
    broker = rooted()
    without = state(1, ("B2", "B3"), PAIR)
    with pytest.raises(InvalidInput, match=r"trees: epoch 1: root: unknown 'B1'"):
        broker._parts.overlay.check_supported(without)
    rooted(None)._parts.overlay.check_supported(without)


def test_a_state_of_a_neighbour_that_the_options_do_not_suit_is_ignored() -> None:
    broker = rooted()
    before, peer = broker.overlay_state(), Peer(broker, "B3")
    effects = peer.send(OverlayUpdate(state(1, ("B2", "B3"), PAIR)))
    assert broker.overlay_state() == before
    (ignored,) = (each.decision for each in effects if isinstance(each, TraceDecision))
    assert (ignored.what, ignored.about) == ("ignore", "state of B3")
    assert "root: unknown 'B1'" in ignored.reason
    assert broker.overlay_status().synced is not None
    broker.validate()
    peer.send(OverlayUpdate(state(1, CHAIN.ids, (("B1", "B2"), ("B1", "B3")))))
    assert broker.overlay_state().version.epoch == 1


def test_a_state_that_is_no_tree_is_ignored() -> None:
    broker = rooted(None)
    before, peer = broker.overlay_state(), Peer(broker, "B3")
    good = state(1, CHAIN.ids, (("B1", "B2"), ("B1", "B3")))
    for bad in (state(1, CHAIN.ids, (*PAIR, ("B1", "B2"), ("B1", "B3"))), msgspec.structs.replace(good, current=OverlayEpoch(9))):
        peer.send(OverlayUpdate(bad))
        assert broker.overlay_state() == before
    peer.send(OverlayUpdate(good))
    assert broker.overlay_state() == good


def test_a_state_for_which_no_tables_can_be_made_changes_nothing() -> None:
    broker = rooted()
    before = broker.overlay_state()

    def fail(overlay: Overlay) -> None:
        raise RuntimeError("a protocol with a defect")

    broker.routing._make = fail
    with pytest.raises(RuntimeError):
        broker.handle(ChangeOverlay(state(1, CHAIN.ids, (("B1", "B2"), ("B1", "B3")))), 1.0)
    assert broker.overlay_state() == before
    assert broker.overlay_status().version == before.version
    broker.validate()


@pytest.mark.parametrize("protocol", ["hierarchical-simple", "identity", "covering"])
def test_a_broker_joins_where_the_root_is_configured(protocol: str) -> None:
    options, alone = RootOptions(root="B1"), Overlay(["B9"])
    broker = BrokerCore("B9", PROTOCOLS[protocol].make("B9", alone, options=options), [], overlay=joining_state("B9"))
    peer = Peer(broker, "B3", contact=True)
    tree = EpochTree(FIRST_EPOCH, CHAIN.ids, tuple(link.ends for link in CHAIN.links))
    members = tuple(Member(id) for id in CHAIN.ids)
    peer.send(OverlayUpdate(OverlayState(OverlayVersion(0, Phase.TRIMMED), members, (tree,), FIRST_EPOCH)))
    assert broker.routing._tables[FIRST_EPOCH]._parent == "B3"
    broker.validate()


def test_what_a_neighbour_does_not_send_again_in_an_epoch_that_it_opens_anew_is_withdrawn() -> None:
    broker = rooted(None)
    peer = Peer(broker, "B3")
    kept, dropped = Subscribe("kept", TICKS), Subscribe("dropped", TICKS)
    peer.send(AdvertisementsEnd(), kept, dropped, SyncEnd())
    peer.send(EpochOpened(FIRST_EPOCH), AdvertisementsEnd(), kept)
    assert broker.statistics().tables["subscriptions"] == 2  # publications go there until all is sent
    peer.send(SyncEnd())
    assert list(broker.routing.learned_from("B3")) == [kept]


def test_tables_are_made_anew_for_another_root() -> None:
    """The network file has brokers in another order than the state, whose first broker is the root."""
    star = Overlay(["B2", "B3", "B4"], [("B3", "B2"), ("B3", "B4")])
    broker = BrokerCore("B2", PROTOCOLS["hierarchical-simple"].make("B2", star), ["B3"], overlay=first_state(star))
    assert broker.routing._tables[FIRST_EPOCH]._parent is None
    later = state(0, ("B3", "B2", "B4"), tuple(link.ends for link in star.links))
    broker.handle(ChangeOverlay(msgspec.structs.replace(later, version=OverlayVersion(1, Phase.TRIMMED))), 1.0)
    assert broker.routing._tables[FIRST_EPOCH]._parent == "B3"
    broker.validate()


def test_a_guest_on_the_way_to_be_a_member_keeps_its_contact() -> None:
    """Its link to the contact is in one epoch, and perhaps in both."""
    broker = BrokerCore("B9", PROTOCOLS["simple"].make("B9", Overlay(["B9"])), [], overlay=joining_state("B9"))
    peer = Peer(broker, "B3", contact=True)
    first = first_state(CHAIN)
    peer.send(OverlayUpdate(first))
    Peer(broker, "B1", contact=True)
    assert broker.overlay_record().contact == "B1"
    tree = EpochTree(OverlayEpoch(1), (*CHAIN.ids, "B9"), (*first.trees[0].links, ("B3", "B9")))
    members = (*first.members, Member("B9"))
    both = OverlayState(OverlayVersion(1, Phase.PREPARED), members, (*first.trees, tree), FIRST_EPOCH, "test")
    broker.handle(ChangeOverlay(both), 2.0)
    Peer(broker, "B2", contact=True)
    assert broker.overlay_record().contact == "B1"
    assert broker.overlay_status().neighbours == {0: ("B1",), 1: ("B3",)}
    broker.handle(ChangeOverlay(OverlayState(OverlayVersion(1, Phase.CLOSED), members, (tree,), OverlayEpoch(1), "test")), 3.0)
    assert broker.overlay_record().contact == ""
    broker.validate()
