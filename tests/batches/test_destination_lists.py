"""Destination lists: both backings of a batch say the same, and nothing gets lost when lists are split."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.batches.base import BatchHead
from overweave.batches.destinations import (
    NextHops,
    bits_of,
    destination_counts,
    split_by_next_hop,
    split_local,
    with_destinations,
)
from overweave.batches.kernels import HEAD, LIST_LENGTH
from overweave.batches.objects import Rows
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.errors import LanguageError, WireError
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.publications import Publication

NUMBERS = st.integers(0, 300)
LISTS = st.lists(st.sets(NUMBERS, max_size=60), min_size=1, max_size=8)


def publishes(lists):
    return [
        Publish(Publication({"x": i}), Header("p", i, destinations=tuple(sorted(numbers))), b"payload")
        for i, numbers in enumerate(lists)
    ]


def both(lists):
    rows = publishes(lists)
    return Rows(tuple(rows)), RawRows(encode_rows(rows), len(rows))


def assert_same(objects, raw):
    assert (objects is None) == (raw is None)
    assert objects is None or list(objects.publishes()) == list(raw.publishes())


@settings(deadline=None)
@given(LISTS, NUMBERS, st.lists(st.sets(NUMBERS, max_size=150), max_size=4))
def test_lists_are_split_alike_and_nobody_is_forgotten(lists, number, reach):
    objects, raw = both(lists)
    split_alike(objects, raw, lists, number, reach)


@settings(deadline=None)
@given(
    st.lists(st.sets(NUMBERS, min_size=1, max_size=60), min_size=1, max_size=8), st.sets(NUMBERS, max_size=3), NUMBERS,
    st.lists(st.sets(NUMBERS, max_size=150), max_size=4),
)  # fmt: skip
def test_so_are_lists_whose_brokers_are_told_in_advance(lists, others, number, reach):
    objects, raw = both(lists)
    told = RawRows(raw.data, raw.count, BatchHead(0, 255, 0, bits_of(set().union(*lists, others))))
    assert destination_counts(told) == destination_counts(objects)
    for some in {number, *others}:
        split_alike(objects, told, lists, some, reach)


def split_alike(objects, raw, lists, number, reach):
    for one, other in zip(split_local(objects, number), split_local(raw, number), strict=True):
        assert_same(one, other)
    taken, hops = set(), []
    for i, brokers in enumerate(reach):
        hops.append((f"n{i}", bits_of(brokers - taken)))
        taken |= brokers
    parts, raw_parts = (dict(split_by_next_hop(batch, NextHops(hops))) for batch in (objects, raw))
    assert set(parts) == set(raw_parts)
    got = [set() for _ in lists]
    for hop, part in parts.items():
        assert_same(part, raw_parts[hop])
        for publish in part.publishes():
            some = set(publish.header.destinations)
            assert not some & got[publish.header.sequence]
            assert (hop is None) == some.isdisjoint(taken)
            got[publish.header.sequence] |= some
    assert got == lists


@settings(deadline=None)
@given(LISTS)
def test_rows_are_addressed_alike(lists):
    objects, raw = both([() for _ in lists])
    found = [(number, np.flatnonzero([number in numbers for numbers in lists])) for number in sorted(set().union(*lists))]
    addressed = with_destinations(objects, found)
    assert_same(addressed, with_destinations(raw, found))
    listed = [] if addressed is None else [set(publish.header.destinations) for publish in addressed.publishes()]
    assert listed == [numbers for numbers in lists if numbers]


@pytest.mark.parametrize(("numbers", "length"), [((5,), 2), ((300,), 3), (tuple(range(64)), 9), ((1, 2, 3, 2031), 6), ((), 0)])
def test_the_shorter_form_is_taken(numbers, length):
    bare, listed = (encode_rows(publishes([some])) for some in ((), numbers))
    assert len(listed) - len(bare) == length


def test_numbers_that_no_list_can_hold_are_refused():
    with pytest.raises(LanguageError, match="2,032"):
        encode_rows(publishes([(2032,)]))


@pytest.mark.parametrize("listed", [b"\x02\x05", b"\x01\x00", b"\x00", b"\x00\x05\x05", b"\x01"])
def test_lists_that_are_not_sound_are_refused(listed):
    row = bytearray(encode_rows(publishes([()])))
    row[0], row[LIST_LENGTH] = row[0] + len(listed), len(listed)
    rows = RawRows(bytes(row[: HEAD + 1] + listed + row[HEAD + 1 :]), 1)
    with pytest.raises(WireError):
        split_local(rows, 1)


def test_whatever_becomes_of_rows_on_a_detour_is_on_it_too():
    for batch in both([{1, 2}, {2, 3}, {1}]):
        diverted = batch.with_tag(1)
        assert (batch.tag, diverted.tag, diverted.with_tag(0).tag) == (False, True, False)
        mine, others = split_local(diverted, 1)
        made = [
            *(diverted.next_hop(), diverted.take(np.array([1])), diverted.unexpired(), mine, others),
            *(with_destinations(mine, [(5, np.array(rows))]) for rows in ([0], [0, 1])),
            *(part for _, part in split_by_next_hop(diverted, NextHops([("n", 0b10), ("m", 0b1100)]))),
        ]
        assert all(some.tag for some in made)


def test_no_client_publishes_on_a_detour():
    _, raw = both([()])
    raw.check_origin("p")
    with pytest.raises(WireError, match="no broker has forwarded"):
        raw.with_tag(1).check_origin("p")
