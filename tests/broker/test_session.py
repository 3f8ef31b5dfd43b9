"""Two sessions talking over the worst of connections."""

from collections import deque
from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.batches.objects import Rows
from overweave.broker.pending_ack import PendingAck
from overweave.broker.session import AckScheduler, EpochCounter, Session
from overweave.contract.config import SessionConfig
from overweave.contract.frames import (
    NO_EPOCH,
    Acknowledgement,
    BatchFrame,
    ControlFrame,
    Hello,
    SessionEpoch,
    SyncEnd,
    UrgentFrame,
)
from overweave.language.headers import Header
from overweave.language.messages import Publish, Unsubscribe
from overweave.language.publications import Publication

CONFIG = SessionConfig(window=4)


def publish(*numbers, publisher="p"):
    return Rows(tuple(Publish(Publication({"x": number}), Header(publisher, number)) for number in numbers))


def frames(act, *arguments):
    """What a method of a session sends."""
    effects = []
    act(*arguments, effects)
    return [effect.frame for effect in effects]


def sent(session, batch):
    return frames(session.outbound.send, batch, None)


def relayed(session, batch):
    return frames(partial(session.outbound.send, window_exempt=True), batch, None)


class Side:
    """A session with what came in, and custody of what has not been settled."""

    def __init__(self, incarnation=1):
        self.session = Session("other", EpochCounter(incarnation), CONFIG, AckScheduler())
        self.got, self.urgent, self.acks = [], [], deque()

    def take(self, frame):
        match frame:
            case Hello():
                greeting = [SyncEnd()] if self.session.has_new_epoch(frame) else []
                return frames(self.session.on_hello, frame, greeting)
            case Acknowledgement():
                return frames(self.session.on_acknowledgement, frame)
            case UrgentFrame():
                self.urgent += [number for _, _, number in frame.batch.identities() if self.session.is_current(frame)]
                return []
            case BatchFrame() | ControlFrame():
                effects, rows = [], frame.batch.count if isinstance(frame, BatchFrame) else 1
                if self.session.receive(frame, rows, effects):
                    self.acks.append(PendingAck(self.session.inbound, self.session.inbound.stream, frame.sequence, rows))
                    if isinstance(frame, BatchFrame):
                        self.got += ((of, number) for of, _, number in frame.batch.identities())
                    elif isinstance(frame.message, Unsubscribe):
                        self.got.append(("word", int(frame.message.id)))
                return [effect.frame for effect in effects]

    def got_of(self, publisher):
        return [number for of, number in self.got if of == publisher]

    def settle(self):
        while self.acks:
            self.acks.popleft().release()
        return frames(self.session.acknowledge)


def exchange(a, b, frames_to_b, frames_to_a):
    """Let all frames arrive, with no more losses, until nothing is under way."""
    for _ in range(1000):
        if frames_to_b:
            frames_to_a += b.take(frames_to_b.pop(0))
        elif frames_to_a:
            frames_to_b += a.take(frames_to_a.pop(0))
        else:
            frames_to_a += b.settle() if b.acks or b.session.inbound.has_unacknowledged() else []
            frames_to_b += a.settle() if a.acks or a.session.inbound.has_unacknowledged() else []
            if not frames_to_a and not frames_to_b:
                return
    raise AssertionError("they never stop talking")


def connected():
    a, b = Side(), Side()
    exchange(a, b, frames(a.session.connect), frames(b.session.connect))
    return a, b


def test_contents_arrive_in_order_within_the_window():
    a, b = connected()
    first = [frame for number in range(10) for frame in sent(a.session, publish(number))]
    assert len(first) == 4
    exchange(a, b, first, [])
    assert b.got_of("p") == list(range(10))
    assert a.session.outbound.unsettled_entries() == 0


def test_transit_overtakes_blocked_publications_and_control_does_not():
    a, b = connected()
    to_b = [frame for number in range(6) for frame in sent(a.session, publish(number))]
    to_b += relayed(a.session, publish(0, publisher="q"))
    to_b += frames(a.session.send_control, Unsubscribe("0"))
    to_b += sent(a.session, publish(6))
    a.session.validate()
    assert a.session.outbound.unsettled_rows() == 9
    for frame in to_b:
        b.take(frame)
    assert b.got == [*(("p", i) for i in range(4)), ("q", 0), ("p", 4), ("p", 5), ("word", 0)]
    exchange(a, b, [], b.settle())
    assert b.got_of("p") == list(range(7))


def test_room_that_publications_of_the_other_direction_tell_of_is_used():
    a, b = connected()
    for frame in [frame for number in range(6) for frame in sent(a.session, publish(number))]:
        b.take(frame)
    while b.acks:
        b.acks.popleft().release()
    (answer,) = sent(b.session, publish(0, publisher="q"))
    assert not b.session.inbound.has_unacknowledged()
    assert [frame.sequence for frame in a.take(answer)] == [5, 6]  # the greeting had the first number


def test_what_is_not_settled_is_kept_though_it_arrived():
    a, b = connected()
    for frame in sent(a.session, publish(0)):
        b.take(frame)
    for frame in frames(b.session.acknowledge):
        a.take(frame)
    assert a.session.outbound.unsettled_entries() == 1
    for frame in b.settle():
        a.take(frame)
    assert a.session.outbound.unsettled_entries() == 0


def test_a_duplicate_is_settled_only_with_the_first():
    a, b = connected()
    for number in (0, 1):
        for frame in sent(a.session, publish(number)):
            b.take(frame)
    first, second = b.acks
    second.follow_first_copy(first)
    second.release()
    assert not b.session.inbound.has_unacknowledged()
    first.release()
    assert frames(b.session.acknowledge)[0].acknowledged == 3  # with the greeting


def test_a_duplicate_that_waits_for_a_first_copy_with_several_parts_can_stop_waiting():
    a, b = connected()
    for number in (0, 1):
        for frame in sent(a.session, publish(number)):
            b.take(frame)
    first, second = b.acks
    b.session.disconnect()
    assert [second.follow_first_copy(first) for _ in range(2)] == [True, False]
    second.release()
    assert not second.acked
    second.stop_following(first)
    assert second.acked


def test_a_new_incarnation_is_greeted_before_it_gets_what_was_not_settled():
    a, _ = connected()
    for number in (0, 1):
        sent(a.session, publish(number))
    a.session.disconnect()
    new = Side(incarnation=2)
    arrived = []
    to_new, to_a = frames(a.session.connect), frames(new.session.connect)
    while to_new or to_a:
        if to_new:
            frame = to_new.pop(0)
            arrived += [frame] if isinstance(frame, ControlFrame | BatchFrame) else []
            to_a += new.take(frame)
        else:
            to_new += a.take(to_a.pop(0))
    assert [type(frame).__name__ for frame in arrived[:3]] == ["ControlFrame", "BatchFrame", "BatchFrame"]
    assert new.got_of("p") == [0, 1]


def test_what_belongs_to_an_older_stream_is_dropped():
    a, _ = connected()
    old = sent(a.session, publish(0))
    new = Side(incarnation=2)
    new.session.handshake.peer_epoch = SessionEpoch(1, 0)
    frames(new.session.connect)
    assert [new.take(frame) for frame in old] == [[]]
    assert new.got == []


def test_what_is_settled_before_a_new_connection_knows_its_ends_is_told():
    a, b = connected()
    for frame in sent(a.session, publish(0)):
        b.take(frame)
    for side in (a, b):
        side.session.disconnect()
    to_b, to_a = frames(a.session.connect), frames(b.session.connect)
    assert b.settle() == []
    exchange(a, b, to_b, to_a)
    assert a.session.outbound.unsettled_entries() == 0


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_nothing_is_lost_or_doubled_whatever_the_connection_does(data):
    a, b = Side(), Side()
    to_b, to_a = frames(a.session.connect), frames(b.session.connect)
    counts, said, urgent = {"p": 0, "q": 0, "back": 0}, [], 0

    def send(session, publisher, act=sent):
        first, rows = counts[publisher], data.draw(st.integers(1, 3))
        counts[publisher] += rows
        return act(session, publish(*range(first, first + rows), publisher=publisher))

    acts = [
        "send",
        "send",
        "pass",
        "say",
        "urgent",
        "back",
        "to_b",
        "to_a",
        "lose",
        "double",
        "swap",
        "settle",
        "resend",
        "break",
    ]
    for _ in range(data.draw(st.integers(0, 40))):
        match data.draw(st.sampled_from(acts)):
            case "send":
                to_b += send(a.session, "p")
            case "pass":
                to_b += send(a.session, "q", relayed)
            case "urgent":
                urgent += 1
                to_b += frames(a.session.send_urgent, publish(urgent, publisher="u"))
                to_b.insert(0, to_b.pop()) if to_b else None  # it overtakes everything
            case "back":
                to_a += send(b.session, "back")
            case "say" if a.session.peer_epoch != NO_EPOCH:  # else a restart of the stream drops it
                to_b += frames(a.session.send_control, Unsubscribe(str(len(said))))
                said.append((counts["p"], counts["q"]))
            case "to_b" if to_b:
                to_a += b.take(to_b.pop(0))
            case "to_a" if to_a:
                to_b += a.take(to_a.pop(0))
            case "lose":
                (to_b or to_a or [None]).pop(0)
            case "double":
                to_b += to_b[:1]
                to_a += to_a[:1]
            case "swap":
                to_b.reverse()
                to_a.reverse()
            case "settle":
                to_a += b.settle()
                to_b += a.settle()
            case "resend":
                to_b += frames(a.session.retransmit)
                to_a += frames(b.session.retransmit)
            case "break":
                for side in (a, b):
                    side.session.disconnect()
                to_b, to_a = frames(a.session.connect), frames(b.session.connect)
        a.session.validate()
        b.session.validate()
    for _ in range(6):
        exchange(a, b, to_b, to_a)
        to_b, to_a = frames(a.session.retransmit), frames(b.session.retransmit)
    exchange(a, b, to_b, to_a)
    assert {**counts, "back": 0} == {publisher: len(b.got_of(publisher)) for publisher in counts}
    assert all(b.got_of(publisher) == list(range(counts[publisher])) for publisher in "pq")
    assert a.got_of("back") == list(range(counts["back"]))
    assert b.got_of("word") == list(range(len(said)))
    assert set(b.urgent) <= set(range(1, urgent + 1))
    for number, before in enumerate(said):  # a word overtakes nothing
        until = b.got[: b.got.index(("word", number))]
        assert all(sum(of == publisher for of, _ in until) >= least for publisher, least in zip("pq", before, strict=True))
    assert a.session.outbound.unsettled_entries() == 0
    assert b.session.outbound.unsettled_entries() == 0


class Recorded(Side):
    """A side that writes down every numbered frame that it sends, and every answer."""

    def state(self):
        inbound, outbound = self.session.inbound, self.session.outbound
        return (
            inbound.expected, inbound.unsettled_publications(), inbound.has_unacknowledged(),
            outbound.settled_rows(), outbound.unsettled_entries(), outbound.unsettled_rows(), outbound.unsettled_windowed_rows(),
        )  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from(["p", "q", "to_b", "to_a", "settle", "resend", "lose", "double", "swap"]), max_size=30), st.data()
)
def test_urgent_frames_never_disturb_the_numbered_stream(acts, data):
    """The same run with and without urgent frames, which are lost, doubled and reordered at will."""
    runs = []
    for is_urgent in (False, True):
        a, b = Recorded(), Recorded()
        exchange(a, b, frames(a.session.connect), frames(b.session.connect))
        to_b, to_a, log = [], [], []
        for number, act in enumerate(acts):
            if is_urgent and data.draw(st.booleans()):
                some = frames(a.session.send_urgent, publish(number, publisher="u"))
                for frame in some * data.draw(st.integers(0, 2)):
                    assert b.take(frame) == []
                assert a.take(some[0]) == []  # a stray copy
            match act:
                case "p":
                    to_b += sent(a.session, publish(number))
                case "q":
                    to_b += relayed(a.session, publish(number, publisher="q"))
                case "to_b" if to_b:
                    to_a += b.take(to_b.pop(0))
                case "to_a" if to_a:
                    to_b += a.take(to_a.pop(0))
                case "settle":
                    to_a += b.settle()
                case "resend":
                    to_b += frames(a.session.retransmit)
                case "lose":
                    to_b = to_b[1:]
                case "double":
                    to_b += to_b[:1]
                case "swap":
                    to_b.reverse()
            for side in (a, b):
                side.session.validate()
            log.append(([(type(f).__name__, f.epoch, getattr(f, "sequence", None)) for f in to_b + to_a], a.state(), b.state()))
        exchange(a, b, to_b, to_a)
        runs.append((log, b.got, a.state(), b.state()))
    assert runs[0] == runs[1]
