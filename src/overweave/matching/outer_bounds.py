"""Outer bounds: the constraints of a filter as plain numbers, for kernels that have to see which filters can intersect.

A number is bounded by the nearest floats outside, a text by its first bytes. So intervals that are apart prove that two
constraints are, and a constraint says of itself whether its interval proves the opposite too.
"""

import functools
import math
from typing import NamedTuple

from overweave.language.constraints import CACHE_MAX, Constraint, Numbers, TextSet, constraints
from overweave.language.order import Number
from overweave.language.predicates import Filter
from overweave.language.values import Value

#: The bytes of a text that fit into a float; the order of UTF-8 is that of code points.
_TEXT_BYTES = 6


class OuterBound(NamedTuple):
    """What a filter says of one attribute: every value that it admits lies from ``low`` to ``high``.

    Two constraints that are both ``exact`` intersect if and only if their intervals do. The single value of an equality is
    ``fixed``; of two that are fixed equal values say all.
    """

    #: The attribute, and whether its values are texts: numbers and texts never meet.
    name: tuple[str, bool]
    low: float
    high: float
    exact: bool
    fixed: Value | None


@functools.lru_cache(maxsize=CACHE_MAX)
def outer_bounds(filter: Filter) -> tuple[OuterBound, ...] | None:
    """The bounds of every attribute that ``filter`` mentions; None if no publication can match it.

    >>> from overweave.language.syntax import parse_filter
    >>> for bound in outer_bounds(parse_filter("[class,eq,'STOCK'],[volume,>=,1000],[volume,<>,2000]")):
    ...     print(bound.name, bound.exact, bound.fixed)
    ('class', True) False STOCK
    ('volume', False) False None
    """
    found = constraints(filter)
    if found is None:
        return None
    return tuple(_bound(attribute, constraint) for attribute, constraint in found.items())


def _bound(attribute: str, constraint: Constraint) -> OuterBound:
    if isinstance(constraint, Numbers):
        low, high = _floor(constraint.lo), _ceiling(constraint.hi)
        exact = low == constraint.lo and high == constraint.hi and not constraint.excluded
        return OuterBound((attribute, False), low, high, exact, constraint.lo if constraint.lo == constraint.hi else None)
    if isinstance(constraint, TextSet):
        words = sorted(constraint.values)
        fixed = words[0] if len(words) == 1 else None
        return OuterBound((attribute, True), _text_number(words[0]), _text_number(words[-1]), False, fixed)
    high = math.inf if constraint.hi is None else _text_number(constraint.hi)
    return OuterBound((attribute, True), _text_number(constraint.lo), high, False, None)


def _floor(number: Number) -> float:
    below = float(number)
    return math.nextafter(below, -math.inf) if below > number else below


def _ceiling(number: Number) -> float:
    return -_floor(-number)


def _text_number(text: str) -> float:
    """A number that does not get smaller as texts get larger."""
    return float(int.from_bytes(text.encode()[:_TEXT_BYTES].ljust(_TEXT_BYTES, b"\0"), "big"))
