"""Custody: who keeps what came in until all that it caused is settled (docs/decisions/0004)."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from overweave.broker.session import Session


class Custody:
    """What keeps an incoming content unsettled: the copies of its rows that went on and are not settled yet."""

    __slots__ = ("_followers", "_remaining", "_rows", "_sequence", "_session", "_stream", "unmatched")

    def __init__(self, session: "Session", sequence: int, rows: int) -> None:
        self._session, self._stream, self._sequence, self._rows = session, session.stream, sequence, rows
        self._remaining = 1
        #: How many of its rows, which a client published, matched nobody here.
        self.unmatched = 0
        self._followers: list[Custody] | None = None

    @property
    def peer(self) -> str:
        """Who sent it."""
        return self._session.peer

    @property
    def done(self) -> bool:
        """Whether all copies are settled."""
        return self._remaining == 0

    @property
    def void(self) -> bool:
        """Whether the sender may not know any more that it gave us this content."""
        return self._session.stream != self._stream or not self._session.established

    def hold(self) -> None:
        """One more has to be done with it."""
        self._remaining += 1

    def spread(self, copies: int) -> None:
        """Where it goes is known: so many copies go on."""
        if copies:
            self._remaining += copies - 1
        else:
            self.release()

    def release(self) -> None:
        """One copy is settled."""
        self._remaining = remaining = self._remaining - 1
        if remaining == 0:
            session = self._session
            if session.stream == self._stream:
                session.settle(self._sequence, self._rows, self.unmatched)
            if self._followers is not None:
                for follower in self._followers:
                    follower.release()

    def follow(self, first: "Custody") -> bool:
        """Not be settled before ``first`` is, of which this has a duplicate: until then its sender must keep it.

        That is so if nobody else has to: the sender of the first copy may have crashed. False: it is not.
        """
        if first.done or not first.void:
            return False
        self.hold()
        first._followers = [*(first._followers or ()), self]
        return True

    def leave(self, first: "Custody") -> None:
        """Follow no longer."""
        if first._followers is not None and self in first._followers:
            first._followers = [follower for follower in first._followers if follower is not self]
            self.release()


class Kept:
    """What a session keeps on its own account, because its peer stands still and nobody is to wait for that."""

    __slots__ = ("_session", "bytes")

    def __init__(self, session: "Session", bytes: int) -> None:
        self._session, self.bytes = session, bytes
        session.kept_bytes += bytes

    def release(self) -> None:
        """The peer has settled it."""
        self._session.kept_bytes -= self.bytes
