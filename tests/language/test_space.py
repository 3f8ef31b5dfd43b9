"""Boxes against counting: on small domains the volume of a box is the number of publications in it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.errors import LanguageError
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.space import (
    Box,
    ContentSpace,
    NumberDomain,
    TextDomain,
    bounds,
    interest,
    interests,
    intersection_volumes,
    overlap,
    overlaps,
)
from overweave.language.syntax import parse_filter

WORDS = ("", "a", "ab", "b", "c")
SMALL = ContentSpace(
    {
        "A": {"n": NumberDomain(-2, 4), "word": TextDomain.of(WORDS)},
        "B": {"n": NumberDomain(0, 9)},
    }
)
ALL = [Publication({"class": "A", "n": n, "word": word}) for n in range(-2, 5) for word in WORDS]
ALL += [Publication({"class": "B", "n": n}) for n in range(10)]

ordered = st.sampled_from([Operator.EQ, Operator.LT, Operator.LE, Operator.GT, Operator.GE, Operator.PRESENT])
convex_predicates = (
    st.builds(Predicate, st.just("n"), ordered, st.integers(-4, 11) | st.sampled_from([1.5, float("inf"), float("-inf")]))
    | st.builds(Predicate, st.just("word"), ordered | st.just(Operator.PREFIX), st.sampled_from((*WORDS, "aa", "d")))
    | st.builds(Predicate, st.just("class"), st.just(Operator.EQ), st.sampled_from("AB"))
)
convex_filters = st.lists(convex_predicates, min_size=1, max_size=4).map(lambda several: Filter(tuple(several)))


def counted(*filters: Filter) -> int:
    return sum(all(matches(one, publication) for one in filters) for publication in ALL)


@given(convex_filters)
@settings(max_examples=200, deadline=None)
def test_volume_is_the_number_of_publications(one):
    assert sum(box.volume for box in SMALL.boxes(one)) == counted(one)


@given(convex_filters, convex_filters)
@settings(max_examples=200, deadline=None)
def test_intersection_volume_is_the_number_of_common_publications(x, y):
    pairs = [a.intersection(b) for a in SMALL.boxes(x) for b in SMALL.boxes(y)]
    assert sum(box.volume for box in pairs if box) == counted(x, y)


@given(st.lists(convex_filters, max_size=6), st.lists(convex_filters, max_size=6))
@settings(max_examples=50, deadline=None)
def test_arrays_agree_with_boxes(x, y):
    xs = [box for one in x for box in SMALL.boxes(one)]
    ys = [box for one in y for box in SMALL.boxes(one)]
    for many, single in ((interests, interest), (overlaps, overlap)):
        expected = [[single(a, b) for b in ys] for a in xs]
        np.testing.assert_allclose(many(bounds(xs), bounds(ys)), np.array(expected).reshape(len(xs), len(ys)))


def test_fig_2_the_same_area_can_mean_more():
    """MINIMAL 4.2: sharing 15 of 37.5 units is 40 % of one subscription, sharing 10 of 15 is 67 % of another."""
    s1, s2 = Box((0, 0, 0), (1, 7.5, 5)), Box((0, 4.5, 0), (1, 12, 5))
    s3, s4 = Box((0, 0, 0), (1, 3, 5)), Box((0, 1, 0), (1, 4, 5))
    assert s1.intersection(s2).volume == 15
    assert s3.intersection(s4).volume == 10
    assert interest(s1, s2) == pytest.approx(0.4)
    assert interest(s3, s4) == pytest.approx(2 / 3)
    assert overlap(s3, s4) > overlap(s1, s2)


def test_overlap_is_0_for_disjoint_and_1_for_identical():
    x, y = Box((0, 0), (1, 10)), Box((0, 10), (1, 20))
    assert overlap(x, x) == 1
    assert overlap(x, y) == 0


def test_each_class_has_its_own_domains():
    low, high = SMALL.boxes(parse_filter("[n,>=,0]"))
    assert (low.volume, high.volume) == (5 * 5, 10)
    assert low.intersection(high) is None
    (only,) = SMALL.boxes(parse_filter("[class,neq,'A'],[n,>=,0]"))
    assert only == high


@pytest.mark.parametrize(
    "text",
    ["[n,=,1.5]", "[n,>,100]", "[n,eq,'a']", "[word,=,1]", "[word,eq,'zz']", "[other,=,1]", "[class,eq,'C']", "[n,=,1],[n,=,2]"],
)
def test_no_box_for_what_cannot_be_published(text):
    assert SMALL.boxes(parse_filter(text)) == ()


def test_floats_have_the_width_epsilon():
    space = ContentSpace({"A": {"price": NumberDomain(0, 100, epsilon=0.5)}})
    volumes = {text: space.boxes(parse_filter(text))[0].volume for text in ["[price,=,7]", "[price,<=,7]", "[price,isPresent,0]"]}
    assert list(volumes.values()) == [0.5, 7.5, 100.5]
    (at_end,), (below,) = space.boxes(parse_filter("[price,=,7]")), space.boxes(parse_filter("[price,<=,7]"))
    assert interest(at_end, below) == 1


def test_gaps_between_words_count_as_inside():
    domain = TextDomain.of(["ax", "b", "cx", "d"])
    space = ContentSpace({"A": {"word": domain}})
    (box,) = space.boxes(parse_filter("[word,str-suffix,'x']"))
    assert box == Box((0, 0), (1, 3))


@pytest.mark.parametrize(
    "make",
    [
        lambda: NumberDomain(2, 1),
        lambda: NumberDomain(0, float("inf")),
        lambda: NumberDomain(0, float("nan")),
        lambda: NumberDomain(0, 1, epsilon=0),
        lambda: NumberDomain(0, 2**60),
        lambda: NumberDomain(0.5, 2),
        lambda: NumberDomain(0, 1e12, epsilon=1e-9),
        lambda: TextDomain(()),
        lambda: TextDomain(("b", "a")),
        lambda: TextDomain(("a", "a")),
        lambda: ContentSpace({}),
    ],
)
def test_spaces_that_cannot_exist(make):
    with pytest.raises(LanguageError):
        make()


def test_thousands_of_boxes_at_once():
    corners = np.random.default_rng(1).uniform(0, 1000, (2, 1500, 3))
    boxes = tuple(np.sort(corners, axis=0))
    shared = intersection_volumes(boxes, boxes)
    assert shared.shape == (1500, 1500)
    np.testing.assert_allclose(shared, shared.T)
    np.testing.assert_allclose(np.diag(shared), np.prod(boxes[1] - boxes[0], axis=1))
    some = [(3, 5), (17, 900), (1499, 0)]
    for x, y in some:
        width = [min(boxes[1][x, k], boxes[1][y, k]) - max(boxes[0][x, k], boxes[0][y, k]) for k in range(3)]
        assert shared[x, y] == pytest.approx(np.prod(np.maximum(width, 0)))
