r"""What a filter says about one attribute: the set of values it admits, in a form that is easy to compare.

*Numbers* are all 64-bit floats and all 64-bit integers, a set in which every member but the last has a next one.
So every bound can be made closed and every excluded value at an end moves that end inwards: two constraints
admit the same numbers if and only if their forms are equal, and nothing lies between adjacent numbers.

*Texts* are ordered by code points. The text right after ``t`` is ``t + '\0'``, so every order bound, and every prefix,
is a half-open interval ``[lo, hi)``. An interval is finite only if ``hi`` is ``lo`` and some ``'\0'``; every other one
holds all texts that begin in some way, hence also some with any suffix, any parts and beside any exclusions.
That makes the test for emptiness exact.
"""

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeAlias, cast

import msgspec

from overweave.language.order import Number, after_prefix, common_prefix, predecessor, successor
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.values import Value, is_number

#: Finite sets of texts are listed up to this size; larger ones are treated like infinite ones.
LISTED_MAX = 64
#: How many filters keep their constraints at hand.
CACHE_MAX = 65_536


class Numbers(msgspec.Struct, frozen=True):
    """The numbers from ``lo`` to ``hi``, both admitted, without ``excluded`` (all inside); ``nan`` too if so.

    >>> constraint([Predicate("x", Operator.GT, 5), Predicate("x", Operator.NE, 7)])
    Numbers(lo=5.000000000000001, hi=inf, nan=False, excluded=frozenset({7}))
    """

    lo: Number
    hi: Number
    nan: bool
    excluded: frozenset[Number]

    def holds(self, value: Value) -> bool:
        """Whether ``value`` is admitted."""
        if isinstance(value, str):
            return False
        if value != value:
            return self.nan
        return self.lo <= value <= self.hi and value not in self.excluded

    def covers(self, narrow: "Constraint") -> bool:
        """Whether everything that ``narrow`` admits is admitted here; exact."""
        return (
            type(narrow) is Numbers
            and self.lo <= narrow.lo
            and narrow.hi <= self.hi
            and (self.nan or not narrow.nan)
            and not (self.excluded and any(map(narrow.holds, self.excluded)))
        )

    def intersects(self, other: "Constraint") -> bool:
        """Whether some value is admitted by both; exact."""
        if type(other) is not Numbers:
            return False
        lo = self.lo if self.lo > other.lo else other.lo
        hi = self.hi if self.hi < other.hi else other.hi
        if not self.excluded and not other.excluded:
            return lo <= hi
        return _numbers(lo, hi, False, self.excluded | other.excluded) is not NOTHING


class TextSet(msgspec.Struct, frozen=True):
    """A finite set of texts, most often the single one of an equality.

    >>> constraint([Predicate("symbol", Operator.EQ, "YHOO")])
    TextSet(values=frozenset({'YHOO'}))
    """

    values: frozenset[str]

    def holds(self, value: Value) -> bool:
        """Whether ``value`` is admitted."""
        return value in self.values

    def covers(self, narrow: "Constraint") -> bool:
        """Whether everything that ``narrow`` admits is admitted here; exact."""
        return type(narrow) is TextSet and narrow.values <= self.values

    def intersects(self, other: "Constraint") -> bool:
        """Whether some value is admitted by both; exact."""
        if type(other) is TextSet:
            return not self.values.isdisjoint(other.values)
        return any(map(other.holds, self.values))


class Texts(msgspec.Struct, frozen=True):
    """The texts of ``[lo, hi)`` (``None``: no end) that end with ``suffix`` and have all ``parts``, without ``excluded``.

    >>> constraint([Predicate("symbol", Operator.PREFIX, "YH")])
    Texts(lo='YH', hi='YI', suffix='', parts=frozenset(), excluded=frozenset())
    """

    lo: str
    hi: str | None
    suffix: str
    parts: frozenset[str]
    excluded: frozenset[str]

    def holds(self, value: Value) -> bool:
        """Whether ``value`` is admitted."""
        return (
            isinstance(value, str)
            and self.lo <= value
            and (self.hi is None or value < self.hi)
            and value.endswith(self.suffix)
            and all(part in value for part in self.parts)
            and value not in self.excluded
        )

    def covers(self, narrow: "Constraint") -> bool:
        r"""Whether everything that ``narrow`` admits is admitted here.

        It may say no wrongly if a part of ours is in all texts of ``narrow`` because of several of its conditions
        together, or if more than `LISTED_MAX` texts ``t``, ``t\0``, ``t\0\0``, … have to be ruled out one by one.
        """
        if type(narrow) is not Texts:
            return type(narrow) is TextSet and all(map(self.holds, narrow.values))
        return (
            (self.lo <= narrow.lo or (self.lo.endswith("\0") and narrow._has_none_before(self.lo)))
            and (self.hi is None or (narrow.hi is not None and narrow.hi <= self.hi))
            and narrow.suffix.endswith(self.suffix)
            and all(map(narrow._must_contain, self.parts))
            and not any(map(narrow.holds, self.excluded))
        )

    def intersects(self, other: "Constraint") -> bool:
        """Whether some value is admitted by both; exact but for finite intervals too long to be listed."""
        if type(other) is not Texts:
            return type(other) is TextSet and any(map(self.holds, other.values))
        both = (self, other)
        suffix = _longest_suffix([one.suffix for one in both])
        if suffix is None:
            return False
        lo, hi = max(self.lo, other.lo), _first_end([self.hi, other.hi])
        return _texts(lo, hi, suffix, self.parts | other.parts, self.excluded | other.excluded) is not NOTHING

    def _has_none_before(self, end: str) -> bool:
        return _texts(self.lo, end, self.suffix, self.parts, self.excluded) is NOTHING

    def _must_contain(self, part: str) -> bool:
        """Whether ``part`` lies in a text that every admitted one contains: anything else can be avoided."""
        return part in self.suffix or any(part in own for own in self.parts) or part in common_prefix(self.lo, self.hi)


Constraint: TypeAlias = Numbers | TextSet | Texts

#: No value at all: what an unsatisfiable conjunction admits.
NOTHING = TextSet(frozenset())


@functools.lru_cache(maxsize=CACHE_MAX)
def constraints(conjunction: Filter) -> Mapping[str, Constraint] | None:
    """The constraint of every attribute that ``conjunction`` mentions; ``None`` if no publication can match it.

    >>> from overweave.language.syntax import parse_filter
    >>> constraints(parse_filter("[class,eq,'STOCK'],[volume,<=,5],[volume,>,5]")) is None
    True
    """
    predicates: dict[str, list[Predicate]] = {}
    for predicate in conjunction.predicates:
        predicates.setdefault(predicate.attribute, []).append(predicate)
    found = {attribute: constraint(several) for attribute, several in predicates.items()}
    return None if any(one is NOTHING for one in found.values()) else found


def constraint(predicates: Sequence[Predicate]) -> Constraint:
    """What several predicates on one attribute admit together.

    >>> constraint([Predicate("x", Operator.GE, 5), Predicate("x", Operator.EQ, "5")]) is NOTHING
    True
    """
    for predicate in predicates:
        if predicate.operator is Operator.EQ:
            return _just(predicate.value, predicates)
    kinds = {is_number(predicate.value) for predicate in predicates}
    if len(kinds) == 2:
        return NOTHING
    return _all_numbers(predicates) if kinds.pop() else _all_texts(predicates)


def _just(value: Value, predicates: Sequence[Predicate]) -> Constraint:
    if not all(predicate.holds(value) for predicate in predicates):
        return NOTHING
    return TextSet(frozenset({value})) if isinstance(value, str) else Numbers(value, value, False, frozenset())


_FROM = frozenset({Operator.GE, Operator.GT})
_UP_TO = frozenset({Operator.LE, Operator.LT})
_WITHOUT = frozenset({Operator.NE, Operator.GT, Operator.LT})
_WITH_NAN = frozenset({Operator.NE, Operator.PRESENT})


def _all_numbers(predicates: Iterable[Predicate]) -> Constraint:
    operands = [(predicate.operator, cast(Number, predicate.value)) for predicate in predicates]
    return _numbers(
        max((value for operator, value in operands if operator in _FROM), default=-math.inf),
        min((value for operator, value in operands if operator in _UP_TO), default=math.inf),
        all(operator in _WITH_NAN for operator, _ in operands),
        {value for operator, value in operands if operator in _WITHOUT},
    )


def _numbers(lo: Number, hi: Number, nan: bool, excluded: Iterable[Number]) -> Constraint:
    excluded = frozenset(excluded)
    while lo < hi and lo in excluded:
        lo = successor(lo)
    while lo < hi and hi in excluded:
        hi = predecessor(hi)
    if lo > hi or lo in excluded:
        return NOTHING
    return Numbers(lo, hi, nan, frozenset(value for value in excluded if lo < value < hi))


def _all_texts(predicates: Iterable[Predicate]) -> Constraint:
    operands = [(predicate.operator, cast(str, predicate.value)) for predicate in predicates]
    intervals = [_interval(operator, text) for operator, text in operands]
    suffix = _longest_suffix([text for operator, text in operands if operator is Operator.SUFFIX])
    if suffix is None:
        return NOTHING
    return _texts(
        max(lo for lo, _ in intervals),
        _first_end([hi for _, hi in intervals]),
        suffix,
        frozenset(text for operator, text in operands if operator is Operator.CONTAINS),
        {text for operator, text in operands if operator is Operator.NE},
    )


def _texts(lo: str, hi: str | None, suffix: str, parts: frozenset[str], excluded: Iterable[str]) -> Constraint:
    def fits(text: str) -> bool:
        return text.endswith(suffix) and all(part in text for part in parts)

    excluded = {text for text in excluded if fits(text)}
    if hi is not None:
        hi = _tight_end(hi, lambda text: text in excluded or not fits(text))
    lo = _tight_start(lo, lambda text: text in excluded or (hi is not None and text < hi <= text + "\1" and not fits(text)))
    if hi is not None and lo >= hi:
        return NOTHING
    if hi is not None and lo.rstrip("\0") == hi.rstrip("\0") and len(hi) - len(lo) <= LISTED_MAX:
        listed = (lo + "\0" * more for more in range(len(hi) - len(lo)))
        admitted = frozenset(text for text in listed if fits(text) and text not in excluded)
        return TextSet(admitted) if admitted else NOTHING
    return Texts(lo, hi, suffix, parts, frozenset(text for text in excluded if lo <= text and (hi is None or text < hi)))


def _interval(operator: Operator, text: str) -> tuple[str, str | None]:
    """The texts that an order or prefix predicate admits, all of them for the other operators."""
    match operator:
        case Operator.LT:
            return "", text
        case Operator.LE:
            return "", text + "\0"
        case Operator.GT:
            return text + "\0", None
        case Operator.GE:
            return text, None
        case Operator.PREFIX:
            return text, after_prefix(text)
        case _:
            return "", None


def _first_end(ends: Iterable[str | None]) -> str | None:
    return min((end for end in ends if end is not None), default=None)


def _longest_suffix(suffixes: Sequence[str]) -> str | None:
    """The suffix that implies all the others, ``None`` if they contradict each other."""
    longest = max(suffixes, key=len, default="")
    return longest if all(map(longest.endswith, suffixes)) else None


def _tight_end(hi: str, refused: Callable[[str], bool]) -> str:
    r"""The end of an interval moved down while it is ``t\0`` and so the last text before it, ``t``, is refused."""
    for _ in range(LISTED_MAX):
        if not hi.endswith("\0") or not refused(hi[:-1]):
            break
        hi = hi[:-1]
    return hi


def _tight_start(lo: str, refused: Callable[[str], bool]) -> str:
    """The start of an interval moved up while it is refused."""
    for _ in range(LISTED_MAX):
        if not refused(lo):
            break
        lo += "\0"
    return lo
