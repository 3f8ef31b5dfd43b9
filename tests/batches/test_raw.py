"""Rows as bytes do what rows as objects do, and whatever is broken in them is refused."""

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.batches.contents import matched_ids
from overweave.batches.kernels import CONTENT_LENGTH, HEAD
from overweave.batches.objects import Rows
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.batches.trace_fields import trace_fields
from overweave.broker.modules.tracer import Tracer
from overweave.contract.modules import ControlApplied, Routed
from overweave.errors import LanguageError, WireError
from overweave.language.codec import decode_publication, encode_publication
from overweave.language.generations import next_life
from overweave.language.headers import Header
from overweave.language.messages import Publish, Subscribe
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter
from overweave.matching.index import Index
from overweave.routing.dedup import DedupWindow, DeliveryWindow
from overweave.testing.strategies import publications

FILTERS = ["[x,isPresent,0]", "[price,>,0]", "[class,isPresent,'']", "[volume,<,9]", "[symbol,isPresent,'']"]
headers = st.builds(
    Header,
    publisher=st.sampled_from(["p", "q", "straße"]),
    sequence=st.integers(0, 60),
    published_at_s=st.floats(0, 1e9),
    life=st.sampled_from([0, 7, 2**64 - 1]),
    tree=st.sampled_from([None, "a1"]),
    destinations=st.sampled_from([(), (1, 700), tuple(range(3, 50))]),
    hops=st.integers(0, 3),
    ttl=st.integers(0, 9),
)
publishes = st.builds(Publish, publications(), headers, st.binary(max_size=5))
batches = st.lists(publishes, min_size=1, max_size=8)


def told(batch):
    """What a batch says, so that it can be compared though NaN equals nothing."""
    return [(str(publish.publication), publish.header, publish.payload) for publish in batch.publishes()]


def both(rows):
    return Rows(tuple(rows)), RawRows(encode_rows(rows), len(rows))


@given(batches)
def test_rows_come_back_as_they_were(rows):
    objects, raw = both(rows)
    assert told(raw) == told(objects)
    assert list(raw.identities()) == list(objects.identities())
    assert list(trace_fields(raw)) == list(trace_fields(objects))
    assert raw.size_bytes() == objects.size_bytes()
    assert (raw.count, raw.priority()) == (objects.count, objects.priority())
    raw.validate()


@given(batches, st.integers(1, 4))
def test_hops_and_the_tired(rows, hops):
    objects, raw = both(rows)
    for _ in range(hops):
        objects, raw = objects.next_hop(), raw.next_hop()
    assert told(raw) == told(objects)
    alive, raw_alive = objects.unexpired(), raw.unexpired()
    assert (raw_alive is None) == (alive is None)
    if alive is not None:
        assert told(raw_alive) == told(alive)


@given(batches, st.data())
def test_some_rows(rows, data):
    objects, raw = both(rows)
    some = np.array(data.draw(st.lists(st.integers(0, len(rows) - 1), min_size=1, unique=True).map(sorted)))
    assert told(raw.take(some)) == told(objects.take(some))


@given(st.lists(st.integers(-5, 25), min_size=1, max_size=9))
def test_spread(values):
    rows = [Publish(Publication({"x": x, "s": f"t{x}"}), Header("p", i)) for i, x in enumerate(values)]
    index = Index()
    for low in (0, 8, 15):
        index.add(low, parse_filter(f"[x,>=,{low}]"), f"B{low}")
    objects, raw = both(rows)
    expected = {link: told(some) for link, some in objects.split_by_link(index, "B8")}
    assert {link: told(some) for link, some in raw.split_by_link(index, "B8")} == expected
    assert [sorted(ids) for ids in matched_ids(raw, index)] == [sorted(ids) for ids in matched_ids(objects, index)]


distinct = st.lists(
    publishes, min_size=1, max_size=8, unique_by=lambda publish: (publish.header.publisher, publish.header.sequence)
)


@given(distinct, st.integers(0, 5))
def test_a_trace_by_columns_says_what_records_say(rows, filters):
    objects, raw = both(rows)
    tracer, routes = Tracer("B1", "run"), Index()
    for i in range(filters):
        filter = parse_filter(FILTERS[i])
        routes.add(i, filter, f"c{i % 2}")
        list(tracer.handle(ControlApplied(Subscribe(f"s{i}", filter), f"c{i % 2}", True), 0.0))
    records = [
        effect.record
        for effect in tracer.handle(Routed(objects, "p", list(objects.next_hop().split_by_link(routes)), objects), 7.0)
    ]
    (noted,) = tracer.handle(Routed(raw, "p", list(raw.next_hop().split_by_link(routes)), raw), 7.0)
    by_identity = {(publish.header.publisher, publish.header.sequence): publish.publication for publish in rows}
    for record in records:
        publication = by_identity[record.publisher, record.sequence]
        if record.subscription is None:
            assert not any(matches(parse_filter(text), publication) for text in FILTERS[:filters])
        else:
            assert matches(parse_filter(FILTERS[int(record.subscription[1:])]), publication)
    columns = noted.columns

    def text(texts, codes):
        return [None if code < 0 else texts[code] for code in codes.tolist()]

    found = zip(
        text(columns.publishers, columns.publisher), columns.sequence.tolist(),
        text(columns.subscriptions, columns.subscription), text(columns.clients, columns.client), columns.hops.tolist(),
        columns.published_at_s.tolist(), columns.bytes.tolist(), strict=True,
    )  # fmt: skip
    expected = [(r.publisher, r.sequence, r.subscription, r.client, r.hops, r.published_at_s, r.bytes) for r in records]
    assert sorted(found, key=repr) == sorted(expected, key=repr)
    assert columns.arrived_at_s == 7.0


def test_rows_of_another_life_are_of_nobody_else():
    rows = [Publish(Publication({"x": 1}), Header("p", number, life=life)) for number, life in enumerate((5, 5, 6))]
    assert list(RawRows(encode_rows(rows), 3).identities()) == [("p", 5, 0), ("p", 5, 1), ("p", 6, 2)]
    RawRows(encode_rows(rows[:2]), 2).check_origin("p", 5)
    for some, name, life in ((rows, "p", 5), (rows[:2], "p", 6), (rows[:2], "p", 0), (rows[:2], "q", 5)):
        with pytest.raises(WireError, match=f"publications of .*'{name}'"):
            RawRows(encode_rows(some), len(some)).check_origin(name, life)


def test_rows_in_a_later_generation_are_of_the_same_publisher():
    rows = RawRows(encode_rows([Publish(Publication({"x": 1}), Header("p", 0, life=5))]), 1).next_generation()
    assert list(rows.identities()) == [("p", 5 + (1 << 56), 0)]
    rows.check_origin("p", 5)
    with pytest.raises(WireError, match="publications of the life"):
        rows.check_origin("p", 6)


@given(batches)
def test_rows_in_the_next_generation_are_new_to_brokers_and_not_to_receivers(rows):
    brokers, receivers = DedupWindow(64), DeliveryWindow(64)
    for batch in both(rows):
        before = told(batch)
        batch.mark_seen(receivers)
        later = batch.next_generation()
        assert told(batch) == before
        lives = [next_life(header.life) for _, header, _ in before]
        assert told(later) == [
            (content, msgspec.structs.replace(header, life=life), payload)
            for (content, header, payload), life in zip(before, lives, strict=True)
        ]
        assert later.mark_seen(receivers).tolist() == []
    objects, raw = both(rows)
    expected = objects.mark_seen(brokers)
    found = raw.next_generation().mark_seen(brokers)
    assert (found is None) == (expected is None)
    assert found is None or found.tolist() == expected.tolist()


@given(st.lists(batches, max_size=5))
def test_what_is_new(several):
    one, other = DedupWindow(64), DedupWindow(64)
    for rows in several:
        objects, raw = both(rows)
        expected, found = objects.mark_seen(one), raw.mark_seen(other)
        assert (expected is None) == (found is None)
        assert found is None or found.tolist() == expected.tolist()


@given(batches, st.integers(0, 1000))
def test_rows_are_published_anew(rows, first):
    _, raw = both(rows)
    raw = raw.renumbered(first, 7.5)
    again = raw.publishes()
    assert [publish.header.sequence for publish in again] == list(range(first, first + len(rows)))
    assert {publish.header.published_at_s for publish in again} == {7.5}
    assert [text for text, _, _ in told(raw)] == [str(publish.publication) for publish in rows]


@settings(max_examples=400)
@given(publications(), st.data())
def test_contents_are_taken_when_the_codec_takes_them(publication, data):
    content = bytearray(encode_publication(publication))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    content = bytes(content[: data.draw(st.sampled_from([len(content), len(content), len(content) - 1]))])
    try:
        decode_publication(content)
        sound = True
    except (WireError, LanguageError):
        sound = False
    good = encode_publication(Publication({"x": 1}))
    row = encode_rows([Publish(Publication({"x": 1}), Header("p", 1))])
    length = int.from_bytes(row[:4], "little") - len(good) + len(content)
    head = row[4:CONTENT_LENGTH] + len(content).to_bytes(4, "little")
    broken = length.to_bytes(4, "little") + head + row[HEAD : HEAD + 1] + content
    rows = RawRows(broken, 1)
    if sound:
        rows.validate()
    else:
        with pytest.raises((WireError, LanguageError)):
            rows.validate()


@settings(max_examples=400)
@given(batches, st.data())
def test_broken_rows_are_refused_or_lie_within_their_bytes(rows, data):
    encoded = bytearray(encode_rows(rows))
    for _ in range(data.draw(st.integers(1, 4))):
        encoded[data.draw(st.integers(0, len(encoded) - 1))] = data.draw(st.integers(0, 255))
    encoded = encoded[: data.draw(st.integers(0, len(encoded)))] if data.draw(st.booleans()) else encoded
    try:
        raw = RawRows(bytes(encoded), data.draw(st.sampled_from([len(rows), len(rows) + 1, 10**9, 0])))
        raw.validate()
        told(raw)
        raw.match(Index())
    except (WireError, LanguageError):
        pass
