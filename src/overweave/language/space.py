"""The content space of MINIMAL 4.1: filters as boxes, and how similar two of them are (4.2).

A content space consists of attribute spaces, one per class, each with its own attributes and domains. A
publication is a point in one of them, a filter a box. Readings (SPEC 2):

- an attribute that a filter leaves open, on one side or on both, takes its domain there;
- every value has a width, one unit for integers and words and ``epsilon`` for other numbers, so a bound that admits its
  value ends one unit behind it, an equality is one unit wide, and the volume of a box is never 0;
- words are coded by their place in the sorted dictionary of their domain: equality, order and prefix are intervals of it;
- a box is the *bounding* box: exclusions, and the gaps that suffixes and parts leave between words, count as inside;
- publications stay within the domains, so a filter that admits nothing of a domain has no box there.

Coordinate 0 of every box is its class, one unit wide, and the axes behind the last attribute of a
small attribute space are one unit wide too: boxes of different classes are disjoint, and boxes of all classes fit one array.
"""

import bisect
import math
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from overweave.errors import LanguageError
from overweave.language.constraints import Constraint, Numbers, Texts, constraints
from overweave.language.predicates import Filter

#: The attribute that names the attribute space of a publication.
CLASS = "class"

Span: TypeAlias = tuple[float, float]
Array: TypeAlias = npt.NDArray[np.float64]


class NumberDomain(msgspec.Struct, frozen=True):
    """The numbers from ``lo`` to ``hi``: integers, or all of them in steps of ``epsilon``.

    >>> NumberDomain(0, 1000).whole, NumberDomain(0, 1, epsilon=0.25).whole
    ((0, 1001), (0, 1.25))
    """

    lo: float
    hi: float
    epsilon: float | None = None

    def __post_init__(self) -> None:
        if not -math.inf < self.lo <= self.hi < math.inf:
            raise LanguageError(f"domain {self.lo} to {self.hi}: expected two finite numbers in ascending order")
        if self.epsilon is None and (self.lo % 1 or self.hi % 1):
            raise LanguageError(f"domain {self.lo} to {self.hi}: expected integers, or an epsilon")
        farthest = max(abs(self.lo), abs(self.hi))
        if not (self.unit > 0 and float(farthest) + self.unit > farthest):
            raise LanguageError(f"domain {self.lo} to {self.hi}: expected a unit that can be told apart there, got {self.unit}")

    @property
    def unit(self) -> float:
        """The width of one value."""
        return 1 if self.epsilon is None else self.epsilon

    @property
    def whole(self) -> Span:
        """The interval of the axis that the domain takes."""
        return self.lo, self.hi + self.unit

    def span(self, constraint: Constraint) -> Span | None:
        """The interval that ``constraint`` takes of the domain."""
        if not isinstance(constraint, Numbers):
            return None
        lo, hi = max(self.lo, constraint.lo), min(self.hi, constraint.hi)
        if lo <= hi and self.epsilon is None:
            lo, hi = math.ceil(lo), math.floor(hi)
        return (lo, hi + self.unit) if lo <= hi else None


class TextDomain(msgspec.Struct, frozen=True):
    """The words that occur, sorted; `TextDomain.of` sorts them.

    >>> TextDomain.of(["YHOO", "MSFT", "IBM"])
    TextDomain(words=('IBM', 'MSFT', 'YHOO'))
    """

    words: tuple[str, ...]

    def __post_init__(self) -> None:
        if not self.words or any(a >= b for a, b in zip(self.words, self.words[1:], strict=False)):
            raise LanguageError("domain of words: expected at least one, in ascending order and each once")

    @classmethod
    def of(cls, words: Iterable[str]) -> "TextDomain":
        """The domain of ``words`` in any order."""
        return cls(tuple(sorted(set(words))))

    @property
    def whole(self) -> Span:
        """The interval of the axis that the domain takes."""
        return 0, len(self.words)

    def span(self, constraint: Constraint) -> Span | None:
        """The interval that ``constraint`` takes of the domain: from the first word it admits to the last."""
        if isinstance(constraint, Numbers):
            return None
        if isinstance(constraint, Texts):
            lo = bisect.bisect_left(self.words, constraint.lo)
            hi = len(self.words) if constraint.hi is None else bisect.bisect_left(self.words, constraint.hi)
            codes = [code for code in range(lo, hi) if constraint.holds(self.words[code])]
        else:
            places = ((bisect.bisect_left(self.words, word), word) for word in constraint.values)
            codes = [code for code, word in places if self.words[code : code + 1] == (word,)]
        return (min(codes), max(codes) + 1) if codes else None


Domain: TypeAlias = NumberDomain | TextDomain


class Box(msgspec.Struct, frozen=True):
    """A box ``[lo, hi)`` of a content space; ``lo < hi`` on every axis, and the first axis is the class.

    >>> Box((0, 0, 0), (1, 10, 5)).volume
    50.0
    """

    lo: tuple[float, ...]
    hi: tuple[float, ...]

    @property
    def volume(self) -> float:
        """How many values, in units, fit into the box."""
        return float(math.prod(hi - lo for lo, hi in zip(self.lo, self.hi, strict=True)))

    def intersection(self, other: "Box") -> "Box | None":
        """The box of everything that is in both, ``None`` if nothing is.

        >>> Box((0, 0, 0), (1, 10, 5)).intersection(Box((0, 6, 1), (1, 20, 9)))
        Box(lo=(0, 6, 1), hi=(1, 10, 5))
        """
        lo, hi = tuple(map(max, self.lo, other.lo)), tuple(map(min, self.hi, other.hi))
        return Box(lo, hi) if all(a < b for a, b in zip(lo, hi, strict=True)) else None


class ContentSpace:
    """The attribute spaces of a system: for every class the domains of its attributes.

    >>> from overweave.language.syntax import parse_filter
    >>> space = ContentSpace({"STOCK": {"symbol": TextDomain.of(["IBM", "YHOO"]), "volume": NumberDomain(0, 999)}})
    >>> space.boxes(parse_filter("[class,eq,'STOCK'],[symbol,eq,'YHOO'],[volume,>=,400]"))
    (Box(lo=(0, 1, 400), hi=(1, 2, 1000)),)
    """

    def __init__(self, attribute_spaces: Mapping[str, Mapping[str, Domain]]) -> None:
        #: Classes in ascending order; a class's place is its coordinate. Attributes are in ascending order too.
        self.attribute_spaces = {name: dict(sorted(domains.items())) for name, domains in sorted(attribute_spaces.items())}
        if not self.attribute_spaces:
            raise LanguageError("a content space: expected at least one class")
        #: The number of axes of every box.
        self.axes = 1 + max(map(len, self.attribute_spaces.values()))

    def boxes(self, conjunction: Filter) -> tuple[Box, ...]:
        """The box of ``conjunction`` in each attribute space that it reaches: in one, as a rule, since filters name a class."""
        wanted = dict(constraints(conjunction) or {})
        if not wanted:
            return ()
        of_class = wanted.pop(CLASS, None)
        found = (
            self._box(code, domains, wanted)
            for code, (name, domains) in enumerate(self.attribute_spaces.items())
            if of_class is None or of_class.holds(name)
        )
        return tuple(box for box in found if box is not None)

    def _box(self, code: int, domains: Mapping[str, Domain], wanted: Mapping[str, Constraint]) -> Box | None:
        if not wanted.keys() <= domains.keys():
            return None
        spans: list[Span] = [(code, code + 1)]
        for attribute, domain in domains.items():
            span = domain.span(wanted[attribute]) if attribute in wanted else domain.whole
            if span is None:
                return None
            spans.append(span)
        spans += [(0, 1)] * (self.axes - len(spans))
        lo, hi = zip(*spans, strict=True)
        return Box(lo, hi)


def overlap(x: Box, y: Box) -> float:
    """How similar two subscriptions are, from 0 (disjoint) to 1 (identical): MINIMAL eq 1.

    >>> overlap(Box((0, 0), (1, 10)), Box((0, 5), (1, 25)))
    0.125
    """
    return interest(x, y) * interest(y, x)


def interest(advertisement: Box, subscription: Box) -> float:
    """The share of an advertisement's publications that a subscription takes: MINIMAL eq 3.

    >>> interest(Box((0, 0), (1, 10)), Box((0, 5), (1, 25)))
    0.5
    """
    both = advertisement.intersection(subscription)
    return both.volume / advertisement.volume if both else 0.0


def bounds(boxes: Iterable[Box]) -> tuple[Array, Array]:
    """Many boxes of one content space as two arrays ``lo`` and ``hi``, a row per box.

    >>> lo, hi = bounds([Box((0, 0), (1, 10)), Box((0, 5), (1, 25))])
    >>> (hi - lo).tolist()
    [[1.0, 10.0], [1.0, 20.0]]
    """
    rows = list(boxes)
    lo = np.array([box.lo for box in rows], dtype=np.float64)
    hi = np.array([box.hi for box in rows], dtype=np.float64)
    return lo, hi


def intersection_volumes(x: tuple[Array, Array], y: tuple[Array, Array]) -> Array:
    """The volume that each box of ``x`` shares with each of ``y``: a matrix with a row per box of ``x``.

    >>> x = bounds([Box((0, 0), (1, 10)), Box((0, 5), (1, 25))])
    >>> intersection_volumes(x, x).tolist()
    [[10.0, 5.0], [5.0, 20.0]]
    """
    (x_lo, x_hi), (y_lo, y_hi) = x, y
    volumes = np.ones((len(x_lo), len(y_lo)))
    if not volumes.size:
        return volumes
    for axis in range(x_lo.shape[1]):
        width = np.minimum.outer(x_hi[:, axis], y_hi[:, axis])
        width -= np.maximum.outer(x_lo[:, axis], y_lo[:, axis])
        volumes *= np.maximum(width, 0.0, out=width)
    return volumes


def interests(advertisements: tuple[Array, Array], subscriptions: tuple[Array, Array]) -> Array:
    """`interest` of every advertisement (row) and subscription (column).

    >>> x = bounds([Box((0, 0), (1, 10)), Box((0, 5), (1, 25))])
    >>> interests(x, x).tolist()
    [[1.0, 0.5], [0.25, 1.0]]
    """
    lo, hi = advertisements
    shared = intersection_volumes(advertisements, subscriptions)
    return shared / np.prod(hi - lo, axis=1)[:, None] if shared.size else shared


def overlaps(x: tuple[Array, Array], y: tuple[Array, Array]) -> Array:
    """`overlap` of every box of ``x`` (row) with every one of ``y`` (column).

    >>> x = bounds([Box((0, 0), (1, 10)), Box((0, 5), (1, 25))])
    >>> overlaps(x, x).tolist()
    [[1.0, 0.125], [0.125, 1.0]]
    """
    shared = intersection_volumes(x, y)
    if not shared.size:
        return shared
    (x_lo, x_hi), (y_lo, y_hi) = x, y
    of_x: Array = shared / np.prod(x_hi - x_lo, axis=1)[:, None]
    of_y: Array = shared / np.prod(y_hi - y_lo, axis=1)
    return of_x * of_y
