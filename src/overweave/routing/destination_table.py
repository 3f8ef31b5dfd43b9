"""The destinations of publications: subscriptions with the brokers chosen for each, and an index over them (R-PRT)."""

from collections.abc import Mapping, Set
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.language.predicates import Filter
from overweave.matching.index import Index


class DestinationTable:
    """The brokers of each subscription, by their numbers in destination lists.

    >>> from overweave.language.syntax import parse_filter
    >>> table = DestinationTable()
    >>> table.set("s", {2: parse_filter("[x,>,1]"), 5: parse_filter("[x,>,1]")})
    >>> table.set("s", {5: parse_filter("[x,>,1]")})
    >>> list(table.of("s")), len(table)
    ([5], 1)
    """

    def __init__(self) -> None:
        self._chosen: dict[str, Mapping[int, Filter]] = {}
        self._size = 0

    def __len__(self) -> int:
        return self._size

    @cached_property
    def _index(self) -> Index:
        """Built on demand: most tables stay empty."""
        return Index()

    def of(self, id: str) -> Mapping[int, Filter]:
        """The brokers of a subscription, with the filter of each."""
        return self._chosen.get(id, {})

    def ids(self) -> Set[str]:
        """The subscriptions with brokers."""
        return self._chosen.keys()

    def set(self, id: str, chosen: Mapping[int, Filter]) -> None:
        """Replace the brokers of a subscription."""
        before = self.of(id)
        self._size += len(chosen) - len(before)
        for number, filter in before.items():
            if chosen.get(number) != filter:
                self._index.remove((number, id))
        for number, filter in chosen.items():
            if before.get(number) != filter:
                self._index.add((number, id), filter, number)
        if chosen:
            self._chosen[id] = chosen
        else:
            self._chosen.pop(id, None)

    def destinations_of(self, batch: Batch) -> list[tuple[int, NDArray[np.int64]]]:
        """The destinations of publications, with the rows of each."""
        return list(batch.match(self._index)) if self._chosen else []  # type: ignore[arg-type]
