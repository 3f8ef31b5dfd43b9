"""The guests of one broker: the brokers that have joined at it without being in the overlay, and the one that it has joined at.

The link of a guest and its contact is in every epoch that does not list the guest. A guest has one contact, or its epochs would
have cycles.
"""

from overweave.broker.context import BrokerContext
from overweave.contract.effects import CloseLink
from overweave.contract.overlay_state import EpochTree, OverlayRecord, OverlayState, overlay_of
from overweave.contract.stimuli import PeerConnected
from overweave.language.headers import OverlayEpoch
from overweave.overlay.graph import Overlay

#: The timer at which guests that are away are removed, and how long they may be away.
GUESTS, _AWAY_S = "guests", 30.0


class Guests(dict[str, None]):
    """The guests by name, in the order in which they have joined.

    A contact, which may itself be a guest, removes a guest that is away for too long, as a session that expires: publications
    would wait for it. The guest joins again when it returns. A guest never removes its contact.
    """

    def __init__(self, context: BrokerContext, record: OverlayRecord) -> None:
        self._context, self._id = context, context.id
        #: The broker that this one has joined at; empty: none.
        self.contact = _contact_of(record, self._id)
        super().__init__(dict.fromkeys(each for each in record.guests if each != self.contact))
        #: The guests that are not connected, and since when.
        self._away: dict[str, float] = {}

    def start(self) -> None:
        """Those of the journal are not connected yet."""
        for guest in self:
            self.on_disconnected(guest)

    def on_connected(self, stimulus: PeerConnected, state: OverlayState) -> bool:
        """A guest or the contact is connected; whether it is a new one."""
        peer = stimulus.peer
        self._away.pop(peer, None)
        if stimulus.contact and peer != self.contact and self._may_join(peer, state):
            if self.contact:  # it may be gone for good, and a second one would make a cycle
                self._context.step.effects.append(CloseLink(self.contact))
            self.contact = peer
            return True
        if stimulus.guest and peer not in self and peer != self.contact and not _is_member(peer, state):
            self[peer] = None
            return True
        return False

    def on_disconnected(self, peer: str) -> None:
        """A guest is away from now on."""
        if peer in self:
            self._away[peer] = self._context.step.now_s
            self._context.timers.set(GUESTS, _AWAY_S)

    def remove(self, peer: str) -> bool:
        """Forget a guest or the contact; whether it was one."""
        if peer == self.contact:
            self.contact = ""
            return True
        self._away.pop(peer, None)
        return self.pop(peer, self) is None

    def on_members(self, state: OverlayState) -> None:
        """A guest that has become a member is none when it leaves again."""
        if _is_member(self._id, state):
            self.contact = ""
        for guest in [each for each in self if _is_member(each, state)]:
            self.remove(guest)

    def expire(self, state: OverlayState) -> None:
        """Close the links to guests that have been away for too long, unless they are on the way to be members."""
        now_s, members = self._context.step.now_s, {id for tree in state for id in tree.brokers}
        for guest, since_s in self._away.items():
            if since_s + _AWAY_S <= now_s and guest not in members:
                self._context.step.effects.append(CloseLink(guest))
        if self._away:
            later = [since_s + _AWAY_S for since_s in self._away.values() if since_s + _AWAY_S > now_s]
            self._context.timers.set_at(GUESTS, min(later, default=now_s + _AWAY_S))

    # ---- the overlay with guests

    def neighbours(self, state: OverlayState) -> dict[str, tuple[OverlayEpoch, ...]]:
        """The neighbours of this broker with their epochs: those of each tree, guests that it does not list, and the contact."""
        found: dict[str, tuple[OverlayEpoch, ...]] = {}
        for tree in state:
            guests = [each for each in self if each not in tree.brokers]
            if self.contact and (self._id not in tree.brokers or state.is_joining):
                guests.insert(0, self.contact)
            for neighbour in (*tree.neighbours(self._id), *guests):
                found[neighbour] = (*found.get(neighbour, ()), tree.epoch)
        return found

    def overlay_of(self, tree: EpochTree) -> Overlay:
        """The overlay of a tree for this broker, which is behind its contact if it is a guest."""
        if self._id in tree.brokers:
            return overlay_of(tree)
        if not self.contact or self.contact in tree.brokers:
            links = [(self._id, self.contact)] if self.contact else []
            return Overlay((*tree.brokers, self._id), (*tree.links, *links))
        links = [(self._id, self.contact), (self.contact, tree.brokers[0])]  # wherever that is a guest itself
        return Overlay((*tree.brokers, self.contact, self._id), (*tree.links, *links))

    def validate(self) -> None:
        """Check the invariants."""
        assert self.contact not in self
        assert self._away.keys() <= self.keys()
        assert not self._away or GUESTS in self._context.timers.due_s

    def _may_join(self, peer: str, state: OverlayState) -> bool:
        """Whether a broker may be the contact; a guest that is on the way to be a member keeps the one it has."""
        is_listed = not state.is_joining and any(self._id in tree.brokers for tree in state)
        return peer not in self and not (is_listed and (self.contact or _is_member(self._id, state)))


def _is_member(broker: str, state: OverlayState) -> bool:
    """Whether a broker is in all open epochs, and no change is in progress."""
    return state.is_stable and not state.is_joining and all(broker in tree.brokers for tree in state)


def _contact_of(record: OverlayRecord, broker: str) -> str:
    """The contact of a broker: earlier journals have it as the first of its guests, because guests have joined before others."""
    if record.contact is not None:
        return record.contact
    listed = {id for tree in record.state if broker not in tree.brokers or record.state.is_joining for id in tree.brokers}
    if not listed:
        return ""
    return next((each for each in record.guests if each in listed), next(iter(record.guests), ""))
