"""Sessions: an ordered stream of contents to and from one peer over a connection that may lose, repeat, reorder or break.

Rows of publications are numbered one by one, and so is every other content. The receiver takes contents in order and settles
each when all that it caused is settled; the sender keeps what is not settled and sends it again when asked to. So a publication
stays with somebody until the last broker and client on its way has it, and the crash of any one broker loses none. When a peer
comes back with a new incarnation it has forgotten everything: both directions start again at 0, publications that were not
settled are sent again, and control is not unless it is addressed, because the routing state is told anew (`SyncEnd`).

All that goes out is appended to the effects of whoever asked.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice

from overweave.batches.base import Batch
from overweave.broker.pending_ack import BufferedBytes, ControlKey, PendingAck, Waiters, control_key
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Effect, SendFrame
from overweave.contract.frames import (
    Acknowledgement,
    AdvertisementsEnd,
    BatchFrame,
    ControlFrame,
    ControlMessage,
    Frame,
    Hello,
    Rejected,
    SyncEnd,
    is_addressed,
)
from overweave.language.messages import Control, Subscribe, Unsubscribe

#: No more stretches that are settled ahead are told at a time; the others have their turn next.
_STRETCHES_MAX = 256


class AckScheduler:
    """The sessions of one core that owe their peer an acknowledgement: at once, when the turn is over, or before long."""

    __slots__ = ("later", "now", "selective", "soon")

    def __init__(self, ahead: bool = False) -> None:
        self.now: dict[Session, None] = {}
        #: Control is settled: somebody waits for that, but many messages may come together.
        self.soon: dict[Session, None] = {}
        self.later: dict[Session, None] = {}
        #: Whether peers hear what is settled ahead of something that is not: where ways cross each other, brokers would wait for
        #: each other's rows in a circle, each behind others that wait.
        self.selective = ahead

    def flush(self, effects: list[Effect]) -> None:
        """Acknowledge what is due at once."""
        for session in self.now:
            self._flush_one(session, effects)
        self.now.clear()

    def flush_control(self, effects: list[Effect]) -> None:
        """Acknowledge control."""
        for session in self.soon:
            self._flush_one(session, effects)
        self.soon.clear()

    def flush_all(self, effects: list[Effect]) -> None:
        """Acknowledge all that is due, unless it went out with other things."""
        due, self.later = self.later, {}
        for session in due:
            if session.ack_due():
                session.acknowledge(effects, self.selective)

    def forget(self, session: "Session") -> None:
        """A session that is no more."""
        for acks_due in (self.now, self.soon, self.later):
            acks_due.pop(session, None)

    def _flush_one(self, session: "Session", effects: list[Effect]) -> None:
        self.later.pop(session, None)
        session.acknowledge(effects, self.selective)


class Mark:
    """A place in the stream to a peer: settled when all that was sent before it is."""

    __slots__ = ("position", "settled")

    def __init__(self, position: int) -> None:
        self.position = position
        self.settled = False


#: A word (None: it is a batch), a batch, how many rows it has, whom to tell when the peer has settled it, and how many of its
#: rows the window counts.
_Unsettled = tuple[ControlMessage | None, Batch | None, int, PendingAck | Waiters | BufferedBytes | None, int]
#: What a content takes here beside its bytes.
_CONTENT_BYTES = 1024


class Session:
    """One side of the stream to one peer."""

    __slots__ = (
        "_ack_scheduler",
        "_acknowledge_every",
        "_acknowledged",
        "_base",
        "_behind",
        "_behind_rows",
        "_counted",
        "_counted_bytes",
        "_end",
        "_expected",
        "_latest",
        "_marks",
        "_next",
        "_peer_expected",
        "_peer_unmatched_before",
        "_pending_bytes_max",
        "_settled",
        "_settled_ahead",
        "_told_ahead",
        "_unmatched",
        "_unmatched_ahead",
        "_unmatched_told",
        "_unsettled",
        "_untold",
        "_waiting",
        "_window",
        "_window_bytes",
        "buffering",
        "connected",
        "established",
        "incarnation",
        "peer",
        "peer_incarnation",
        "peer_unmatched",
        "pending_bytes",
        "stream",
        "unsettled_control",
    )  # fmt: skip

    def __init__(self, peer: str, incarnation: int, config: SessionConfig, acks_due: AckScheduler) -> None:
        self.peer = peer
        self.incarnation = incarnation
        self._ack_scheduler = acks_due
        self._window, self._acknowledge_every = config.window, config.acknowledge_every
        self._window_bytes = config.window_bytes
        self.connected = False
        #: Both sides know whom they talk to.
        self.established = False
        self.peer_incarnation = 0
        #: Counts the streams there have been; numbers of an earlier one mean nothing now.
        self.stream = 0
        #: Numbered, not settled by the peer: the first of them has the number ``_base``, and the last ``_waiting`` are not out.
        self._unsettled: deque[_Unsettled] = deque()
        self._base = 0
        self._waiting = 0
        #: How many of their rows the window counts, with their bytes; and what is held back until there is room in it, without
        #: numbers yet.
        self._counted = self._counted_bytes = 0
        self._behind: deque[_Unsettled] = deque()
        self._behind_rows = 0
        #: The number after the last of them.
        self._end = 0
        #: The number of the next row to put on the connection, and of the next one that the peer expects.
        self._next = 0
        self._peer_expected = 0
        #: The number of the next row to come in; those before ``_settled`` are settled, and some stretches after it.
        self._expected = 0
        self._settled = 0
        self._settled_ahead: dict[int, int] = {}
        #: How many control messages from the peer are not settled.
        self.unsettled_control = 0
        #: Up to where the peer was told of stretches, and whether there are new ones.
        self._told_ahead = 0
        self._untold = False
        self._acknowledged = 0
        #: The last control message in flight by key, with those who wait for it; and the marks that are not settled, in order.
        self._latest: dict[ControlKey, Waiters] = {}
        self._marks: deque[Mark] = deque()
        #: How many of the rows that are settled matched nobody here, how many the peer was told of, and those settled ahead.
        self._unmatched = self._unmatched_told = 0
        self._unmatched_ahead: dict[int, int] = {}
        #: How many of our rows matched nobody at the peer, as it said, in all streams and before this one.
        self.peer_unmatched = self._peer_unmatched_before = 0
        #: Whether what goes to the peer is kept here on our own account, how much is, and how much may be. All that is kept came
        #: before all that somebody else waits for.
        self.buffering = False
        self.pending_bytes = 0
        self._pending_bytes_max = 0

    # ---- the connection

    def connect(self, effects: list[Effect]) -> None:
        """The connection is open."""
        self.connected, self.established = True, False
        self._put(self._hello(), effects)

    def disconnect(self) -> None:
        """The connection is gone; what is not settled waits."""
        self.connected = self.established = False

    def reset(self) -> None:
        """Be somebody new to the peer, and take it for somebody new: both have to greet each other."""
        self.incarnation += 1
        self.peer_incarnation = 0

    def set_window(self, window: int) -> None:
        """Let no more rows be in flight than this from now on; what is held back goes out as room is found."""
        self._window = window

    # ---- out

    def send_control(self, word: ControlMessage, effects: list[Effect], ack: PendingAck | None = None) -> None:
        """Send a word, after what is held back; ``ack`` is released when the peer has settled it."""
        while self._behind:
            self._let_in()
        self._unsettled.append(self._entry(word, ack))
        self._end += 1
        self._waiting += 1
        self._send_on(effects)

    def queue_control(self, word: ControlMessage, effects: list[Effect]) -> None:
        """Send a word when there was room for all that is held back."""
        if self._behind:
            self._behind.append(self._entry(word))
            self._behind_rows += 1
        else:
            self.send_control(word, effects)

    def send(self, batch: Batch, ack: PendingAck | None, effects: list[Effect], under_way: bool = False) -> None:
        """Send publications; ``ack`` is released when the peer has settled them, or at once.

        They wait until there is room in the window, unless they are under way already.
        """
        keeper = self._keep(batch, ack) if self.buffering else ack
        number, rows = self._end, batch.count
        if under_way:
            self._unsettled.append((None, batch, rows, keeper, 0))
        elif self._counted >= self._window or self._counted_bytes >= self._window_bytes:
            self._behind.append((None, batch, rows, keeper, rows))
            self._behind_rows += rows
            return
        else:
            self._counted += rows
            self._counted_bytes += batch.wire_bytes
            self._unsettled.append((None, batch, rows, keeper, rows))
        self._end = end = number + rows
        if not self.established:
            self._waiting += 1
            return
        self._next = end
        settled = self._telling_settled()
        frame = BatchFrame(self.incarnation, self.peer_incarnation, number, settled, batch)
        effects.append(SendFrame(self.peer, frame))

    def wait_for(self, key: ControlKey, ack: PendingAck) -> None:
        """Have ``ack`` wait until the peer has settled all control messages of a key that are in flight."""
        latest = self._latest.get(key)
        if latest is not None:
            latest.add(ack)

    def wait_for_all(self, kind: type, ack: PendingAck) -> None:
        """Likewise for all keys of a kind."""
        for key, latest in self._latest.items():
            if key[0] is kind:
                latest.add(ack)

    def withdrawn(self, message: Unsubscribe) -> list[PendingAck]:
        """Those who waited for the peer to settle what ``message`` takes back, if that was the last of its tree."""
        latest = self._latest.get((Subscribe, message.header.tree))
        return latest.leave() if latest is not None and latest.id == message.id else []

    def mark(self) -> Mark:
        """The place behind all that was sent so far."""
        mark = Mark(self._end + self._behind_rows)
        self._marks.append(mark)
        self._settle_marks()
        return mark

    def unsettled(self) -> int:
        """How many contents the peer has not settled."""
        return len(self._unsettled) + len(self._behind)

    def unsettled_rows(self) -> int:
        """How many rows, and words, the peer has not settled."""
        return self._end - self._base + self._behind_rows

    def unsettled_in(self) -> int:
        """How many rows of publications from the peer are not settled, or are behind some that are not."""
        return self._expected - self._settled - self.unsettled_control

    def unsettled_publications(self) -> int:
        """How many rows that were sent from here the peer has not settled, without words."""
        return self._counted + sum(entry[4] for entry in self._behind)

    def settled_rows(self) -> int:
        """How many rows, and words, of this stream the peer has settled."""
        return self._base

    def start_buffering(self, bytes_max: int) -> None:
        """Let go those who wait for the peer to settle something: keep it, and what follows, until so many bytes are kept."""
        if self.buffering or not self.established or self.pending_bytes >= bytes_max:
            return  # who comes back after a crash must find everything
        self.buffering, self._pending_bytes_max = True, bytes_max
        held: list[_Unsettled] = []
        while self._unsettled and not isinstance(self._unsettled[-1][3], BufferedBytes):
            held.append(self._unsettled.pop())
        for word, batch, rows, ack, counted in reversed(held):
            keeper = self._keep(batch, ack) if self.buffering and batch is not None else ack
            self._unsettled.append((word, batch, rows, keeper, counted))
        for place, (word, batch, rows, ack, counted) in enumerate(self._behind):
            if self.buffering and batch is not None:
                self._behind[place] = (word, batch, rows, self._keep(batch, ack), counted)

    def stop_buffering(self) -> None:
        """From now on those who send wait again until the peer settles."""
        self.buffering = False

    def batches(self) -> Iterator[tuple[Batch, PendingAck]]:
        """The publications that the peer has not settled, with their custody."""
        for _, batch, _, ack, _ in chain(self._unsettled, self._behind):
            if batch is not None and isinstance(ack, PendingAck):
                yield batch, ack

    def retransmit(self, effects: list[Effect]) -> None:
        """Repeat whatever the peer may not have got."""
        if self.connected and not self.established:
            self._put(self._hello(), effects)
        elif self.established and self._unsettled:
            self._back_to(self._peer_expected)
            if not self._waiting:
                # At least one goes out, to be told what is settled: an acknowledgement may have been lost.
                self._waiting = 1
                self._next -= self._unsettled[-1][2]
            self._send_on(effects)

    def reclaim(self, effects: list[Effect]) -> list[tuple[Control | Batch, PendingAck | None]]:
        """What the peer has not settled and others may bring where it is meant for; the two have to greet each other anew."""
        taken: list[tuple[Control | Batch, PendingAck | None]] = []
        while self._behind:
            self._let_in()
        for word, batch, _, keeper, _ in self._unsettled:
            ack = keeper if isinstance(keeper, PendingAck) else None
            if batch is not None:
                taken.append((batch, ack))
            elif word is not None and not isinstance(word, AdvertisementsEnd | SyncEnd | Rejected) and is_addressed(word):
                taken.append((word, ack))
            elif isinstance(keeper, Waiters):
                keeper.release()
        self._unsettled.clear()
        self.reset()
        self._start_again(())
        if self.connected:
            self._put(self._hello(), effects)
        return taken

    def close(self) -> None:
        """The peer will not come back: nothing waits for it any more."""
        while self._behind:
            self._let_in()
        self._take(self._end, self._peer_expected)
        self.stream += 1

    # ---- in

    def is_new(self, frame: Hello) -> bool:
        """Whether the peer has forgotten all that was before; then it has to be greeted."""
        return self.connected and frame.incarnation > self.peer_incarnation

    def on_hello(self, frame: Hello, greeting: Iterable[ControlMessage], effects: list[Effect]) -> None:
        """The peer introduces itself; to a new one ``greeting`` goes first."""
        if not self.connected or frame.incarnation < self.peer_incarnation:
            return
        if self.is_new(frame):
            self.peer_incarnation = frame.incarnation
            self._start_again(greeting)
        if frame.peer_incarnation != self.incarnation:
            self._put(self._hello(), effects)
            return
        self.established = True
        # More may be settled than our last greeting said, and an acknowledgement went nowhere meanwhile.
        self._acknowledged, self._untold = -1, bool(self._settled_ahead)
        self._ack_scheduler.later[self] = None
        if not frame.confirmed:
            self._put(self._hello(), effects)
        self.peer_unmatched = max(self.peer_unmatched, self._peer_unmatched_before + frame.unmatched)
        self._take(frame.acknowledged, frame.expected)
        self._back_to(frame.expected)
        self._send_on(effects)

    def receive(self, frame: ControlFrame | BatchFrame, rows: int, effects: list[Effect]) -> bool:
        """Whether this is the next content in order, and so many rows long; it is to be settled when it is processed."""
        if not self.established or frame.incarnation != self.peer_incarnation or frame.peer_incarnation != self.incarnation:
            return False
        if frame.acknowledged > self._base:
            self._take(frame.acknowledged, self._peer_expected)
            if self._behind:
                self._send_on(effects)
        if frame.sequence != self._expected:
            self._ack_scheduler.later[self] = None  # the sender seems not to know what we have
            self._acknowledged, self._untold = -1, bool(self._settled_ahead)
            return False
        self._expected += rows
        return True

    def on_acknowledgement(self, frame: Acknowledgement, effects: list[Effect]) -> None:
        """The peer has settled more: go on sending."""
        if self.established and frame.incarnation == self.peer_incarnation and frame.peer_incarnation == self.incarnation:
            if frame.unmatched:
                self.peer_unmatched = max(self.peer_unmatched, self._peer_unmatched_before + frame.unmatched)
            self._take(frame.acknowledged, frame.expected)
            if frame.ranges:
                self._release_ahead(frame.ranges)
            if self._behind:
                self._send_on(effects)

    def settle(self, sequence: int, rows: int, control: bool = False, unmatched: int = 0) -> None:
        """The content with this number, and all that it caused, is settled; so many of its rows matched nobody."""
        settled, ahead = sequence + rows, self._settled_ahead
        if control:
            self._ack_scheduler.soon[self] = None
        if sequence != self._settled:
            ahead[sequence] = settled
            if unmatched:
                self._unmatched_ahead[sequence] = unmatched
            if control or self._ack_scheduler.selective:
                self._untold = True
                self._ack_scheduler.later[self] = None
            return
        while ahead and settled in ahead:
            if self._unmatched_ahead:
                unmatched += self._unmatched_ahead.pop(settled, 0)
            settled = ahead.pop(settled)
        self._unmatched += unmatched
        self._settled = settled
        if settled - self._acknowledged >= self._acknowledge_every:
            self._ack_scheduler.now[self] = None
        else:
            self._ack_scheduler.later[self] = None

    def ack_due(self) -> bool:
        """Whether the peer has not been told of all that is settled, or is to be told again."""
        return self._settled > self._acknowledged or self._untold

    def acknowledge(self, effects: list[Effect], ahead: bool = False) -> None:
        """Tell the peer what is settled, and on request, or if there is control among it, what is settled ahead."""
        if self.established:
            self._acknowledged, self._unmatched_told = self._settled, self._unmatched
            stretches = self._stretches() if self._settled_ahead and (ahead or self._untold) else ()
            numbers = self.incarnation, self.peer_incarnation, self._settled, self._expected
            self._put(Acknowledgement(*numbers, stretches, self._unmatched), effects)

    def validate(self) -> None:
        """Check what must always hold."""
        assert 0 <= self._waiting <= len(self._unsettled)
        assert not self._waiting or not self.established
        assert self._end == self._base + sum(rows for _, _, rows, _, _ in self._unsettled)
        sent = islice(self._unsettled, len(self._unsettled) - self._waiting)
        assert self._next == self._base + sum(rows for _, _, rows, _, _ in sent)
        assert self._counted == sum(counted for _, _, _, _, counted in self._unsettled)
        assert self._counted_bytes == sum(_bytes_of(entry) for entry in self._unsettled)
        assert self._counted >= self._window or self._counted_bytes >= self._window_bytes or not self._behind
        assert self._behind_rows == sum(rows for _, _, rows, _, _ in self._behind)
        assert -1 <= self._acknowledged <= self._settled <= self._expected
        assert all(self._settled < start < end <= self._expected for start, end in self._settled_ahead.items())
        assert 0 <= self._unmatched_told <= self._unmatched <= self._settled
        assert self._unmatched_ahead.keys() <= self._settled_ahead.keys()
        assert self.connected or not self.established
        keepers = (entry[3] for entry in chain(self._unsettled, self._behind))
        assert self.pending_bytes == sum(keeper.bytes for keeper in keepers if isinstance(keeper, BufferedBytes))

    # ---- helpers

    def _telling_settled(self) -> int:
        """How many settled rows a content that goes out tells of: none of which the peer has to hear how many matched nobody."""
        if self._unmatched != self._unmatched_told:
            return max(self._acknowledged, 0)
        self._acknowledged = self._settled
        return self._settled

    def _stretches(self) -> tuple[tuple[int, int], ...]:
        """Some of what is settled ahead, as few stretches as it takes, from where the last ones ended."""
        stretches: list[tuple[int, int]] = []
        for start, end in sorted(self._settled_ahead.items()):
            if stretches and stretches[-1][1] == start:
                stretches[-1] = stretches[-1][0], end
            else:
                stretches.append((start, end))
        some = [stretch for stretch in stretches if stretch[1] > self._told_ahead][:_STRETCHES_MAX]
        self._untold = bool(some) and some[-1] != stretches[-1]
        self._told_ahead = some[-1][1] if self._untold else 0
        if self._untold:
            self._ack_scheduler.later[self] = None
        return tuple(some)

    def _keep(self, batch: Batch, ack: PendingAck | Waiters | BufferedBytes | None) -> BufferedBytes:
        kept = BufferedBytes(self, _CONTENT_BYTES + batch.size_bytes())
        self.buffering = self.pending_bytes < self._pending_bytes_max
        if ack is not None:
            ack.release()
        return kept

    def _put(self, frame: Frame, effects: list[Effect]) -> None:
        effects.append(SendFrame(self.peer, frame))

    def _hello(self) -> Hello:
        numbers = self.incarnation, self.peer_incarnation, self._settled, self._expected
        return Hello(*numbers, self.established, self._unmatched)

    def _take(self, acknowledged: int, expected: int) -> None:
        """The peer has settled all before ``acknowledged`` and got all before ``expected``."""
        self._peer_expected = max(self._peer_expected, expected)
        unsettled, base = self._unsettled, self._base
        while base < acknowledged and unsettled:
            _, batch, rows, ack, counted = unsettled.popleft()
            self._base = base = base + rows
            if counted and batch is not None:
                self._counted -= counted
                self._counted_bytes -= batch.wire_bytes
            if self._next < base:  # it was taken back, to be sent again
                self._next = base
                self._waiting -= 1
            if ack is not None:
                ack.release()
        if self._marks:
            self._settle_marks()

    def _settle_marks(self) -> None:
        while self._marks and self._marks[0].position <= self._base:
            self._marks.popleft().settled = True

    def _entry(self, word: ControlMessage, ack: PendingAck | None = None) -> _Unsettled:
        """A word to be sent, with those who wait for it."""
        key = None if isinstance(word, AdvertisementsEnd | SyncEnd | Rejected) else control_key(word)
        if key is None or isinstance(word, AdvertisementsEnd | SyncEnd | Rejected):
            return word, None, 1, ack, 0
        return word, None, 1, Waiters(self._latest, key, word.id, ack), 0

    def _release_ahead(self, stretches: Iterable[tuple[int, int]]) -> None:
        """Let go those who wait for contents that are settled while some before them are not."""
        number, released, rest = self._base, [], iter(stretches)
        start, end = next(rest, (self._end, self._end))
        for place, (word, batch, rows, ack, counted) in enumerate(self._unsettled):
            while number >= end < self._end:
                start, end = next(rest, (self._end, self._end))
            if ack is not None and start <= number and number + rows <= end:
                self._unsettled[place] = (word, batch, rows, None, counted)
                released.append(ack)
            number += rows
        for ack in released:
            ack.release()

    def _back_to(self, expected: int) -> None:
        """Take back what the peer has not got, to be sent again."""
        while self._waiting < len(self._unsettled) and self._next > expected:
            self._waiting += 1
            self._next -= self._unsettled[-self._waiting][2]

    def _let_in(self) -> None:
        """Number the first of what was held back."""
        entry = self._behind.popleft()
        self._unsettled.append(entry)
        self._behind_rows -= entry[2]
        self._end += entry[2]
        self._counted += entry[4]
        self._counted_bytes += _bytes_of(entry)
        self._waiting += 1

    def _send_on(self, effects: list[Effect]) -> None:
        """All that may go out now and has not."""
        while self._behind and self._counted < self._window and self._counted_bytes < self._window_bytes:
            self._let_in()
        if not self.established or not self._waiting:
            return
        settled = self._telling_settled()
        # From the end: there may be many before those that wait.
        for word, batch, rows, _, _ in reversed(list(islice(reversed(self._unsettled), self._waiting))):
            numbers = self.incarnation, self.peer_incarnation, self._next, settled
            if word is not None:
                self._put(ControlFrame(*numbers, word), effects)
            elif batch is not None:
                self._put(BatchFrame(*numbers, batch), effects)
            self._next += rows
        self._waiting = 0

    def _start_again(self, greeting: Iterable[ControlMessage]) -> None:
        self.established = False
        self.stream += 1
        before = self._unsettled
        waiting = [(keeper.key, keeper.leave()) for _, _, _, keeper, _ in before if isinstance(keeper, Waiters)]
        told = [self._entry(word) for word in greeting]
        self._move_marks(before, len(told))
        kept = [entry for entry in before if entry[0] is None or is_addressed(entry[0])]
        self._unsettled = deque([*told, *kept])
        self._base = self._next = self._peer_expected = self._expected = self._settled = self._acknowledged = 0
        self._end, self._waiting = sum(entry[2] for entry in self._unsettled), len(self._unsettled)
        self._counted = sum(entry[4] for entry in self._unsettled)
        self._counted_bytes = sum(map(_bytes_of, self._unsettled))
        self.unsettled_control = 0
        self._settled_ahead.clear()
        self._unmatched_ahead.clear()
        self._unmatched, self._unmatched_told, self._peer_unmatched_before = 0, 0, self.peer_unmatched
        self._told_ahead, self._untold = 0, False
        # What was in flight is among what the peer hears now, unless it was withdrawn.
        for key, acks in waiting:
            for ack in acks:
                self.wait_for(key, ack)
                ack.release()
        self._settle_marks()

    def _move_marks(self, before: "deque[_Unsettled]", told: int) -> None:
        """Have marks lie behind what they lay behind: the peer hears ``told`` words first, then what is kept of the others."""
        number, position, entries = self._base, told, iter(before)
        end = self._end
        for mark in self._marks:
            while number < min(mark.position, end):
                word, _, rows, _, _ = next(entries)
                number += rows
                position += rows if word is None or is_addressed(word) else 0
            mark.position = position + max(mark.position - end, 0)


def _bytes_of(entry: _Unsettled) -> int:
    """How many bytes of a content the window counts."""
    _, batch, _, _, counted = entry
    return batch.wire_bytes if counted and batch is not None else 0
