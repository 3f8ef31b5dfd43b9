"""Two sessions talking over the worst of connections."""

from collections import deque

from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.broker.session import Session
from overweave.contract.config import SessionConfig
from overweave.contract.frames import Acknowledgement, Data, Hello, Synced
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.publications import Publication

CONFIG = SessionConfig(window=4)


def publish(number):
    return Publish(Publication({"x": number}), Header("p", number))


class Side:
    """A session with what came in, and custody of what has not been settled."""

    def __init__(self, incarnation=1):
        self.dirty = {}
        self.session = Session("other", incarnation, CONFIG, self.dirty)
        self.got, self.custodies = [], deque()

    def take(self, frame):
        match frame:
            case Hello():
                greeting = [Synced()] if self.session.is_new(frame) else []
                return list(self.session.hello(frame, greeting))
            case Acknowledgement():
                return list(self.session.acknowledgement(frame))
            case Data():
                custody = self.session.data(frame)
                if custody is not None:
                    self.custodies.append(custody)
                    if isinstance(frame.content, Publish):
                        self.got.append(frame.content.header.sequence)
                return []

    def settle(self):
        while self.custodies:
            self.custodies.popleft().release()
        return list(self.session.acknowledge())


def exchange(a, b, frames_to_b, frames_to_a):
    """Let all frames arrive, with no more losses, until nothing is under way."""
    for _ in range(200):
        if frames_to_b:
            frames_to_a += b.take(frames_to_b.pop(0))
        elif frames_to_a:
            frames_to_b += a.take(frames_to_a.pop(0))
        else:
            frames_to_a += b.settle() if b.custodies else []
            frames_to_b += a.settle() if a.custodies else []
            if not frames_to_a and not frames_to_b:
                return
    raise AssertionError("they never stop talking")


def connected():
    a, b = Side(), Side()
    exchange(a, b, list(a.session.connect()), list(b.session.connect()))
    return a, b


def test_contents_arrive_in_order_within_the_window():
    a, b = connected()
    frames = [frame for number in range(10) for frame in a.session.send(publish(number))]
    assert len(frames) == 4
    exchange(a, b, frames, [])
    assert b.got == list(range(10))
    assert a.session.unsettled() == 0


def test_what_is_not_settled_is_kept_though_it_arrived():
    a, b = connected()
    for frame in a.session.send(publish(0)):
        b.take(frame)
    for frame in b.session.acknowledge():
        a.take(frame)
    assert a.session.unsettled() == 1
    for frame in b.settle():
        a.take(frame)
    assert a.session.unsettled() == 0


def test_a_duplicate_is_settled_only_with_the_first():
    a, b = connected()
    for number in (0, 1):
        for frame in a.session.send(publish(number)):
            b.take(frame)
    first, second = b.custodies
    second.follow(first)
    assert b.session.unacknowledged() == 0
    first.release()
    assert b.session.unacknowledged() == 2


def test_a_new_incarnation_is_greeted_before_it_gets_what_was_not_settled():
    a, _ = connected()
    for number in (0, 1):
        list(a.session.send(publish(number)))
    a.session.disconnect()
    new = Side(incarnation=2)
    arrived = []
    to_new, to_a = list(a.session.connect()), list(new.session.connect())
    while to_new or to_a:
        if to_new:
            frame = to_new.pop(0)
            arrived += [frame.content] if isinstance(frame, Data) else []
            to_a += new.take(frame)
        else:
            to_new += a.take(to_a.pop(0))
    assert [type(content).__name__ for content in arrived[:3]] == ["Synced", "Publish", "Publish"]
    assert new.got == [0, 1]


def test_what_belongs_to_an_older_stream_is_dropped():
    a, _ = connected()
    old = list(a.session.send(publish(0)))
    new = Side(incarnation=2)
    new.session.peer_incarnation = 1
    list(new.session.connect())
    assert [new.take(frame) for frame in old] == [[]]
    assert new.got == []


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_nothing_is_lost_or_doubled_whatever_the_connection_does(data):
    a, b = Side(), Side()
    to_b, to_a = list(a.session.connect()), list(b.session.connect())
    sent = 0
    for _ in range(data.draw(st.integers(0, 40))):
        match data.draw(st.sampled_from(["send", "to_b", "to_a", "lose", "double", "swap", "settle", "resend", "break"])):
            case "send":
                to_b += a.session.send(publish(sent))
                sent += 1
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
            case "resend":
                to_b += a.session.resend()
                to_a += b.session.resend()
            case "break":
                for side in (a, b):
                    side.session.disconnect()
                to_b, to_a = list(a.session.connect()), list(b.session.connect())
        a.session.validate()
        b.session.validate()
    for _ in range(6):
        exchange(a, b, to_b, to_a)
        to_b, to_a = list(a.session.resend()), list(b.session.resend())
    exchange(a, b, to_b, to_a)
    assert b.got == list(range(sent))
    assert a.session.unsettled() == 0
