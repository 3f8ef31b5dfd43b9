"""A witness of a filter: one publication that it admits.

Whatever covers a filter admits its witness too; so those among many filters that may cover it are found by matching the
witness, and the exact relation is asked of these only.
"""

import functools
import math
from itertools import pairwise

from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.values import Value


@functools.lru_cache(maxsize=65_536)
def witness(filter: Filter) -> Publication | None:
    """A publication that ``filter`` admits; None when there is none, or none is found among the likely ones.

    >>> from overweave.language.syntax import parse_filter
    >>> str(witness(parse_filter("[symbol,str-prefix,'Y'],[volume,>,10],[volume,<,11]")))
    "[symbol,'Y'],[volume,10.5]"
    """
    by_attribute: dict[str, list[Predicate]] = {}
    for predicate in filter.predicates:
        by_attribute.setdefault(predicate.attribute, []).append(predicate)
    values: dict[str, Value] = {}
    for attribute, predicates in by_attribute.items():
        found = next((value for value in _candidates(predicates) if all(p.holds(value) for p in predicates)), None)
        if found is None:
            return None
        values[attribute] = found
    return Publication(values)


def _candidates(predicates: list[Predicate]) -> list[Value]:
    """Values on, between and beside the operands."""
    texts = [str(predicate.value) for predicate in predicates if isinstance(predicate.value, str)]
    if texts:
        parts = {operator: "".join(str(p.value) for p in predicates if p.operator is operator) for operator in Operator}
        joined = parts[Operator.PREFIX] + parts[Operator.CONTAINS] + parts[Operator.SUFFIX]
        return [*texts, joined, *(text + "\0" for text in texts), joined + "\0", ""]
    numbers = sorted(predicate.value for predicate in predicates if not isinstance(predicate.value, str))
    middles = [float(a) / 2 + float(b) / 2 for a, b in pairwise(numbers)]
    beside = [math.nextafter(number, to) for number in numbers for to in (math.inf, -math.inf)]
    return [*numbers, *middles, *beside, 0]
