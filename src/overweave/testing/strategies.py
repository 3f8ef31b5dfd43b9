"""Hypothesis strategies for the language: small domains, so that values collide, and every awkward value on purpose.

``filters()``, ``publications()``, ``any_filters`` and ``any_publications`` are what other tests want; the rest is what they
are made of, and the narrower kinds of filters on which a relation can be checked against all critical values.
Numbers sit on, next to and between each other, around the limits of exact floats (2**53) and of integers (2**63), and
at the ends; texts are short words over letters, the first character and the neighbours of the gap of the surrogates.
"""

import math

from hypothesis import strategies as st

from overweave.language.predicates import NUMBER_OPERATORS, TEXT_OPERATORS, Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.values import INTEGER_MAX, INTEGER_MIN, Value

ATTRIBUTES = ("class", "x", "y")
_ANCHORS = (0, 5, 6, 2**53, -(2**53), 2.0**63, -(2.0**63))

#: Every number that is interesting as a bound.
NUMBERS: tuple[int | float, ...] = (
    *(math.nextafter(anchor, -math.inf) for anchor in _ANCHORS),
    *map(float, _ANCHORS),
    *(math.nextafter(anchor, math.inf) for anchor in _ANCHORS),
    *(0, 5, 6, 7, 5.5, -5),
    *(2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**53 + 3, -(2**53) - 1),
    *(INTEGER_MAX - 1, INTEGER_MAX, INTEGER_MIN, INTEGER_MIN + 1),
    *(1.7976931348623157e308, math.inf, -math.inf, -0.0),
)

#: A few close together: conjunctions over these are often empty, finite or equal.
CLOSE_NUMBERS: tuple[int | float, ...] = (
    5,
    math.nextafter(5, 9),
    math.nextafter(math.nextafter(5, 9), 9),
    6,
    2**53,
    2**53 + 1,
    2**53 + 2,
)

numbers = st.sampled_from(NUMBERS) | st.sampled_from(CLOSE_NUMBERS)
any_numbers = numbers | st.floats(allow_nan=False) | st.integers(INTEGER_MIN, INTEGER_MAX)
words = st.text(alphabet="ab", max_size=3)
texts = words | st.text(alphabet="ab\0", max_size=3) | st.text(alphabet="a\0\ud7ff\ue000\U0010ffff", max_size=2)
any_texts = texts | st.text(max_size=8)
#: What a publication may carry; unlike a predicate it may carry a nan.
values: st.SearchStrategy[Value] = any_numbers | st.just(math.nan) | texts
attributes = st.sampled_from(ATTRIBUTES)
any_attributes = attributes | st.sampled_from(["openClose%Diff", "größe", "=", "<>", "1", "nan", "\\"])


@st.composite
def number_predicates(
    draw: st.DrawFn, attribute: st.SearchStrategy[str] = attributes, value: st.SearchStrategy[int | float] = numbers
) -> Predicate:
    """A predicate whose value is a number."""
    return Predicate(draw(attribute), draw(st.sampled_from(sorted(NUMBER_OPERATORS))), draw(value))


@st.composite
def text_predicates(
    draw: st.DrawFn,
    attribute: st.SearchStrategy[str] = attributes,
    value: st.SearchStrategy[str] = texts,
    operators: tuple[Operator, ...] = tuple(TEXT_OPERATORS),
) -> Predicate:
    """A predicate whose value is text, with one of ``operators``."""
    return Predicate(draw(attribute), draw(st.sampled_from(operators)), draw(value))


#: Predicates for which all relations have to be exact: on numbers, and equality and inequality of texts.
plain_predicates = number_predicates(st.sampled_from("xy")) | text_predicates(
    st.sampled_from("xy"), words, (Operator.EQ, Operator.NE, Operator.PRESENT)
)
predicates = number_predicates() | text_predicates()


def filters(predicate: st.SearchStrategy[Predicate] = predicates, most: int = 5) -> st.SearchStrategy[Filter]:
    """Conjunctions of up to ``most`` predicates, often several on one attribute."""
    return st.lists(predicate, min_size=1, max_size=most).map(lambda several: Filter(tuple(several)))


def publications(
    value: st.SearchStrategy[Value] = values, attribute: st.SearchStrategy[str] = attributes
) -> st.SearchStrategy[Publication]:
    """Publications with one to three attributes."""
    return st.dictionaries(attribute, value, min_size=1, max_size=3).map(Publication)


def number_filters(most: int = 5) -> st.SearchStrategy[Filter]:
    """Filters on the one attribute ``x`` over few numbers: often empty, finite or equal to each other."""
    return filters(number_predicates(st.just("x"), st.sampled_from(CLOSE_NUMBERS)), most)


def plain_filters(most: int = 5) -> st.SearchStrategy[Filter]:
    """Filters for which all relations are exact."""
    return filters(plain_predicates, most)


def text_filters(most: int = 4) -> st.SearchStrategy[Filter]:
    """Filters on the one attribute ``x`` with any mixture of text operators."""
    return filters(text_predicates(st.just("x"), st.text(alphabet="ab\0", max_size=2)), most)


#: Filters and publications with any value and name that can be written down.
any_filters = filters(number_predicates(any_attributes, any_numbers) | text_predicates(any_attributes, any_texts))
any_publications = publications(values | any_texts, any_attributes)
