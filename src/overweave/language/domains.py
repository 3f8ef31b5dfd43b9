"""The content space that filters and publications speak of, where nobody has written it down (MINIMAL 4.1).

Every class is an attribute space. The domain of an attribute reaches from the smallest to the largest number that occurs with
it, or consists of the texts that occur. Numbers are integers if all of them are; else a value is ``epsilon`` wide. A strict
bound at the end of a domain moves that end by one value, so that something satisfies it.
"""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from overweave.language.predicates import Filter, Operator
from overweave.language.space import CLASS, ContentSpace, Domain, NumberDomain, TextDomain
from overweave.language.values import Value

#: The width of a number that is no integer, as a share of its domain.
EPSILON_SHARE = 1e-6


def content_space(
    filters: Iterable[Filter], publications: Iterable[Mapping[str, Value]] = (), epsilon: float | None = None
) -> ContentSpace:
    """The space of some subscriptions, advertisements and publications.

    A filter without a class speaks of all classes that have its attributes, or of all if none has.

    >>> from overweave.language.syntax import parse_filter
    >>> space = content_space(map(parse_filter, ["[class,eq,'A'],[n,>=,2]", "[class,eq,'A'],[n,<,9],[word,eq,'b']"]))
    >>> space.attribute_spaces
    {'A': {'n': NumberDomain(lo=2, hi=9, epsilon=None), 'word': TextDomain(words=('b',))}}
    """
    seen: dict[str | None, dict[str, _Values]] = defaultdict(lambda: defaultdict(_Values))
    for each in filters:
        classes = [str(p.value) for p in each.predicates if p.attribute == CLASS and p.operator is Operator.EQ]
        for predicate in each.predicates:
            if predicate.attribute != CLASS:
                seen[classes[0] if classes else None][predicate.attribute].add(predicate.value, predicate.operator)
        for name in classes:
            seen[name]  # a class may have no attributes
    for publication in publications:
        of_class = publication.get(CLASS)
        for attribute, value in publication.items():
            if attribute != CLASS:
                seen[None if of_class is None else str(of_class)][attribute].add(value)
    everywhere = seen.pop(None, {})
    spaces = {name: attributes for name, attributes in seen.items() if name is not None} or {"": {}}
    known = {attribute for attributes in spaces.values() for attribute in attributes}
    unknown = {attribute: values for attribute, values in everywhere.items() if attribute not in known}
    return ContentSpace(
        {
            name: {
                attribute: (values.merged(everywhere[attribute]) if attribute in everywhere else values).domain(epsilon)
                for attribute, values in {**attributes, **unknown}.items()
            }
            for name, attributes in spaces.items()
        }
    )


class _Values:
    """The values that occur with an attribute."""

    def __init__(self) -> None:
        self.kinds: Counter[bool] = Counter()
        self.lo, self.hi = math.inf, -math.inf
        #: Where something smaller, or larger, has to be possible.
        self.below, self.above = math.inf, -math.inf
        self.whole = True
        self.words: set[str] = set()

    def add(self, value: Value, operator: Operator = Operator.EQ) -> None:
        self.kinds[isinstance(value, str)] += 1
        if operator is Operator.PRESENT:
            return
        if isinstance(value, str):
            self.words.add(value)
        elif math.isfinite(value):
            self.whole &= float(value).is_integer()
            self.lo, self.hi = min(self.lo, value), max(self.hi, value)
            if operator is Operator.LT:
                self.below = min(self.below, value)
            elif operator is Operator.GT:
                self.above = max(self.above, value)

    def merged(self, other: "_Values") -> "_Values":
        found = _Values()
        found.kinds = self.kinds + other.kinds
        found.lo, found.below = min(self.lo, other.lo), min(self.below, other.below)
        found.hi, found.above = max(self.hi, other.hi), max(self.above, other.above)
        found.whole, found.words = self.whole and other.whole, self.words | other.words
        return found

    def domain(self, epsilon: float | None) -> Domain:
        """Of texts or of numbers, whichever occur more often."""
        if self.kinds[True] > self.kinds[False]:
            return TextDomain.of(self.words or {""})
        lo, hi = (self.lo, self.hi) if self.lo <= self.hi else (0, 0)
        unit = None
        if not self.whole or epsilon is not None:
            unit = epsilon or max(hi - lo, abs(lo), 1.0) * EPSILON_SHARE
        step = 1 if unit is None else unit
        return NumberDomain(lo - step if self.below <= lo else lo, hi + step if self.above >= hi else hi, unit)
