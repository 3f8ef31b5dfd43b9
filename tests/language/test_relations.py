"""The relations against their definition, evaluated predicate by predicate on many publications."""

import itertools
import math

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from overweave.language.constraints import LISTED_MAX, constraints
from overweave.language.order import after_prefix, common_prefix, predecessor, successor
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.relations import admits, covers, intersects, matches, signature
from overweave.language.syntax import parse_filter, parse_publication
from overweave.language.values import INTEGER_MAX, INTEGER_MIN, Value
from overweave.testing import strategies

quick = settings(max_examples=150, deadline=None)
TINY_TEXTS = tuple("".join(text) for size in range(5) for text in itertools.product("ab\0", repeat=size))


def mentioned(*filters: Filter) -> dict[str, list[Value]]:
    found: dict[str, list[Value]] = {}
    for one in filters:
        for predicate in one.predicates:
            found.setdefault(predicate.attribute, []).append(predicate.value)
    return found


def neighbours(number: int | float, steps: int = 5) -> set[int | float]:
    """Floats and integers next to ``number`` on both sides, found without the code under test."""
    found: set[int | float] = {number, float(number)}
    for direction in (-math.inf, math.inf):
        near = float(number)
        for _ in range(steps):
            near = math.nextafter(near, direction)
            found.add(near)
    if math.isfinite(number):
        whole = int(number)
        found |= {near for near in range(whole - steps, whole + steps + 1) if INTEGER_MIN <= near <= INTEGER_MAX}
    return found


def critical(operands: list[Value]) -> list[Value]:
    """Values that tell any two conjunctions over ``operands`` apart: bounds, neighbours, middles and fresh ones."""
    numbers = [value for value in operands if not isinstance(value, str)]
    words = [value for value in operands if isinstance(value, str)]
    found: set[Value] = {math.inf, -math.inf, 1.25, *words, "fresh", *(word + "~" for word in words)}
    for number in numbers:
        found |= neighbours(number)
    finite = sorted({float(number) for number in numbers if math.isfinite(number)})
    found |= {a + (b - a) / 2 for a, b in itertools.pairwise(finite)}
    return [math.nan, *found]


def admitted(filter_: Filter, attribute: str, values: list[Value]) -> list[Value]:
    predicates = [predicate for predicate in filter_.predicates if predicate.attribute == attribute]
    return [value for value in values if all(predicate.holds(value) for predicate in predicates)]


def all_matching(filter_: Filter, values: dict[str, list[Value]]) -> list[Publication]:
    """Every publication with exactly the attributes of ``filter_`` and some of ``values`` that matches it."""
    own = list(mentioned(filter_))
    choices = (admitted(filter_, attribute, values[attribute]) for attribute in own)
    return [Publication(dict(zip(own, chosen, strict=True))) for chosen in itertools.product(*choices)]


def critical_values(*filters: Filter) -> dict[str, list[Value]]:
    return {attribute: critical(operands) for attribute, operands in mentioned(*filters).items()}


def check_exact(wide: Filter, narrow: Filter) -> None:
    values = critical_values(wide, narrow)
    narrow_matches = all_matching(narrow, values)
    assert covers(wide, narrow) == all(matches(wide, one) for one in narrow_matches)
    assert intersects(narrow, wide) == any(matches(wide, one) for one in narrow_matches)


@given(strategies.filters(), strategies.publications())
@quick
def test_matches_is_the_conjunction_of_its_predicates(subscription, publication):
    expected = all(
        predicate.attribute in publication and predicate.holds(publication[predicate.attribute])
        for predicate in subscription.predicates
    )
    assert matches(subscription, publication) == expected


@given(strategies.number_filters(), strategies.number_filters())
@settings(max_examples=400, deadline=None)
def test_exact_on_close_numbers(wide, narrow):
    check_exact(wide, narrow)


@given(strategies.plain_filters(4), strategies.plain_filters(4))
@quick
def test_exact_on_numbers_and_equality_of_texts(wide, narrow):
    check_exact(wide, narrow)


@given(strategies.filters(strategies.number_predicates(st.just("x")), 4), strategies.number_filters(4))
@quick
def test_exact_on_all_awkward_numbers(wide, narrow):
    check_exact(wide, narrow)
    check_exact(narrow, wide)


@given(strategies.filters(), strategies.filters(), strategies.publications())
@settings(max_examples=300, deadline=None)
def test_never_wrong_in_the_dangerous_direction(x, y, publication):
    if covers(x, y):
        assert not matches(y, publication) or matches(x, publication)
    if not intersects(y, x) and publication.keys() == mentioned(y).keys():
        assert not (matches(x, publication) and matches(y, publication))


@given(strategies.text_filters(), strategies.text_filters())
@example(
    parse_filter("[x,str-suffix,'\0']"),
    parse_filter("[x,str-ge,'a'],[x,str-lt,'a\0b'],[x,str-suffix,'\0'],[x,neq,'a\0']"),
)
@settings(max_examples=300, deadline=None)
def test_texts_against_all_tiny_ones(wide, narrow):
    admitted_by = {one: set(admitted(one, "x", list(TINY_TEXTS))) for one in (wide, narrow)}
    if covers(wide, narrow):
        assert admitted_by[narrow] <= admitted_by[wide]
    if not intersects(narrow, wide):
        assert admitted_by[narrow].isdisjoint(admitted_by[wide])
    for one in (wide, narrow):
        constraint = (constraints(one) or {}).get("x")
        assert admitted_by[one] == {text for text in TINY_TEXTS if constraint and constraint.holds(text)}


@given(strategies.text_filters(3), strategies.text_filters(3), strategies.text_filters(3))
@settings(max_examples=300, deadline=None)
def test_covers_is_a_preorder(x, y, z):
    assert covers(x, x)
    for a, b, c in itertools.permutations((x, y, z)):
        if covers(a, b) and covers(b, c):
            assert covers(a, c)


@given(strategies.filters(), strategies.filters())
@quick
def test_marks_are_handed_down(x, y):
    both = Filter(x.predicates + y.predicates)
    assert covers(x, both)
    for narrow in (y, both):
        if covers(x, narrow) and signature(narrow) is not None:
            assert set(signature(x)) <= set(signature(narrow))


COVERING = """
[x,isPresent,0]                      | [x,<>,5]                             | yes
[x,<>,5]                             | [x,isPresent,0]                      | no
[x,>=,-inf]                          | [x,isPresent,0]                      | no  nan
[x,>=,-inf],[x,<=,inf]               | [x,<>,5]                             | no  nan
[x,>,5]                              | [x,>=,5],[x,<>,5]                    | yes
[x,>=,5],[x,<=,5]                    | [x,=,5.0]                            | yes
[x,>,9007199254740992]               | [x,>=,9007199254740993]              | yes
[x,>=,9007199254740993]              | [x,>,9007199254740992.0]             | yes
[x,>=,9007199254740994]              | [x,>,9007199254740992.0]             | no
[y,=,1]                              | [x,>=,5],[x,<=,5],[x,<>,5]           | yes
[x,=,1]                              | [x,isPresent,0],[x,isPresent,'']     | yes
[x,=,1]                              | [y,=,1]                              | no
[x,=,1]                              | [y,=,1],[x,=,1]                      | yes
[x,>=,5],[x,<,5]                     | [x,=,5]                              | no
[x,isPresent,'']                     | [x,str-contains,'a']                 | yes
[x,str-prefix,'ab']                  | [x,str-prefix,'abc']                 | yes
[x,str-prefix,'abc']                 | [x,str-prefix,'ab']                  | no
[x,str-prefix,'ab']                  | [x,eq,'abc']                         | yes
[x,str-prefix,'ab']                  | [x,str-ge,'ab'],[x,str-lt,'ac']      | yes
[x,str-ge,'ab'],[x,str-lt,'ac']      | [x,str-prefix,'ab']                  | yes
[x,str-gt,'a']                       | [x,str-ge,'a'],[x,neq,'a']           | yes
[x,str-gt,'a'],[x,str-suffix,'z']    | [x,str-ge,'a'],[x,str-suffix,'z']    | yes
[x,str-lt,'a'],[x,str-suffix,'z']    | [x,str-le,'a'],[x,str-suffix,'z']    | yes
[x,str-gt,'']                        | [x,str-suffix,'z']                   | yes
[x,str-gt,'z']                       | [x,str-prefix,'z'],[x,str-suffix,'z']| no
[x,str-gt,'a']                       | [x,str-prefix,'a'],[x,str-suffix,'z']| yes
[x,str-contains,'b']                 | [x,str-contains,'abc']               | yes
[x,str-contains,'b']                 | [x,str-prefix,'xb']                  | yes
[x,str-contains,'b']                 | [x,str-suffix,'by']                  | yes
[x,str-contains,'ab']                | [x,str-prefix,'a'],[x,str-suffix,'b']| no
[x,str-contains,'b']                 | [x,str-ge,'ba'],[x,str-lt,'bc']      | yes
[x,str-contains,'b']                 | [x,str-ge,'ab'],[x,str-lt,'c']       | no
[x,str-prefix,'\ud7ff']              | [x,str-ge,'\ud7ff'],[x,str-lt,'\ue000'] | yes
[x,str-suffix,'b']                   | [x,str-suffix,'ab']                  | yes
[x,str-suffix,'b']                   | [x,str-suffix,'a'],[x,str-suffix,'b']| yes
[x,neq,'ab']                         | [x,str-suffix,'c']                   | yes
[x,neq,'ab']                         | [x,str-prefix,'a']                   | no
[x,neq,'ab']                         | [x,str-prefix,'a'],[x,neq,'ab']      | yes
[x,str-prefix,'']                    | [x,isPresent,'']                     | yes
"""
INTERSECTING = r"""
[x,>,5]                              | [x,<,6]                              | yes
[x,isPresent,0]                      | [x,isPresent,'']                     | no
[x,>,9007199254740992]               | [x,<,9007199254740994]               | yes
[x,>,9007199254740992]               | [x,<,9007199254740993]               | no
[x,>,0]                              | [x,<,5e-324]                         | no
[x,>=,5],[x,<>,5.000000000000001]    | [x,<,5.000000000000002],[x,<>,5]     | no
[x,=,inf]                            | [x,>,1e308]                          | yes
[x,>,1.7976931348623157e+308]        | [x,<,inf]                            | no
[x,isPresent,0]                      | [x,=,5],[y,=,5]                      | no
[x,isPresent,0],[y,isPresent,0]      | [x,=,5]                              | yes
[x,isPresent,0],[y,=,1],[y,=,2]      | [x,=,5]                              | no
[x,str-prefix,'a']                   | [x,str-suffix,'b']                   | yes
[x,str-suffix,'ab']                  | [x,str-suffix,'b']                   | yes
[x,str-suffix,'ab']                  | [x,str-suffix,'bb']                  | no
[x,str-ge,'a'],[x,str-le,'a']        | [x,str-suffix,'b']                   | no
[x,str-prefix,'a']                   | [x,str-lt,'a']                       | no
[x,str-gt,'a']                       | [x,str-lt,'ab']                      | yes
[x,str-contains,'b']                 | [x,str-lt,'b']                       | yes
[x,str-lt,'']                        | [x,isPresent,'']                     | no
"""


def rows(table: str):
    return [tuple(cell.strip() for cell in line.split("|")) for line in table.strip().splitlines()]


@pytest.mark.parametrize(("wide", "narrow", "expected"), rows(COVERING))
def test_covers_by_table(wide, narrow, expected):
    assert covers(parse_filter(wide), parse_filter(narrow)) == (expected == "yes")


@pytest.mark.parametrize(("advertisement", "subscription", "expected"), rows(INTERSECTING))
def test_intersects_by_table(advertisement, subscription, expected):
    assert intersects(parse_filter(advertisement), parse_filter(subscription)) == (expected == "yes")


def test_nothing_lies_between_a_text_and_the_next():
    nothing = parse_filter("[x,str-gt,'a'],[x,str-lt,'a\0']")
    assert covers(parse_filter("[x,=,1]"), nothing)
    assert not intersects(nothing, nothing)
    two = parse_filter("[x,str-ge,'a'],[x,str-lt,'a\0\0']")
    assert covers(two, parse_filter("[x,eq,'a\0']"))
    assert not covers(parse_filter("[x,eq,'a\0']"), two)
    assert covers(parse_filter("[x,eq,'a\0']"), parse_filter("[x,str-ge,'a'],[x,str-lt,'a\0\0'],[x,neq,'a']"))


def test_sets_too_large_to_be_listed_stay_on_the_safe_side():
    long = "\0" * (10 * LISTED_MAX)
    many = parse_filter(f"[x,str-lt,'{long}']")
    assert covers(many, many)
    assert covers(many, parse_filter("[x,eq,'\0']"))
    assert covers(parse_filter("[x,str-le,'\1']"), many)
    assert intersects(many, parse_filter("[x,str-contains,'\0']"))
    gone = ["\0" * size for size in range(LISTED_MAX + 3)]
    others = Filter(tuple(Predicate("x", Operator.NE, text) for text in gone))
    assert not any(intersects(others, Filter((Predicate("x", Operator.EQ, text),))) for text in gone)


def test_fig_3_2_example():
    quote = parse_publication("[class,'STOCK'],[symbol,'YHOO'],[open,30.25],[volume,203400],[date,'1-May-96']")
    advertisement = parse_filter(
        "[class,eq,'STOCK'],[symbol,eq,'YHOO'],[open,isPresent,0],[volume,isPresent,0],[date,isPresent,'x']"
    )
    large = parse_filter("[class,eq,'STOCK'],[symbol,eq,'YHOO'],[volume,>,300000]")
    assert matches(advertisement, quote)
    assert not matches(large, quote)
    assert intersects(advertisement, large)
    assert not intersects(large, advertisement), "a publisher of volumes alone does not publish dates"


@given(strategies.any_numbers)
@example(INTEGER_MAX)
@example(-(2.0**63))
@example(2**53)
def test_nothing_lies_between_a_number_and_the_next(number):
    after = successor(number)
    if number == math.inf:
        assert after == number
        return
    assert after > number
    assert predecessor(after) == number
    for other in neighbours(number):
        assert not number < other < after


@given(strategies.texts, strategies.texts)
def test_a_prefix_is_an_interval(prefix, text):
    end = after_prefix(prefix)
    assert text.startswith(prefix) == (prefix <= text and (end is None or text < end))


@given(strategies.texts, strategies.texts)
def test_the_common_prefix_of_an_interval(lo, hi):
    if lo >= hi:
        return
    common = common_prefix(lo, hi)
    inside = [text for text in (*TINY_TEXTS, lo, lo + "\U0010ffff") if lo <= text < hi]
    assert all(text.startswith(common) for text in inside)
    assert common == lo or after_prefix(lo[: len(common) + 1]) < hi


@quick
@given(strategies.filters(), strategies.filters(), strategies.publications())
def test_what_an_advertisement_admits_reaches_every_subscription_that_it_matches(advertisement, subscription, publication):
    if admits(advertisement, publication) and matches(subscription, publication):
        assert intersects(advertisement, subscription)


@quick
@given(strategies.filters(), strategies.publications())
def test_admits_is_as_defined(advertisement, publication):
    named = {predicate.attribute for predicate in advertisement.predicates}
    present = [predicate for predicate in advertisement.predicates if predicate.attribute in publication]
    expected = set(publication) <= named and all(predicate.holds(publication[predicate.attribute]) for predicate in present)
    assert admits(advertisement, publication) == (expected and constraints(advertisement) is not None)
