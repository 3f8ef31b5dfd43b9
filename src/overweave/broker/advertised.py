"""The advertisements of clients, and the publications that none of them covers: these would reach no other broker."""

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.batches.contents import attribute_counts, not_admitted
from overweave.batches.plain_filters import PlainFilters
from overweave.language.constraints import constraints
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import admits
from overweave.matching.index import Index

#: Limit of learned advertisement parts per client; then the index is rebuilt.
_PARTS_MAX = 1_000
#: Fewer rows are checked one by one.
_FEW = 8
#: Limits of a publication's excerpt in messages.
_ATTRIBUTES_SHOWN, _CHARACTERS_SHOWN = 3, 120


class Advertised:
    """The advertisements of all clients of one broker."""

    def __init__(self) -> None:
        self._clients: dict[str, _Advertisements] = {}

    def add(self, client: str, id: str, filter: Filter) -> None:
        """Add an advertisement, or replace its filter."""
        self._clients.setdefault(client, _Advertisements()).add(id, filter)

    def remove(self, client: str, id: str) -> None:
        """Remove an advertisement."""
        advertisements = self._clients.get(client)
        if advertisements is not None:
            advertisements.remove(id)

    def forget(self, client: str) -> None:
        """Remove a client."""
        self._clients.pop(client, None)

    def uncovered(self, client: str, batch: Batch) -> NDArray[np.int64] | None:
        """The rows that no advertisement of their client covers, or None."""
        advertisements = self._clients.get(client)
        return np.arange(batch.count) if advertisements is None else advertisements.uncovered(batch)


class _Advertisements:
    """The advertisements of one client.

    A row is covered if its attributes are among those of an advertisement, with admitted values. A kernel checks plain
    advertisements. An index finds others; it matches all attributes of a filter, so it holds each advertisement and the parts
    of it that rows have had.
    """

    __slots__ = ("_filters", "_index", "_learned", "_parts", "_plain")

    def __init__(self) -> None:
        self._filters: dict[str, Filter] = {}
        #: Built on demand: most clients never publish, or have plain advertisements only.
        self._plain: PlainFilters | None = None
        #: Filters by their number of attributes.
        self._index: Index | None = None
        self._parts = self._learned = 0

    def add(self, id: str, filter: Filter) -> None:
        self._filters[id] = filter
        self._index = self._plain = None

    def remove(self, id: str) -> None:
        self._filters.pop(id, None)
        self._index = self._plain = None

    def uncovered(self, batch: Batch) -> NDArray[np.int64] | None:
        self._plain = self._plain or PlainFilters(self._filters.values())
        rest = not_admitted(batch, self._plain)
        if rest is not None and len(rest) > _FEW:
            rest = self._not_in_index(batch, rest)
        if rest is None:
            return None
        contents = [publish.publication for publish in batch.take(rest).publishes()]
        uncovered = [row for row, content in zip(rest.tolist(), contents, strict=True) if not self._is_covered(content)]
        return np.array(uncovered, np.int64) if uncovered else None

    def _not_in_index(self, batch: Batch, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
        """The rows for which the index finds no advertisement, or None."""
        some = batch.take(rows)
        sizes, missing = attribute_counts(some), np.ones(some.count, np.bool_)
        for size, found in some.match(self._index or self._new_index()):
            missing[found[sizes[found] == size]] = False
        rest = rows[missing]
        return rest if len(rest) else None

    def _is_covered(self, publication: Publication) -> bool:
        """Whether an advertisement covers a publication; the index then finds others like it."""
        for filter in self._filters.values():
            if admits(filter, publication):
                if self._index is not None:
                    part = tuple(each for each in filter.predicates if each.attribute in publication)
                    self._enter(Filter(part), self._index if self._learned < _PARTS_MAX else self._new_index())
                    self._learned += 1
                return True
        return False

    def _new_index(self) -> Index:
        self._index, self._parts, self._learned = Index(), 0, 0
        for filter in self._filters.values():
            if constraints(filter) is not None:  # else it admits nothing
                self._enter(filter, self._index)
        return self._index

    def _enter(self, filter: Filter, index: Index) -> None:
        self._parts += 1
        index.add(self._parts, filter, len({each.attribute for each in filter.predicates}))


def shown(publication: Publication) -> str:
    """The first attributes of a publication, for people.

    >>> shown(Publication({"class": "STOCK", "volume": 7, "open": 1, "close": 2}))
    "[class,'STOCK'],[volume,7],[open,1],…"
    """
    first = dict(list(publication.items())[:_ATTRIBUTES_SHOWN])
    text = str(Publication(first))
    cut = text[:_CHARACTERS_SHOWN] + "…" * (len(text) > _CHARACTERS_SHOWN)
    return cut + ",…" * (len(publication) > len(first))
