"""Messages in their wire form: they come back as they were, and whatever is broken is refused as broken input."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from overweave.batches.base import BatchHead
from overweave.batches.destinations import (
    NextHops,
    destination_counts,
    encode_list,
    split_by_next_hop,
    split_local,
    with_destinations,
)
from overweave.batches.objects import Rows
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.batches.trace_fields import trace_fields
from overweave.contract.frames import (
    Acknowledgement,
    AdvertisementsEnd,
    BatchFrame,
    ControlFrame,
    Hello,
    Rejected,
    SessionEpoch,
    SyncEnd,
    UrgentFrame,
)
from overweave.contract.wire import (
    BATCH,
    CONTROL,
    FRAME_BYTES_MAX,
    HEAD,
    OPEN,
    OPEN_BYTES_MAX,
    Connect,
    Disconnect,
    Error,
    Gap,
    Notice,
    Ping,
    decode,
    encode,
)
from overweave.drivers.tcp.frame_reader import FrameReader
from overweave.errors import InvalidInput, WireError
from overweave.language.generations import at_generation, is_stable
from overweave.language.headers import Epoch, Header, Origin
from overweave.language.messages import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.routing.messages import LinkState, StateSnapshot
from overweave.testing.strategies import any_filters, any_publications

numbers = st.integers(0, 2**64 - 1)
texts = st.text(max_size=20)
ids = st.text(min_size=1, max_size=20).filter(is_stable)
#: Ids of any generation.
generation_ids = st.builds(at_generation, ids, st.just(0) | st.integers(0, 2**32 - 1))
some_texts = st.lists(texts, max_size=3).map(tuple)
route_epochs = st.builds(Epoch, st.integers(0, 2**43), st.integers(0, 2**40))
origins = st.none() | st.builds(Origin, texts, route_epochs)
plain_headers = st.just(Header()) | st.builds(
    Header, source=texts, destinations=st.sets(st.integers(0, 2000), max_size=3).map(sorted).map(tuple),
    path=some_texts, tree=texts,
    cluster=texts, backup=st.booleans(), origin=origins, trace=texts, hops=st.integers(0, 300), ttl=st.integers(0, 300),
)  # fmt: skip
words = (
    st.builds(Advertise, generation_ids, any_filters, plain_headers)
    | st.builds(Subscribe, generation_ids, any_filters, plain_headers)
    | st.builds(Unadvertise, generation_ids, plain_headers) | st.builds(Unsubscribe, generation_ids, plain_headers)
    | st.builds(AdvertisementsEnd) | st.builds(SyncEnd) | st.builds(Rejected, generation_ids, texts, texts, st.booleans())
    | st.builds(
        LinkState, ids, st.integers(0, 2000), st.integers(0, 9), st.integers(0, 9), some_texts, some_texts, plain_headers
    )
    | st.builds(
        StateSnapshot, ids,
        st.lists(st.tuples(generation_ids, any_filters, some_texts, st.booleans(), origins), max_size=3).map(tuple),
        plain_headers, st.booleans(), st.none() | st.lists(st.tuples(generation_ids, route_epochs), max_size=2).map(tuple),
    )
)  # fmt: skip
publishes = st.builds(
    Publish,
    any_publications,
    st.builds(Header, publisher=ids, sequence=st.integers(0, 2**63 - 1), published_at_s=st.floats(0, 1e12), life=numbers),
    st.binary(max_size=10),
)
batches = st.builds(
    lambda rows, tag: Rows(tuple(rows)).with_tag(tag), st.lists(publishes, min_size=1, max_size=4), st.integers(0, 255)
)
E1, E2 = SessionEpoch(1, 0), SessionEpoch(2, 0)
epochs = st.builds(SessionEpoch, numbers, st.integers(0, 2**32 - 1))
gaps = st.builds(Gap, texts, texts, st.floats(0, 1e9), st.integers(0, 99))
messages = (
    st.builds(
        Connect, texts, texts, st.none() | texts, st.none() | texts, st.integers(0, 9), st.none() | st.integers(1, 99),
        st.booleans(), st.none() | gaps,
    )
    | st.builds(Error, texts, texts) | st.builds(Notice, texts, texts, numbers)
    | st.builds(Ping) | st.builds(Disconnect) | st.builds(Hello, epochs, epochs, numbers, numbers, st.booleans(), numbers)
    | st.builds(
        Acknowledgement, st.sampled_from((E1, E2)), st.sampled_from((E1, E2)), numbers, numbers,
        st.lists(st.tuples(numbers, numbers), max_size=2).map(tuple), numbers,
    )
    | st.builds(ControlFrame, epochs, epochs, numbers, numbers, words)
    | st.builds(BatchFrame, epochs, epochs, numbers, numbers, batches) | st.builds(UrgentFrame, epochs, epochs, batches)
)  # fmt: skip


def wire(message):
    return b"".join(encode(message))


def told(message):
    """A message so that it can be compared: batches by their bytes, since NaN equals nothing."""
    return wire(message) if isinstance(message, BatchFrame | UrgentFrame) else message


def reader():
    made = FrameReader()
    made.bytes_max = FRAME_BYTES_MAX
    return made


def look(message):
    """Look at all that is in a message, as a broker and a client would."""
    if isinstance(message, BatchFrame | UrgentFrame):
        message.batch.validate()
        message.batch.publishes()
        message.batch.check_origin("p")


@given(messages)
def test_messages_come_back_as_they_were(message):
    data = wire(message)
    length, kind = HEAD.unpack_from(data)
    assert length == len(data) - 4
    back = decode(kind, data[HEAD.size :])
    assert type(back) is type(message)
    assert told(back) == told(message)
    if isinstance(message, BatchFrame | UrgentFrame):
        assert isinstance(back.batch, RawRows)
        assert back.batch.tag == message.batch.tag
        assert list(map(repr, back.batch.publishes())) == list(map(repr, message.batch.publishes()))


@given(st.lists(messages, max_size=5), st.data())
def test_a_stream_may_be_cut_anywhere(some, data):
    stream = b"".join(map(wire, some))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    pieces = [stream[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    frames = reader()
    found = [told(message) for piece in pieces for message in frames.feed(piece)]
    for message, after in reversed(list(pairwise([*some, None]))):
        if found and found[-1] == told(message):
            found.pop()
        else:
            assert makes_outdated(after, message)
    assert not found


def makes_outdated(after, message):
    """Whether nobody needs to hear a message that came together with the next one."""
    both = (message, after)
    if not all(isinstance(some, Acknowledgement) and not some.ranges for some in both):
        return False
    return (message.epoch, message.peer_epoch) == (after.epoch, after.peer_epoch)


def test_of_acknowledgements_that_come_together_the_last_is_heard():
    some = [Acknowledgement(E1, E2, n, n) for n in range(5)]
    others = [Acknowledgement(E2, E2, 7, 7), Acknowledgement(E2, E2, 8, 8, ((9, 10),)), Acknowledgement(E2, E2, 8, 8), Ping()]
    assert list(reader().feed(b"".join(map(wire, [*some, *others])))) == [some[-1], *others]


@pytest.mark.parametrize("seed", range(8))
def test_long_and_short_frames_one_after_the_other(seed):
    random = np.random.default_rng(seed)
    sizes = random.permutation([1, 1, 900, 4_000, 5_000, 66_000, 70_000, 1_050_000, 2_300_000, *[30_000] * 20])
    some = [BatchFrame(E1, E2, n, 0, rows_of(1 + n % 3, bytes([n]) * size)) for n, size in enumerate(sizes.tolist())]
    stream, frames, found = memoryview(b"".join(map(wire, some))), reader(), []
    while stream:
        room = frames.get_buffer()
        count = min(len(room), len(stream), int(random.integers(1, 300_000)))
        room[:count] = stream[:count]
        stream = stream[count:]
        found += frames.buffer_updated(count)
    # All are looked at only now: what came later must not have been written over what came before.
    assert list(map(told, found)) == list(map(told, some))


def test_room_is_not_made_because_somebody_says_so():
    frames = reader()
    assert list(frames.feed(HEAD.pack(FRAME_BYTES_MAX, BATCH))) == []
    assert len(frames.get_buffer()) < 2 << 20


def test_hops_are_counted_without_touching_rows():
    once = rows_of(3, b"payload").next_hop()
    back = decode(BATCH, wire(BatchFrame(E1, E2, 0, 0, once.next_hop()))[HEAD.size :]).batch
    assert back.data.tobytes() == once.data.tobytes() == rows_of(3, b"payload").data.tobytes()
    ttl = Header().ttl
    assert [(publish.header.hops, publish.header.ttl) for publish in back.next_hop().publishes()] == [(3, ttl - 3)] * 3
    assert [arrival.hops for arrival in trace_fields(back)] == [2, 2, 2]
    assert back.ttl == ttl - 2
    with pytest.raises(WireError, match="no broker has forwarded"):
        back.check_origin("p")


def test_rows_that_are_all_for_the_same_brokers_are_not_touched():
    rows = rows_of(3, b"payload")
    bound = with_destinations(rows, [(7, np.arange(3)), (130, np.arange(3))])
    back = decode(BATCH, wire(BatchFrame(E1, E2, 0, 0, bound))[HEAD.size :]).batch
    assert back.data.tobytes() == rows.data.tobytes()
    assert [publish.header.destinations for publish in back.publishes()] == [(7, 130)] * 3
    assert destination_counts(back) == {7: 3, 130: 3}
    with pytest.raises(WireError, match="no broker has forwarded"):
        back.check_origin("p")
    here, others = split_local(back, 7)
    assert ([p.header.destinations for p in here.publishes()], here.has_destinations()) == ([()] * 3, False)
    assert destination_counts(others.take(np.array([1]))) == {130: 1}
    assert [(hop, destination_counts(some)) for hop, some in split_by_next_hop(back, NextHops([("B2", 1 << 7)]))] == [
        ("B2", {7: 3}),
        (None, {130: 3}),
    ]
    broken = bytearray(wire(BatchFrame(E1, E2, 0, 0, bound)))
    broken[broken.index(encode_list((7, 130)))] = 9
    with pytest.raises(WireError, match="destination list"):
        decode(BATCH, bytes(broken[HEAD.size :]))


def test_rows_that_all_go_on_the_same_way_are_not_looked_at():
    rows = rows_of(3, b"payload")
    alike, differing = (
        with_destinations(rows, [(7, np.arange(3))]),
        with_destinations(rows, [(7, np.array([0, 2])), (130, np.array([1]))]),
    )
    for bound in (alike, differing):
        broken = bytearray(wire(BatchFrame(E1, E2, 0, 0, bound)))
        broken[-len(bound.data)] ^= 255  # the length of the first row
        back = decode(BATCH, bytes(broken[HEAD.size :])).batch
        assert (back.ttl, back.has_destinations()) == (rows.ttl, True)
        assert split_local(back, 8) == (None, back)
        [(hop, passed)] = split_by_next_hop(back, NextHops([("B2", 1 << 7 | 1 << 130), ("B3", 1 << 9)]))
        assert (hop, passed.data.tobytes()) == ("B2", back.data.tobytes())
        with pytest.raises(WireError):
            split_local(back, 7)


def test_lists_hold_nobody_whom_the_frame_does_not():
    lists = RawRows(
        with_destinations(rows_of(2, b""), [(7, np.array([0])), (900, np.array([1]))]).data, 2, BatchHead(0, 9, 0, 1 << 7)
    )
    with pytest.raises(WireError, match="destination lists"):
        split_local(lists, 7)


def test_the_tired_are_dropped_though_their_frame_is_not_looked_at():
    some = [Publish(Publication({"x": n}), Header("p", n, ttl=n + 1)) for n in range(3)]
    rows = with_destinations(RawRows(encode_rows(some), 3), [(7, np.arange(3))]).next_hop()
    back = decode(BATCH, wire(BatchFrame(E1, E2, 0, 0, rows))[HEAD.size :]).batch
    assert back.ttl == 0
    alive = back.unexpired()
    assert ([publish.header.sequence for publish in alive.publishes()], alive.ttl, alive.unexpired()) == ([1, 2], 1, alive)
    assert decode(BATCH, wire(BatchFrame(E1, E2, 0, 0, alive))[HEAD.size :]).batch.ttl == 1


def rows_of(count, payload):
    publishes = [Publish(Publication({"x": n}), Header("p", n), payload) for n in range(count)]
    return RawRows(encode_rows(publishes), count)


@given(messages)
def test_a_stream_may_come_byte_by_byte(message):
    frames, data = reader(), wire(message)
    assert [m for i in range(len(data) - 1) for m in frames.feed(data[i : i + 1])] == []
    assert list(map(told, frames.feed(data[-1:]))) == [told(message)]


@given(messages, st.data())
def test_what_is_cut_short_is_refused(message, data):
    body = wire(message)[HEAD.size :]
    kind = wire(message)[4]
    cut = data.draw(st.integers(0, max(len(body) - 1, 0)))
    is_shorter = isinstance(message, Acknowledgement) and cut >= 48 and (cut - 48) % 16 == 0  # one with fewer stretches
    if len(body) and not is_shorter:
        # A filter without its last predicates is still a filter to nobody, since it says how many it has.
        with pytest.raises(WireError):
            decode(kind, body[:cut])


@given(messages, st.data())
def test_what_is_broken_is_refused_as_broken_input(message, data):
    some = bytearray(wire(message))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(4, len(some)))
        kind = data.draw(st.sampled_from(["flip", "put", "insert", "remove", "ones"]))
        if kind == "flip" and at < len(some):
            some[at] ^= 1 << data.draw(st.integers(0, 7))
        elif kind == "put" and at < len(some):
            some[at] = data.draw(st.integers(0, 255))
        elif kind == "insert":
            some[at:at] = data.draw(st.binary(max_size=6))
        elif kind == "remove" and len(some) > 6:
            del some[max(at, 5) : at + 3]
        elif kind == "ones":
            some[at : at + 8] = b"\xff" * 8
    try:
        look(decode(some[4], bytes(some[HEAD.size :])))
    except InvalidInput:
        pass


@given(st.integers(0, 255), st.binary(max_size=200))
def test_whatever_comes_is_a_message_or_refused(kind, body):
    try:
        look(decode(kind, body))
    except InvalidInput:
        pass


@given(st.binary(max_size=300))
def test_a_reader_takes_any_bytes(data):
    try:
        list(FrameReader().feed(data))
    except WireError:
        pass


def test_texts_and_nesting_that_cannot_be():
    for kind, body in (
        (OPEN, b"\x82\xa4role\xa6cli\xff\xffx\xa4name\xa1a"),
        (OPEN, b"\x82\xa1x" + b"\x91" * 4000 + b"\xc0\xa4name\xa1a"),
        (CONTROL, bytes(40) + b"\x03" + b"\x01\x00\x03\x00" + bytes(4) + b"a" + b"\x81\xa1\xff"),
        (CONTROL, bytes(40) + b"\x03" + b"\x01\x00\x00\x80" + bytes(4) + b"a" + b"\x81\xa1x" + b"\x91" * (32768 - 3)),
    ):
        with pytest.raises(WireError):
            decode(kind, body)


def test_a_generation_is_a_field_and_no_part_of_the_id():
    filter = parse_filter("[x,>,1]")
    for message in (
        Advertise(at_generation("p/a", 2), filter), Unadvertise(at_generation("p/a", 2)),
        Subscribe(at_generation("p/a", 2), filter), Unsubscribe(at_generation("p/a", 2)),
        Rejected(at_generation("p/a", 2), "code", "text"),
        StateSnapshot("B1", ((at_generation("p/a", 2), filter, (), False, None),)),
        StateSnapshot("B1", (), answers=((at_generation("p/a", 2), Epoch(1)),)),
    ):  # fmt: skip
        data = wire(ControlFrame(E1, E2, 0, 0, message))
        assert b"p/a" in data
        assert b"\x1f" not in data
        assert decode(CONTROL, data[HEAD.size :]).message == message


def test_an_id_that_contains_a_generation_is_refused():
    forged = {"p/a#2": at_generation("p/a", 2), "p/a#": at_generation("p/a", 2)[:-1]}
    assert not any(map(is_stable, forged.values()))
    filter = parse_filter("[x,>,1]")
    for written, read in forged.items():
        for message in (
            Advertise(written, filter), Unadvertise(written), Subscribe(written, filter), Unsubscribe(written),
            Rejected(written, "code", "text"), LinkState(written, 1, 1, 1),
            StateSnapshot("B1", ((written, filter, (), False, None),)), StateSnapshot("B1", (), answers=((written, Epoch(1)),)),
        ):  # fmt: skip
            data = wire(ControlFrame(E1, E2, 0, 0, message))[HEAD.size :]
            assert decode(CONTROL, data).message == message
            with pytest.raises(WireError, match="stable id"):
                decode(CONTROL, data.replace(written.encode(), read.encode()))


def test_a_generation_has_32_bits():
    with pytest.raises(InvalidInput, match="generation below"):
        encode(ControlFrame(E1, E2, 0, 0, Unsubscribe(at_generation("p/a", 1 << 32))))


@pytest.mark.parametrize("length", [0, OPEN_BYTES_MAX + 1, FRAME_BYTES_MAX, 2**32 - 1])
def test_strangers_get_little(length):
    with pytest.raises(WireError):
        list(FrameReader().feed(HEAD.pack(length, BATCH)))


def test_a_batch_that_is_too_long_is_not_sent():
    long = Rows(tuple(Publish(Publication({"x": i}), Header("p", i), bytes(1 << 20)) for i in range(17)))
    with pytest.raises(InvalidInput, match="together"):
        encode(BatchFrame(E1, E1, 0, 0, long))
