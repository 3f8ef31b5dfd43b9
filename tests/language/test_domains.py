"""Content spaces from what occurs: everything that was said has a place in them."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from overweave.language.domains import content_space
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.space import NumberDomain, TextDomain
from overweave.language.syntax import parse_filter


def space_of(*texts, **more):
    return content_space(map(parse_filter, texts), **more).attribute_spaces


def test_domains_are_what_occurs():
    found = space_of(
        "[class,eq,'A'],[n,>=,2],[n,<=,7]", "[class,eq,'A'],[n,=,9],[word,eq,'b']", "[class,eq,'B'],[price,>,1.5]",
        "[word,str-prefix,'a']",
    )  # fmt: skip
    assert found["A"] == {"n": NumberDomain(2, 9), "word": TextDomain(("a", "b"))}
    assert found["B"]["price"].lo == 1.5
    assert found["B"]["price"].hi == pytest.approx(1.5, rel=1e-5)
    assert found["B"]["price"].hi > 1.5
    assert "word" not in found["B"], "no filter of class B speaks of it"


def test_publications_tell_more():
    said = [Publication({"class": "A", "n": 40, "m": 0.25})]
    found = space_of("[class,eq,'A'],[n,>=,2]", publications=said, epsilon=None)
    assert found["A"]["n"] == NumberDomain(2, 40)
    assert found["A"]["m"].lo == found["A"]["m"].hi == 0.25
    assert space_of("[class,eq,'A'],[n,>=,2]", epsilon=0.5)["A"]["n"].unit == 0.5


def test_without_any_class_there_is_one_space():
    assert space_of("[n,>=,2],[n,<=,3]") == {"": {"n": NumberDomain(2, 3)}}


values = st.integers(-5, 5) | st.sampled_from([0.5, 2.25])
numeric = st.builds(
    Predicate, st.sampled_from("xy"), st.sampled_from([Operator.EQ, Operator.LT, Operator.LE, Operator.GT, Operator.GE]), values
)
filters = st.lists(numeric, min_size=1, max_size=3).map(lambda several: Filter((Predicate("class", Operator.EQ, "A"), *several)))


@given(st.lists(filters, min_size=1, max_size=4))
@settings(max_examples=150, deadline=None)
def test_a_filter_that_can_be_satisfied_has_a_box(several):
    space = content_space(several)
    grid = [n / 4 for n in range(-30, 31)]
    for each in several:
        satisfied = any(matches(each, Publication({"class": "A", "x": x, "y": y})) for x in grid for y in grid)
        # A domain of integers has nothing between two of them.
        between = all(domain.unit == 1 for domain in space.attribute_spaces["A"].values())
        assert bool(space.boxes(each)) >= satisfied or between
