"""What brokers ask at every hop: links and ids, of one publication and of rows in a buffer, against the naive matcher."""

import copy
import pickle
from random import Random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from overweave.errors import WireError
from overweave.language.codec import address_of_publication, encode_publication
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.matching import registry
from overweave.matching.index import Index
from overweave.matching.kernels.state import BLOCKS, EQUAL, MASKED, MEMBER, NONE, PARTITIONS_USED, ROWS, SHARED
from overweave.matching.naive import NaiveMatcher
from overweave.matching.search import PublicationView
from overweave.testing import strategies
from overweave.testing.matching import LINKS, many_entries, many_publications, matcher_machine

ONE = parse_publication("[x,1]")


class HopMachine(matcher_machine(Index)):
    """Besides what every matcher answers, what only the index does."""

    @rule(
        several=st.lists(strategies.publications(), max_size=5),
        seed=st.integers(0, 2**32 - 1),
        exclude=st.sampled_from((*LINKS, "unknown")),
    )
    def ask(self, several, seed, exclude):
        check(self.matcher, self.naive, several + many_publications(8, seed), exclude)


TestIndexAnswersEveryHop = HopMachine.TestCase
TestIndexAnswersEveryHop.settings = settings(
    max_examples=30, stateful_step_count=15, deadline=None, suppress_health_check=list(HealthCheck)
)


def check(index, naive, publications, exclude=None, random=None):
    """Query in all five forms."""
    hops = [naive.next_hops(publication) - {exclude} for publication in publications]
    matching = [naive.match(publication) for publication in publications]
    for publication, links, ids in zip(publications, hops, matching, strict=True):
        assert_same_members(index.links(publication, exclude), links)
        assert_same_members(index.ids(publication), ids)
    buffer = with_gaps([encode_publication(publication) for publication in publications], random or np.random.default_rng(1))
    grouped = index.rows_by_link(buffer, exclude)
    assert [rows.tolist() for _, rows in grouped] == [
        [row for row, links in enumerate(hops) if link in links] for link, _ in grouped
    ]
    assert_same_members([link for link, _ in grouped], set().union(*hops))
    addresses = np.array([address_of_publication(publication) for publication in publications], np.int64).reshape(-1, 2)
    apart = {link: rows.tolist() for link, rows in index.addresses_by_link(addresses, exclude)}
    assert apart == {link: rows.tolist() for link, rows in grouped}
    slots, ends = index.slots(buffer)
    listed = [index.id_of(slot) for slot in slots]
    starts = [0, *ends.tolist()]
    assert starts[-1] == len(listed)
    for row, ids in enumerate(matching):
        assert_same_members(listed[starts[row] : starts[row + 1]], ids)


def assert_same_members(answer, expected):
    assert len(answer) == len(expected)
    assert set(answer) == expected


def with_gaps(encoded, random):
    """The wire forms in any order within a buffer, with other bytes between them; where each starts and ends."""
    pieces, starts, at = [], np.zeros(len(encoded), np.int64), 0
    for row in random.permutation(len(encoded)).tolist():
        gap = random.bytes(random.integers(0, 9))
        starts[row] = at + len(gap)
        pieces += [gap, encoded[row]]
        at += len(gap) + len(encoded[row])
    data = np.frombuffer(b"".join([*pieces, random.bytes(5)]), np.uint8)
    return PublicationView(data, starts, starts + [len(one) for one in encoded])


def with_links(links, filters, seed):
    """Both matchers with filters of so many links besides the broker itself."""
    names = [None, *(f"B{i}" for i in range(links))]
    random = np.random.default_rng(seed)
    entries = [(id, filter, names[random.integers(links + 1)]) for id, filter, _ in many_entries(0, filters, seed)]
    entries += [(name, parse_filter(f"[x,>,{i % 10}]"), name) for i, name in enumerate(names)]
    index, naive = Index(), NaiveMatcher()
    index.add_many(entries)
    naive.add_many(entries)
    return index, naive


@given(
    links=st.sampled_from((1, 7, 8, 9, MASKED - 2, MASKED - 1, MASKED, MASKED + 1, 200)),
    filters=st.sampled_from((0, 30, 900)),
    exclude=st.sampled_from((None, "B0", "B6", "B60", "unknown")),
    rows=st.sampled_from((0, 1, 20, 150)),
    seed=st.integers(0, 2**32 - 1),
)
@settings(max_examples=30, deadline=None)
def test_however_many_links_there_are(links, filters, exclude, rows, seed):
    index, naive = with_links(links, filters, seed)
    check(index, naive, many_publications(rows, seed), exclude, np.random.default_rng(seed))


@pytest.mark.parametrize("links", [5, MASKED - 1, 100])
def test_links_that_go_and_come_under_another_name(links):
    index, naive = with_links(links, 300, 3)
    publications = many_publications(10, 1)
    check(index, naive, publications, "B2")
    for i in range(links):
        for matcher in (index, naive):
            matcher.add(("new", i), parse_filter(f"[x,>,{i % 7}]"), f"C{i}")
            matcher.remove(f"B{i}")
        if i % 20 == 0:
            check(index, naive, publications, f"C{i}")
    check(index, naive, publications, "C2")


def test_a_link_in_the_place_of_another_is_not_taken_for_it():
    index = Index()
    for link in ("B1", "B2"):
        index.add("s1", parse_filter("[x,>,0]"), link)
        assert index.links(ONE) == (link,)
        index.remove("s1")


def test_a_single_filter_can_be_added_whatever_has_to_grow_for_it():
    index, naive = Index(), NaiveMatcher()
    for id, filter, _ in many_entries(0, 1500, 5):
        for matcher in (index, naive):
            matcher.add(id, filter, f"B{id % 70}")
    check(index, naive, many_publications(30, 2), "B7")


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))])
def test_a_copy_answers_alike_and_apart(duplicate):
    index, naive = with_links(20, 600, 1)
    publications = many_publications(10, 1)
    index.links(publications[0])
    other = duplicate(index)
    check(other, naive, publications, "B3")
    other.add("more", parse_filter("[x,isPresent,0]"), "B99")
    check(index, naive, publications, "B3")


def test_more_sets_of_links_than_are_remembered(monkeypatch):
    monkeypatch.setattr(registry, "_MASKS_MAX", 3)
    index, naive = with_links(40, 900, 1)
    for exclude in (None, "B1"):
        check(index, naive, many_publications(50, 7), exclude)
    assert len(index._links.by_mask) <= 3


def test_answers_stay_what_they_were_when_the_index_is_asked_again():
    index, _ = with_links(100, 0, 1)
    links, ids = index.links(ONE), index.ids(ONE)
    before = list(links), list(ids)
    index.links(parse_publication("[y,1]"))
    index.ids(parse_publication("[x,9]"))
    assert (list(links), ids) == before


@pytest.mark.parametrize("links", [3, 100])
@pytest.mark.parametrize("data", [b"\x00", b"\x01\x00", encode_publication(ONE)[:-1], encode_publication(ONE) + b"\x00"])
def test_what_is_not_in_wire_form_is_refused(links, data):
    index, naive = with_links(links, 50, 1)
    malformed = Publication({"x": 1})
    malformed._encoded = data
    for ask in (index.links, index.ids):
        with pytest.raises(WireError):
            ask(malformed)
    check(index, naive, [ONE], "B1")


@pytest.mark.parametrize("row", [0, 1, 130, 199])
@pytest.mark.parametrize("cut", [1, 5, len(encode_publication(ONE))])
def test_a_row_is_not_read_beyond_its_end(row, cut):
    """The bytes that it lacks lie behind it."""
    index, naive = with_links(3, 50, 1)
    publications = many_publications(200, 4)
    publications[row] = ONE
    data, starts, ends = with_gaps([encode_publication(publication) for publication in publications], np.random.default_rng(row))
    ends[row] -= cut
    for ask in (index.rows_by_link, index.slots):
        with pytest.raises(WireError, match=f"row {row} ") as refused:
            ask(PublicationView(data, starts, ends))
        assert refused.value.offset == starts[row]
    check(index, naive, publications)


@given(st.binary(max_size=40), st.integers(0, 3))
def test_random_bytes_in_a_row_are_refused_or_matched_and_nothing_else(damaged, row):
    index, _ = FUZZED
    encoded = [encode_publication(ONE)] * 4
    expected = index.slots(with_gaps(encoded, np.random.default_rng(0)))[1]
    encoded[row] = damaged
    try:
        _, ends = index.slots(with_gaps(encoded, np.random.default_rng(0)))
    except WireError as error:
        assert f"row {row} " in str(error)
    else:
        others = np.arange(4) != row
        assert np.diff(ends, prepend=0)[others].tolist() == np.diff(expected, prepend=0)[others].tolist()


FUZZED = with_links(3, 300, 3)


@pytest.mark.parametrize(("start", "end"), [(-1, 4), (3, 2), (0, 1000), (2**62, 2**62 + 1), (-(2**63), 2**63 - 1)])
def test_rows_outside_the_data_are_refused(start, end):
    index, _ = with_links(3, 0, 1)
    data, starts, ends = with_gaps([encode_publication(ONE)] * 3, np.random.default_rng(0))
    starts[1], ends[1] = start, end
    for ask in (index.rows_by_link, index.slots):
        with pytest.raises(ValueError, match="row 1"):
            ask(PublicationView(data, starts, ends))
        with pytest.raises(ValueError, match="for every row"):
            ask(PublicationView(data, starts[:2], ends))


def test_arrays_of_other_kinds_are_taken_too():
    index, _ = with_links(3, 0, 1)
    data, starts, ends = with_gaps([encode_publication(ONE)] * 4, np.random.default_rng(0))
    expected = index.slots(PublicationView(data, starts[::2], ends[::2]))
    for kind in (np.int32, ">i8"):
        slots, stops = index.slots(PublicationView(np.array(data), starts.astype(kind)[::2], ends.astype(kind)[::2]))
        assert (slots.tolist(), stops.tolist()) == (expected[0].tolist(), expected[1].tolist())


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_copied_publication_is_matched_where_its_own_bytes_lie(duplicate):
    index, naive = with_links(3, 50, 1)
    original = Publication({"x": 1, "class": "a"})
    index.links(original)
    copied = duplicate(original)
    del original
    assert copied == Publication({"x": 1, "class": "a"})
    check(index, naive, [copied])


def test_an_empty_index_is_small():
    """A simulator has thousands."""
    assert Index().memory_bytes() < 40_000


def many_links(filters, links, seed, crowded=()):
    """Filters on a few access keys, of many links; some links have many more than others."""
    dice = Random(seed)
    names = [f"B{i}" for i in range(links)] + [*crowded] * 20 + [None]
    for i in range(filters):
        low = dice.randrange(90)
        yield i, parse_filter(f"[class,eq,'C{dice.randrange(3)}'],[x,>=,{low}],[x,<,{low + 10}]"), dice.choice(names)


@pytest.mark.parametrize(("links", "crowded"), [(5, ()), (40, ("B1",)), (40, ("B1", "L1", "L2")), (400, ("L1",))])
@pytest.mark.parametrize("seed", range(3))
def test_links_with_few_filters_among_links_with_many(links, crowded, seed):
    """They share segments, leave them when they grow, and are let go: the index answers like the naive one all the time."""
    index, naive, dice = Index(), NaiveMatcher(), np.random.default_rng(seed)
    publications = [parse_publication(f"[class,'C{i % 3}'],[x,{7 * i % 100}]") for i in range(25)]
    entries, seen = list(many_links(3000, links, seed, crowded)), set()
    for start in range(0, len(entries), 500):
        index.add_many(entries[start : start + 500])
        naive.add_many(entries[start : start + 500])
        check(index, naive, publications, f"B{dice.integers(links)}", dice)
        seen |= kinds_of_segments(index)
    assert seen >= ({ROWS, BLOCKS, MEMBER} if links < 400 else {BLOCKS, MEMBER})
    inside = [entry for entry in entries if entry[2] != "B0"] + [entry for entry in entries if entry[2] == "B0"]
    kept = []
    for step, (id, filter, link) in enumerate(inside):
        for matcher in (index, naive):
            matcher.remove(id)
        if step % 4 == 0:  # some come back, for another link
            kept.append(id)
            for matcher in (index, naive):
                matcher.add(id, filter, link if step % 8 else f"N{step % 7}")
        if step % 300 == 0:
            check(index, naive, publications, link, dice)
            kinds_of_segments(index)
    for id in kept:
        for matcher in (index, naive):
            matcher.remove(id)
    check(index, naive, publications, None, dice)
    assert len(index) == 0
    assert not kinds_of_segments(index)


def kinds_of_segments(index):
    """The kinds of all segments, after a look at whether they are as they should be."""
    partitions, segments, kinds = index._filters.state.partitions, index._filters.state.segments, set()

    def chained(number):
        while number != NONE:
            yield segments[number]
            number = segments[number]["next"]

    for partition in partitions[: index._filters.state.counters[PARTITIONS_USED]]:
        if partition["kind"] != EQUAL:
            continue
        own, members = list(chained(partition["first"])), list(chained(partition["members"]))
        kinds |= {int(segment["kind"]) for segment in own + members}
        assert all(segment["count"] > 0 for segment in own + members)
        assert all((segment["kind"] == MEMBER) == (place >= len(own)) for place, segment in enumerate(own + members))
        shared = [segment for segment in own if segment["link"] == SHARED]
        assert [segment["count"] for segment in shared] == ([sum(segment["count"] for segment in members)] if members else [])
        assert (partition["shared"] != NONE) == bool(shared)
        links = [int(segment["link"]) for segment in own + members]
        assert len(links) == len(set(links))
        scanned = [segment["count"] for segment in own if segment["kind"] == ROWS and segment["link"] != SHARED]
        assert partition["scanned"] == sum(scanned)
    return kinds
