"""Batches of objects against rows one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from overweave.batches.contents import matched_ids
from overweave.batches.objects import Rows
from overweave.language.headers import Header
from overweave.language.messages import Publish
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.matching.index import Index
from overweave.routing.dedup import DedupWindow


def batch(*numbers, ttl=9):
    return Rows(tuple(Publish(Publication({"x": number}), Header("p", number, ttl=ttl)) for number in numbers))


def numbers(rows):
    return [publish.header.sequence for publish in rows.publishes()]


@given(st.lists(st.integers(0, 20), min_size=1, max_size=6, unique=True))
def test_rows_go_where_each_would_go_alone(sequences):
    index = Index()
    for low in (3, 8, 15):
        index.add(low, parse_filter(f"[x,>=,{low}]"), f"B{low}")
    spread = {link: numbers(some) for link, some in batch(*sequences).split_by_link(index, exclude="B8")}
    expected = {f"B{low}": [x for x in sequences if x >= low] for low in (3, 15)}
    assert spread == {link: some for link, some in expected.items() if some}
    assert [sorted(ids) for ids in matched_ids(batch(*sequences), index)] == [
        [low for low in (3, 8, 15) if x >= low] for x in sequences
    ]


@given(st.lists(st.integers(0, 99), min_size=2, max_size=6, unique=True), st.sampled_from([5, 62, 90]))
def test_parts_of_a_batch_go_on_as_the_whole_did_however_many_links_there_are(sequences, links):
    index = Index()
    for low in range(links):
        index.add(low, parse_filter(f"[x,>=,{low}]"), low + 1)
    whole = batch(*sequences)
    whole.match(index)
    part = whole.take(np.arange(1, len(sequences))).next_hop()
    expected = {low + 1: [x for x in sequences[1:] if x >= low] for low in range(links)}
    assert {link: numbers(some) for link, some in part.split_by_link(index)} == {
        link: some for link, some in expected.items() if some
    }


identities = st.tuples(st.sampled_from("pq"), st.sampled_from((0, 1, 2**64 - 1)), st.integers(0, 300))


@given(st.lists(identities, min_size=1, max_size=40), st.integers(1, 8))
def test_batches_of_several_publishers_are_seen_as_their_rows_one_by_one(identities, size):
    seen, alone = DedupWindow(64), DedupWindow(64)
    for start in range(0, len(identities), size):
        some = identities[start : start + size]
        headers = [Header(publisher, number, life=life) for publisher, life, number in some]
        rows = Rows(tuple(Publish(Publication({"x": 1}), header) for header in headers))
        expected = [row for row, identity in enumerate(some) if alone.add(*identity)]
        new = rows.mark_seen(seen)
        assert (list(range(len(some))) if new is None else new.tolist()) == expected


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(1, 4))
def test_what_is_new_is_new_once(sequences, size):
    seen, got = DedupWindow(window=100), []
    for start in range(0, len(sequences), size):
        some = batch(*dict.fromkeys(sequences[start : start + size]))
        new = some.mark_seen(seen)
        if new is None:
            got += numbers(some)
        elif len(new):
            got += numbers(some.take(new))
    assert got == list(dict.fromkeys(sequences))


@given(st.lists(st.tuples(st.sampled_from("pq"), st.integers(1, 2), st.integers(0, 300) | st.just(1 << 62)), max_size=80))
def test_seen_remembers_a_window_of_each_life_and_takes_older_ones_for_seen(identities):
    seen, window, known = DedupWindow(64), 64, []
    for publisher, life, sequence in identities:
        before = [number for *whose, number in known if whose == [publisher, life]]
        expected = sequence not in before and sequence > max(before, default=-1) - window
        assert seen.add(publisher, life, sequence) == expected
        known.append((publisher, life, sequence))


def test_hops_are_counted_and_the_tired_stay():
    one = batch(1, 2, ttl=2).next_hop()
    assert (one.ttl, one.unexpired()) == (1, one)
    mixed = Rows((*batch(1, ttl=1).publishes(), *batch(2, ttl=5).publishes())).next_hop()
    assert mixed.ttl == 0
    assert numbers(mixed.unexpired()) == [2]
    assert [(publish.header.hops, publish.header.ttl) for publish in mixed.publishes()] == [(1, 0), (1, 4)]
    assert batch(1, ttl=1).next_hop().unexpired() is None
    assert numbers(batch(4, 5, 6).take(np.array([0, 2]))) == [4, 6]
