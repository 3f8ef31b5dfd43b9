"""Offers: which subscriptions a neighbour has been told of, and which not, because one that it knows covers them (SPEC 0).

A subscription that is covered by one told to a neighbour is withheld from it. When the covering one is withdrawn, those that
nothing else covers are told first, so that nobody's delivery is interrupted.
"""

from overweave.language.predicates import Filter
from overweave.language.relations import covers
from overweave.language.witness import witness
from overweave.matching.index import Index

#: From so many on, candidates for covering are looked up instead of tried one by one.
_MANY = 16


class ForwardedSubscriptions:
    """What one neighbour knows."""

    def __init__(self) -> None:
        self._told: dict[str, Filter] = {}
        #: Withheld subscriptions with what covers each, and the other way round.
        self._withheld: dict[str, tuple[Filter, str]] = {}
        self._covered_by: dict[str, dict[str, None]] = {}
        self._index: Index | None = None

    def __contains__(self, id: str) -> bool:
        return id in self._told or id in self._withheld

    def __len__(self) -> int:
        return len(self._told) + len(self._withheld)

    def told(self) -> list[tuple[str, Filter]]:
        """All that the neighbour has been told."""
        return list(self._told.items())

    def offer(self, id: str, filter: Filter) -> bool:
        """Whether the neighbour is to be told of one more subscription."""
        if id in self:
            return False
        cover = self._find_cover(filter)
        if cover is None:
            self._tell(id, filter)
            return True
        self._withhold(id, filter, cover)
        return False

    def withdraw(self, id: str) -> tuple[list[tuple[str, Filter]], bool]:
        """What the neighbour is to be told now, and whether it must then be told that ``id`` is gone."""
        if id in self._withheld:
            _, cover = self._withheld.pop(id)
            del self._covered_by[cover][id]
            return [], False
        if id not in self._told:
            return [], False
        del self._told[id]
        if self._index is not None:
            self._index.remove(id)
        heirs = []
        for orphan in self._covered_by.pop(id, {}):
            filter, _ = self._withheld.pop(orphan)
            if self.offer(orphan, filter):
                heirs.append((orphan, filter))
        return heirs, True

    def validate(self) -> None:
        """Check what must always hold."""
        assert self._told.keys().isdisjoint(self._withheld)
        assert self._index is None or len(self._index) == len(self._told)
        covered = {(cover, id) for id, (_, cover) in self._withheld.items()}
        assert covered == {(cover, id) for cover, ids in self._covered_by.items() for id in ids}
        assert all(cover in self._told for cover, _ in covered)

    def _tell(self, id: str, filter: Filter) -> None:
        self._told[id] = filter
        if self._index is not None:
            self._index.add(id, filter)
        elif len(self._told) > _MANY:
            self._index = Index()
            self._index.add_many((id, filter, None) for id, filter in self._told.items())

    def _withhold(self, id: str, filter: Filter, cover: str) -> None:
        self._withheld[id] = (filter, cover)
        self._covered_by.setdefault(cover, {})[id] = None

    def _find_cover(self, filter: Filter) -> str | None:
        point = witness(filter) if self._index is not None else None
        candidates = self._told if self._index is None or point is None else self._index.ids(point)
        return next((str(id) for id in candidates if covers(self._told[str(id)], filter)), None)
