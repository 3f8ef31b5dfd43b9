"""Pending acks: an incoming message stays unsettled until all that it caused is settled (docs/decisions/0004)."""

from typing import TYPE_CHECKING

import msgspec

from overweave.language.headers import OverlayEpoch
from overweave.language.messages import Advertise, Control, Subscribe

if TYPE_CHECKING:
    from overweave.broker.session.inbound import Inbound

#: A count that no retain or release brings to 0.
_EXPIRED = -(1 << 62)
#: A kind, the tree where overlays have cycles, and the epoch of the overlay. Control messages of one key are settled in the order
#: of sending.
ControlKey = tuple[type[Advertise] | type[Subscribe], str | None, OverlayEpoch]


def control_key(message: Control) -> ControlKey | None:
    """The key of an advertisement or a subscription without destinations; None for other control: no ack waits for it."""
    if isinstance(message, Advertise | Subscribe) and not message.header.destinations:
        return type(message), message.header.tree, message.header.overlay_epoch
    return None


class PendingAck(msgspec.Struct, eq=False):
    """The ack of an incoming message: a count of the forwarded copies that are not settled yet.

    A struct, because every publication has one at every broker, and a call of ``__init__`` costs twice as much.
    """

    _inbound: "Inbound"
    _stream: int
    _sequence: int
    _rows: int
    #: Control is acknowledged very soon, and before unsettled publications: its sender waits for it.
    _control: bool = False
    _remaining: int = 1
    #: The number of a client's rows without a matching subscription here.
    unmatched: int = 0
    _followers: "list[PendingAck] | None" = None

    @classmethod
    def of_control(cls, inbound: "Inbound", sequence: int) -> "PendingAck":
        """The ack of a control message."""
        inbound.unsettled_control += 1
        return cls(inbound, inbound.stream, sequence, 1, True)

    @property
    def peer(self) -> str:
        """The sender."""
        return self._inbound.handshake.peer

    @property
    def acked(self) -> bool:
        """Whether all copies are settled, or it has expired."""
        return self._remaining <= 0

    @property
    def expired(self) -> bool:
        """Whether it was settled before its copies."""
        return self._remaining < 0

    @property
    def orphaned(self) -> bool:
        """Whether the sender may have lost track of the message: its stream or its connection is gone."""
        return self._inbound.stream != self._stream or not self._inbound.handshake.established

    def retain(self) -> None:
        """Count one more copy."""
        self._remaining += 1

    def fan_out(self, copies: int) -> None:
        """Replace one copy by ``copies``, one for each next hop."""
        if copies:
            self._remaining += copies - 1
        else:
            self.release()

    def release(self) -> None:
        """One copy is settled."""
        self._remaining = remaining = self._remaining - 1
        if not remaining:
            self._settle()
            if self._followers:
                self._release_followers([*self._followers])

    def expire(self) -> None:
        """Settle it before its copies."""
        if not self.acked:
            self._remaining = 1
            self.release()
            self._remaining = _EXPIRED

    def wait_for(self, earlier: "PendingAck") -> None:
        """Settle it after ``earlier``."""
        if not earlier.acked:
            self.retain()
            earlier._followers = earlier._followers or []
            earlier._followers.append(self)

    def follow_first_copy(self, first: "PendingAck") -> bool:
        """Settle it, a duplicate, after the first copy: its sender then holds it, if that of the first copy has crashed.

        False if the first copy is settled, its sender still holds it, or this one waits for it already: the parts of a first copy
        for several next hops share one ack.
        """
        if first.acked or not first.orphaned or self in (first._followers or ()):
            return False
        self.retain()
        first._followers = [*(first._followers or ()), self]
        return True

    def stop_following(self, first: "PendingAck") -> None:
        """Wait for the first copy no longer."""
        if first._followers is not None and self in first._followers:
            first._followers = [follower for follower in first._followers if follower is not self]
            self.release()

    def _release_followers(self, followers: "list[PendingAck]") -> None:
        """Without recursion: a client's control messages may form a long chain."""
        while followers:
            follower = followers.pop()
            follower._remaining -= 1
            if not follower._remaining:
                follower._settle()
                followers += follower._followers or ()

    def _settle(self) -> None:
        inbound = self._inbound
        if inbound.stream == self._stream:
            if self._control:
                inbound.unsettled_control -= 1
            inbound.settle(self._sequence, self._rows, self._control, self.unmatched)
