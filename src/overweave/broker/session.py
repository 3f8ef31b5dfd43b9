"""Sessions: an ordered stream of contents to and from one peer over a connection that may lose, repeat, reorder or break.

Each content has a number. The receiver takes them in order and settles each when all that it caused is settled; the sender
keeps what is not settled and sends it again when asked to. So a publication stays with somebody until the last broker and
client on its way has it, and the crash of any one broker loses none. When a peer comes back with a new incarnation it has
forgotten everything: both directions start again at 0, publications that were not settled are sent again, and control is
not, because the routing state is told anew (`Synced`).
"""

from collections import deque
from collections.abc import Iterable, Iterator

from overweave.contract.config import SessionConfig
from overweave.contract.frames import Acknowledgement, Content, Data, Frame, Hello
from overweave.language.messages import Publish


class Custody:
    """What keeps an incoming content unsettled: the copies of it that went on and are not settled yet."""

    __slots__ = ("_followers", "_remaining", "_sequence", "_session", "_stream")

    def __init__(self, session: "Session", sequence: int) -> None:
        self._session, self._stream, self._sequence = session, session.stream, sequence
        self._remaining = 1
        self._followers: list[Custody] | None = None

    @property
    def done(self) -> bool:
        """Whether all copies are settled."""
        return self._remaining == 0

    def hold(self) -> "Custody":
        """One more copy goes on."""
        self._remaining += 1
        return self

    def release(self) -> None:
        """One copy, or the processing itself, is done."""
        self._remaining -= 1
        if self._remaining == 0:
            if self._session.stream == self._stream:
                self._session.settle(self._sequence)
            for follower in self._followers or ():
                follower.release()

    def follow(self, first: "Custody") -> None:
        """Be settled when ``first`` is, of which this is a duplicate: until then its sender must keep it."""
        if first.done:
            self.release()
        elif first._followers is None:
            first._followers = [self]
        else:
            first._followers.append(self)


class Session:
    """One side of the stream to one peer."""

    def __init__(self, peer: str, incarnation: int, config: SessionConfig, dirty: "dict[Session, None]") -> None:
        self.peer = peer
        self.incarnation = incarnation
        #: Sessions that owe their peer an acknowledgement put themselves here.
        self._dirty = dirty
        self.config = config
        self.connected = False
        #: Both sides know whom they talk to.
        self.established = False
        self.peer_incarnation = 0
        #: Counts the streams there have been; numbers of an earlier one mean nothing now.
        self.stream = 0
        #: Sent or waiting, not settled by the peer: the first of them has the number ``_base``.
        self._unsettled: deque[tuple[Content, Custody | None]] = deque()
        self._base = 0
        #: The number of the next one to put on the connection, and of the next one that the peer expects.
        self._next = 0
        self._peer_expected = 0
        #: The number of the next one to come in; those before ``_settled`` are settled, and some after it.
        self._expected = 0
        self._settled = 0
        self._settled_ahead: set[int] = set()
        self._acknowledged = 0

    # ---- the connection

    def connect(self) -> Iterator[Frame]:
        """The connection is open."""
        self.connected, self.established = True, False
        yield self._hello()

    def disconnect(self) -> None:
        """The connection is gone; what is not settled waits."""
        self.connected = self.established = False

    # ---- out

    def send(self, content: Content, custody: Custody | None = None) -> list[Frame]:
        """Send a content, now or when there is room; ``custody`` is released when the peer has settled it."""
        self._unsettled.append((content, custody))
        return self._fill_window()

    def unsettled(self) -> int:
        """How many contents the peer has not settled."""
        return len(self._unsettled)

    def resend(self) -> Iterator[Frame]:
        """Repeat whatever the peer may not have got."""
        if self.connected and not self.established:
            yield self._hello()
        elif self.established:
            # At least one goes out, to be told what is settled: an acknowledgement may have been lost.
            self._next = max(self._base, min(self._peer_expected, self._base + len(self._unsettled) - 1))
            yield from self._fill_window()

    def abandon(self) -> None:
        """The peer will not come back: nothing waits for it any more."""
        while self._unsettled:
            self._settle_oldest()

    # ---- in

    def is_new(self, frame: Hello) -> bool:
        """Whether the peer has forgotten all that was before; then it has to be greeted."""
        return self.connected and frame.incarnation > self.peer_incarnation

    def hello(self, frame: Hello, greeting: Iterable[Content] = ()) -> Iterator[Frame]:
        """The peer introduces itself; to a new one ``greeting`` goes first."""
        if not self.connected or frame.incarnation < self.peer_incarnation:
            return
        if self.is_new(frame):
            self.peer_incarnation = frame.incarnation
            self._start_again(greeting)
        if frame.peer_incarnation != self.incarnation:
            yield self._hello()
            return
        self.established = True
        if not frame.heard:
            yield self._hello()
        self._take(frame.acknowledged, frame.expected)
        self._next = max(self._base, min(self._next, frame.expected))
        yield from self._fill_window()

    def data(self, frame: Data) -> Custody | None:
        """The custody of the next content in order, to be released when it is processed; None for any other frame."""
        if not self._current(frame):
            return None
        self._take(frame.acknowledged, self._peer_expected)
        if frame.sequence != self._expected:
            self._dirty[self] = None  # the sender seems not to know what we have
            self._acknowledged = -1
            return None
        self._expected += 1
        return Custody(self, frame.sequence)

    def acknowledgement(self, frame: Acknowledgement) -> Iterator[Frame]:
        """The peer has settled more: go on sending."""
        if self._current(frame):
            self._take(frame.acknowledged, frame.expected)
            yield from self._fill_window()

    def settle(self, sequence: int) -> None:
        """The content with this number, and all that it caused, is settled."""
        self._dirty[self] = None
        if sequence == self._settled and not self._settled_ahead:
            self._settled += 1
            return
        self._settled_ahead.add(sequence)
        while self._settled in self._settled_ahead:
            self._settled_ahead.remove(self._settled)
            self._settled += 1

    def unacknowledged(self) -> int:
        """How many settled contents the peer has not been told of; one at least when it is to be told again."""
        return self._settled - self._acknowledged

    def acknowledge(self) -> Iterator[Frame]:
        """Tell the peer what is settled."""
        if self.established:
            self._acknowledged = self._settled
            yield Acknowledgement(self.incarnation, self.peer_incarnation, self._settled, self._expected)

    def validate(self) -> None:
        """Check what must always hold."""
        assert self._base <= self._next <= self._base + len(self._unsettled)
        assert -1 <= self._acknowledged <= self._settled <= self._expected
        assert all(self._settled < sequence < self._expected for sequence in self._settled_ahead)
        assert self.connected or not self.established

    # ---- helpers

    def _hello(self) -> Hello:
        return Hello(self.incarnation, self.peer_incarnation, self._settled, self._expected, self.established)

    def _current(self, frame: Data | Acknowledgement) -> bool:
        return self.established and frame.incarnation == self.peer_incarnation and frame.peer_incarnation == self.incarnation

    def _take(self, acknowledged: int, expected: int) -> None:
        """The peer has settled all before ``acknowledged`` and got all before ``expected``."""
        self._peer_expected = max(self._peer_expected, expected)
        while self._base < acknowledged and self._unsettled:
            self._settle_oldest()
        self._next = max(self._next, self._base)

    def _settle_oldest(self) -> None:
        _, custody = self._unsettled.popleft()
        self._base += 1
        self._next = max(self._next, self._base)
        if custody is not None:
            custody.release()

    def _fill_window(self) -> list[Frame]:
        """All that may go out now and has not."""
        end = self._base + min(self.config.window, len(self._unsettled))
        if not self.established or self._next >= end:
            return []
        frames: list[Frame] = [
            Data(self.incarnation, self.peer_incarnation, number, self._settled, self._unsettled[number - self._base][0])
            for number in range(self._next, end)
        ]
        self._acknowledged = self._settled
        self._next = end
        return frames

    def _start_again(self, greeting: Iterable[Content]) -> None:
        self.established = False
        self.stream += 1
        publications = [entry for entry in self._unsettled if isinstance(entry[0], Publish)]
        self._unsettled = deque([*((content, None) for content in greeting), *publications])
        self._base = self._next = self._peer_expected = self._expected = self._settled = self._acknowledged = 0
        self._settled_ahead.clear()
