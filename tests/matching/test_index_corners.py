"""Corners of the index that random filters seldom reach."""

import copy
import pickle

import numpy as np
import pytest

from overweave.errors import DuplicateId, InvalidInput
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.syntax import parse_filter, parse_publication
from overweave.matching import search
from overweave.matching.index import Index
from overweave.matching.kernels import state as layout
from overweave.matching.kernels.match import ALL
from overweave.matching.naive import NaiveMatcher
from overweave.matching.search import PublicationView, view_of
from overweave.testing.matching import many_entries, many_publications


def compare(entries, publications):
    index, naive = Index(), NaiveMatcher()
    index.add_many(entries)
    naive.add_many(entries)
    assert index.match_batch(publications) == naive.match_batch(publications)
    assert index.next_hops_batch(publications) == naive.next_hops_batch(publications)
    return index, naive


@pytest.mark.parametrize("rows", [1, 127, 128, 129, 300])
def test_batches_of_all_lengths(rows):
    compare(many_entries(0, 600, 6), many_publications(rows, 1))


def test_more_matches_than_are_listed_at_once(monkeypatch):
    monkeypatch.setattr(search, "_LISTED_MAX", 2000)
    compare([(i, parse_filter("[x,>,0]"), None) for i in range(700)], [parse_publication(f"[x,{i}]") for i in range(50)])


def test_more_columns_than_a_block_has_planes():
    entries = [(i, parse_filter(f"[class,eq,'A'],[c{i % 70},>,{i % 9}],[d{i % 3},<,5]"), None) for i in range(3000)]
    publications = [
        parse_publication("[class,'A'],[d0,1],[d1,1],[d2,9]," + ",".join(f"[c{k},{(k + shift) % 11}]" for k in range(70)))
        for shift in range(4)
    ]
    index, naive = compare(entries, publications)
    for i in range(0, 2900):
        index.remove(i)
        naive.remove(i)
    assert index.match_batch(publications) == naive.match_batch(publications)


def test_dictionary_under_churn():
    kinds = ("eq", "str-prefix", "str-contains", "neq", "str-lt")
    entries = [(i, parse_filter(f"[s,{kinds[i % 5]},'text number {i}']"), None) for i in range(4000)]
    publications = [parse_publication(f"[s,'text number {i}']") for i in range(0, 4000, 97)]
    index, naive = compare(entries, publications)
    for round in range(3):
        for i in range(round, 4000, 3):
            for matcher in (index, naive):
                matcher.remove(i)
                matcher.add(i, parse_filter(f"[s,{kinds[i % 5]},'other {round} {i}']"))
        assert index.match_batch(publications) == naive.match_batch(publications)


def test_links_that_go_and_come_back():
    index = Index()
    for link in ("B1", "B2", "B3"):
        index.add(link, parse_filter("[x,>,0]"), link)
    one = parse_publication("[x,1]")
    index.remove("B2")
    index.add("B5", parse_filter("[x,>,0]"), "B5")
    index.add("B2", parse_filter("[x,<,0]"), "B2")
    assert index.next_hops(one) == {"B1", "B3", "B5"}
    assert index.next_hops(parse_publication("[x,-1]")) == {"B2"}
    assert set(index.links(one, "B1")) == {"B3", "B5"}


def test_equalities_that_contradict_each_other():
    index = Index()
    index.add(1, parse_filter("[s,eq,'a'],[t,eq,'b'],[t,eq,'a']"))
    index.add(2, parse_filter("[s,eq,'zzz']"))
    index.add(3, parse_filter("[u,neq,'zzz']"))
    index.remove(3)
    assert index.match(parse_publication("[s,'zzz']")) == {2}
    index.add(4, parse_filter("[w,neq,'qqq']"))
    assert index.match(parse_publication("[s,'qqq']")) == set()
    for id in (1, 2, 4):
        index.remove(id)
    assert index._filters.state.counters[layout.TEXTS_LIVE] == 0


@pytest.mark.parametrize("distinct", [3, 25, 60, 100, 1000])
def test_buckets_are_even_however_many_values_there_are(distinct):
    random = np.random.default_rng(distinct)
    index = Index()
    index.add_many(
        (i, parse_filter(f"[x,>,{value}]"), None) for i, value in enumerate(random.integers(0, distinct, 20_000).tolist())
    )
    bounds = np.sort(random.integers(0, distinct, 20_000))
    buckets = np.searchsorted(index._filters.state.edges[0], bounds, side="right")
    largest = (
        max(
            int((buckets == bucket).sum()) for bucket in set(buckets.tolist()) if len(set(bounds[buckets == bucket].tolist())) > 1
        )
        if distinct > 30
        else 0
    )
    assert largest < 0.08 * len(bounds)


def test_a_filter_that_is_refused_leaves_those_before_it_and_nothing_else():
    index = Index()
    long = Filter(tuple(Predicate("x", Operator.NE, k) for k in range(2000)))
    good = parse_filter("[x,>,0]")
    with pytest.raises(InvalidInput):
        index.add_many([(1, good, "B1"), (2, long, "B2"), (3, good, "B3")])
    with pytest.raises(InvalidInput):
        index.add(4, long, "B4")
    with pytest.raises(DuplicateId):
        index.add_many([(5, good, "B1"), (5, good, "B2")])

    def failing():
        yield 6, good, "B1"
        raise RuntimeError("the source is gone")

    with pytest.raises(RuntimeError):
        index.add_many(failing())
    assert index.match(parse_publication("[x,1]")) == {1, 5, 6}
    assert len(index) == 3
    assert index.next_hops(parse_publication("[x,1]")) == {"B1"}


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda index: pickle.loads(pickle.dumps(index))])
def test_a_copy_stands_on_its_own(duplicate):
    index = Index()
    index.add_many(many_entries(0, 900, 4))
    other = duplicate(index)
    publications = many_publications(20, 3)
    before = index.match_batch(publications)
    assert other.match_batch(publications) == before
    other.add_many(many_entries(900, 3000, 5))
    other.remove(0)
    assert index.match_batch(publications) == before
    assert 0 in index


def test_search_checks_what_it_is_given():
    index = Index()
    index.add(1, parse_filter("[x,>,0]"), "B1")
    data, starts, ends = view_of([parse_publication("[x,1]")])
    with pytest.raises(ValueError, match="modes"):
        index.search(PublicationView(data, starts, ends), np.full(1, ALL, np.int8))
    with pytest.raises(ValueError, match="row 0"):
        index.search(PublicationView(data, starts, ends + 5), np.full(2, ALL, np.int8))
    assert index.search(PublicationView(np.array(data), starts, ends), np.full(2, ALL, np.int8)).hits.tolist() == [[False, True]]


def test_contains_is_quick_whatever_the_text():
    index = Index()
    index.add(1, parse_filter(f"[s,str-contains,'{'a' * 30_000}b']"))
    index.add(2, parse_filter(f"[s,str-contains,'{'a' * 30_000}']"))
    index.add(3, parse_filter("[s,str-contains,'']"))
    assert index.match(parse_publication(f"[s,'{'a' * 60_000}']")) == {2, 3}
