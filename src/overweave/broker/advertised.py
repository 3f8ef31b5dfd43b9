"""What clients have advertised, to see which of their publications no advertisement covers: others would never get those."""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from overweave.contract.batches import Batch
from overweave.language.constraints import constraints
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import admits
from overweave.matching.index import Index

#: So many parts of advertisements are remembered for one client, until they are found anew.
_PARTS_MAX = 1_000
#: So many attributes of a publication are named, in so many characters.
_ATTRIBUTES_SHOWN, _CHARACTERS_SHOWN = 3, 120


class Advertised:
    """The advertisements of all clients of one broker."""

    def __init__(self) -> None:
        self._clients: dict[str, _Advertisements] = {}

    def add(self, client: str, id: str, filter: Filter) -> None:
        """A client advertises, perhaps something else under an id that it has used."""
        self._clients.setdefault(client, _Advertisements()).add(id, filter)

    def remove(self, client: str, id: str) -> None:
        """A client withdraws an advertisement."""
        advertisements = self._clients.get(client)
        if advertisements is not None:
            advertisements.remove(id)

    def forget(self, client: str) -> None:
        """A client is gone."""
        self._clients.pop(client, None)

    def uncovered(self, client: str, batch: Batch) -> NDArray[np.int64] | None:
        """The rows that no advertisement of their client covers; None when there are none."""
        advertisements = self._clients.get(client)
        return np.arange(batch.count) if advertisements is None else advertisements.uncovered(batch)


class _Advertisements:
    """The advertisements of one client, and an index in which most rows find theirs.

    A row is covered if it has no other attributes than an advertisement, with values that this admits. The index
    asks for all attributes, so it holds advertisements as they are and, once seen, the parts of them that rows have.
    """

    __slots__ = ("_filters", "_index", "_parts")

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {}
        #: By how many attributes each has; made when the client first publishes, as most clients never do.
        self._index: Index | None = None
        self._parts = 0

    def add(self, id: str, filter: Filter) -> None:
        self._filters[id] = filter
        self._index = None

    def remove(self, id: str) -> None:
        self._filters.pop(id, None)
        self._index = None

    def uncovered(self, batch: Batch) -> NDArray[np.int64] | None:
        index = self._index or self._new_index()
        sizes = batch.attribute_counts()
        missing: NDArray[np.bool_] | None = None
        for size, rows in batch.matching(index):
            fitting = rows[sizes[rows] == size]
            if len(fitting) == batch.count:
                return None
            missing = np.ones(batch.count, np.bool_) if missing is None else missing
            missing[fitting] = False
        rest = np.arange(batch.count) if missing is None else np.flatnonzero(missing)
        if not len(rest):
            return None
        publishes = batch.take(rest).publishes()
        uncovered = [row for row, publish in zip(rest.tolist(), publishes, strict=True) if not self._learn(publish.publication)]
        return np.array(uncovered, np.int64) if uncovered else None

    def _learn(self, publication: Publication) -> bool:
        """Whether an advertisement covers a publication that has not all its attributes; then others like it are found at once."""
        for filter in self._filters.values():
            if admits(filter, publication):
                part = Filter(tuple(each for each in filter.predicates if each.attribute in publication))
                if self._parts >= _PARTS_MAX:
                    self._new_index()
                self._enter([part])
                return True
        return False

    def _new_index(self) -> Index:
        self._index, self._parts = Index(), 0
        self._enter(filter for filter in self._filters.values() if constraints(filter) is not None)
        return self._index

    def _enter(self, filters: Iterable[Filter]) -> None:
        assert self._index is not None
        for filter in filters:
            self._parts += 1
            self._index.add(self._parts, filter, len({each.attribute for each in filter.predicates}))


def shown(publication: Publication) -> str:
    """The first attributes of a publication, for people.

    >>> shown(Publication({"class": "STOCK", "volume": 7, "open": 1, "close": 2}))
    "[class,'STOCK'],[volume,7],[open,1],…"
    """
    first = dict(list(publication.items())[:_ATTRIBUTES_SHOWN])
    text = str(Publication(first))
    cut = text[:_CHARACTERS_SHOWN] + "…" * (len(text) > _CHARACTERS_SHOWN)
    return cut + ",…" * (len(publication) > len(first))
