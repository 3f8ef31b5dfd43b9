"""Custody: who keeps what came in until all that it caused is settled (docs/decisions/0004)."""

from typing import TYPE_CHECKING

from overweave.language.messages import Advertise, Control, Subscribe

if TYPE_CHECKING:
    from overweave.broker.session import Session

#: Holds and releases do not matter any more.
_EXPIRED = -(1 << 62)
#: Control messages of one key are settled in the order in which they were sent: a kind, and a tree where overlays have cycles.
ControlKey = tuple[type[Advertise] | type[Subscribe], str | None]


def control_key(message: Control) -> ControlKey | None:
    """The key of an advertisement or a subscription; None for what nobody waits for, or what has destinations."""
    if isinstance(message, Advertise | Subscribe) and not message.header.destinations:
        return type(message), message.header.tree
    return None


class PendingAck:
    """What keeps an incoming content unsettled: the copies of its rows that went on and are not settled yet."""

    __slots__ = ("_control", "_followers", "_remaining", "_rows", "_sequence", "_session", "_stream", "unmatched")

    def __init__(self, session: "Session", sequence: int, rows: int, control: bool = False) -> None:
        self._session, self._stream, self._sequence, self._rows = session, session.stream, sequence, rows
        #: Control is acknowledged at once, and ahead of publications that are not settled: somebody waits for it.
        self._control = control
        if control:
            session.unsettled_control += 1
        self._remaining = 1
        #: How many of its rows, which a client published, matched nobody here.
        self.unmatched = 0
        self._followers: list[PendingAck] | None = None

    @property
    def peer(self) -> str:
        """Who sent it."""
        return self._session.peer

    @property
    def acked(self) -> bool:
        """Whether all copies are settled, or it has expired."""
        return self._remaining <= 0

    @property
    def expired(self) -> bool:
        """Whether it was settled whatever it waited for."""
        return self._remaining < 0

    @property
    def orphaned(self) -> bool:
        """Whether the sender may not know any more that it gave us this content."""
        return self._session.stream != self._stream or not self._session.established

    def retain(self) -> None:
        """One more has to be done with it."""
        self._remaining += 1

    def fan_out(self, copies: int) -> None:
        """Where it goes is known: so many copies go on."""
        if copies:
            self._remaining += copies - 1
        else:
            self.release()

    def release(self) -> None:
        """One copy is settled."""
        self._remaining = remaining = self._remaining - 1
        if remaining:
            return
        self._settle()
        # Without recursion: a client's control messages may wait for each other in a long chain.
        followers = self._followers and [*self._followers]
        while followers:
            follower = followers.pop()
            follower._remaining -= 1
            if not follower._remaining:
                follower._settle()
                followers += follower._followers or ()

    def expire(self) -> None:
        """Be settled whatever it waits for."""
        if not self.acked:
            self._remaining = 1
            self.release()
            self._remaining = _EXPIRED

    def wait_for(self, earlier: "PendingAck") -> None:
        """Not be settled before ``earlier`` is."""
        if not earlier.acked:
            self.retain()
            earlier._followers = earlier._followers or []
            earlier._followers.append(self)

    def follow_first_copy(self, first: "PendingAck") -> bool:
        """Not be settled before ``first`` is, of which this has a duplicate: until then its sender must keep it.

        That is so if nobody else has to: the sender of the first copy may have crashed. False: it is not.
        """
        if first.acked or not first.orphaned:
            return False
        self.retain()
        first._followers = [*(first._followers or ()), self]
        return True

    def stop_following(self, first: "PendingAck") -> None:
        """Follow no longer."""
        if first._followers is not None and self in first._followers:
            first._followers = [follower for follower in first._followers if follower is not self]
            self.release()

    def _settle(self) -> None:
        if self._session.stream == self._stream:
            if self._control:
                self._session.unsettled_control -= 1
            self._session.settle(self._sequence, self._rows, self._control, self.unmatched)


class Waiters:
    """The custodies that wait until a peer has settled a control message, and all of its key that were sent before it."""

    __slots__ = ("_custodies", "_latest", "id", "key")

    def __init__(self, latest: "dict[ControlKey, Waiters]", key: "ControlKey", id: str, ack: PendingAck | None) -> None:
        #: The last control message in flight by key, of which this is one until it is settled.
        self._latest, self.key, self.id = latest, key, id
        self._custodies = [] if ack is None else [ack]
        latest[key] = self

    def add(self, ack: PendingAck) -> None:
        """Have one more wait."""
        ack.retain()
        self._custodies.append(ack)

    def release(self) -> None:
        """The peer has settled the message."""
        for ack in self.leave():
            ack.release()

    def leave(self) -> list[PendingAck]:
        """Be out of flight; the custodies, which still wait."""
        if self._latest.get(self.key) is self:
            del self._latest[self.key]
        acks, self._custodies = self._custodies, []
        return acks


class BufferedBytes:
    """What a session keeps on its own account, because its peer stands still and nobody is to wait for that."""

    __slots__ = ("_session", "bytes")

    def __init__(self, session: "Session", bytes: int) -> None:
        self._session, self.bytes = session, bytes
        session.pending_bytes += bytes

    def release(self) -> None:
        """The peer has settled it."""
        self._session.pending_bytes -= self.bytes
