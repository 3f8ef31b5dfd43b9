"""Plain filters over rows as bytes: a quick check which rows some advertisements admit.

Most advertisements are plain: attributes that are present, and texts that are equal. A kernel decides which rows they admit
(`overweave.language.relations.admits`); other advertisements are left to an index.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from overweave.batches.kernels import find_not_admitted
from overweave.language.predicates import Filter, Operator
from overweave.language.values import is_number

#: The number of filters that are compared one after the other.
PLAIN_MAX = 8


class PlainFilters:
    """The plain filters among several, in the form that kernels read.

    >>> from overweave.language.syntax import parse_filter
    >>> filters = PlainFilters(map(parse_filter, ("[class,eq,'A'],[x,isPresent,0]", "[x,>,1]")))
    >>> filters.count
    1
    """

    __slots__ = ("_predicates", "_stops", "_texts", "count")

    def __init__(self, filters: Iterable[Filter]) -> None:
        texts, predicates, stops = bytearray(), list[tuple[int, ...]](), [0]
        for filter in filters:
            if len(stops) <= PLAIN_MAX and _is_plain(filter):
                for each in filter.predicates:
                    name, value = each.attribute.encode(), each.value
                    wanted = str(value).encode() if each.operator is Operator.EQ else None
                    value_at = -1 if wanted is None else len(texts) + len(name)
                    size = 0 if wanted is None else len(wanted)
                    predicates.append((len(texts), len(name), not is_number(value), value_at, size))
                    texts += name + (wanted or b"")
                stops.append(len(predicates))
        self.count = len(stops) - 1
        self._texts = np.frombuffer(bytes(texts) + bytes(8), np.uint8)
        self._predicates = np.array(predicates, np.int64).reshape(len(predicates), 5)
        self._stops = np.array(stops, np.int64)

    def not_admitted(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> NDArray[np.int64] | None:
        """The rows, given by the ranges of their contents, that no filter admits; None if there are none."""
        found = np.empty(len(starts), np.int64)
        count = find_not_admitted(data, starts, ends, self._texts, self._predicates, self._stops, found)
        return found[:count] if count else None


def _is_plain(filter: Filter) -> bool:
    predicates = filter.predicates
    return len({each.attribute for each in predicates}) == len(predicates) and all(
        each.operator is Operator.PRESENT or (each.operator is Operator.EQ and not is_number(each.value)) for each in predicates
    )
