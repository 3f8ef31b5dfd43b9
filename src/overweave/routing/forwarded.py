"""Offers: which subscriptions a neighbour has been told of, and which not, because one that it knows covers them (SPEC 0).

A subscription that is covered by one told to a neighbour is withheld from it. When the covering one is withdrawn, those that
nothing else covers are told first, so that nobody's delivery is interrupted. Subscriptions with equal filters are one group: when
the one that was told goes, another one takes its place, and what the group covers stays covered. So the clients of a broker can
leave it one after the other, whatever the number of those with equal filters.
"""

from overweave.language.predicates import Filter
from overweave.language.relations import covers
from overweave.language.witness import witness
from overweave.matching.index import Index

#: From so many on, candidates for covering are looked up instead of tried one by one.
_MANY = 16


class _Group:
    """The subscriptions with one filter."""

    __slots__ = ("cover", "covered", "filter", "ids", "told")

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.ids: dict[str, None] = {}
        #: The one that the neighbour knows; None: the group is withheld.
        self.told: str | None = None
        #: The group that covers a withheld one, and the other way round.
        self.cover: _Group | None = None
        self.covered: dict[_Group, None] = {}

    def newest(self) -> str:
        """The last subscription: when clients leave in the order in which they came, it is withdrawn last."""
        return next(reversed(self.ids))


class ForwardedSubscriptions:
    """What one neighbour knows."""

    def __init__(self) -> None:
        self._groups: dict[Filter, _Group] = {}
        self._group_of: dict[str, _Group] = {}
        #: By filter.
        self._told: dict[Filter, _Group] = {}
        self._index: Index | None = None

    def __contains__(self, id: str) -> bool:
        return id in self._group_of

    def __len__(self) -> int:
        return len(self._group_of)

    def told(self) -> list[tuple[str, Filter]]:
        """All that the neighbour has been told."""
        return [(group.told, filter) for filter, group in self._told.items() if group.told is not None]

    def offer(self, id: str, filter: Filter) -> bool:
        """Whether the neighbour is to be told of one more subscription."""
        if id in self:
            return False
        group = self._groups.get(filter)
        is_new = group is None
        if group is None:
            group = self._groups[filter] = _Group(filter)
        group.ids[id] = None
        self._group_of[id] = group
        return is_new and self._place(group)

    def withdraw(self, id: str) -> tuple[list[tuple[str, Filter]], bool]:
        """What the neighbour is to be told now, and whether it must then be told that ``id`` is gone."""
        group = self._group_of.pop(id, None)
        if group is None:
            return [], False
        del group.ids[id]
        if not group.ids:
            self._remove(group)
        if group.told != id:
            return [], False
        if group.ids and self._find_cover(group.filter) is None:
            group.told = heir = group.newest()
            return [(heir, group.filter)], True
        orphans = self._untell(group)
        return [(str(each.told), each.filter) for each in orphans if self._place(each)], True

    def validate(self) -> None:
        """Check what must always hold."""
        assert self._index is None or len(self._index) == len(self._told)
        assert self._group_of == {id: group for group in self._groups.values() for id in group.ids}
        for filter, group in self._groups.items():
            assert group.filter == filter
            assert group.ids
            assert (self._told.get(filter) is group) == (group.told in group.ids) == (group.cover is None)
            assert group.cover is None or group in group.cover.covered
            assert all(covered.cover is group for covered in group.covered)
            assert group.told is not None or not group.covered

    def _remove(self, group: _Group) -> None:
        """Remove a group without subscriptions."""
        del self._groups[group.filter]
        if group.cover is not None:
            del group.cover.covered[group]

    def _place(self, group: _Group) -> bool:
        """Tell the neighbour of a group unless another one covers it; whether it is to be told."""
        group.cover = self._find_cover(group.filter)
        if group.cover is not None:
            group.cover.covered[group] = None
            return False
        group.told = group.newest()
        self._told[group.filter] = group
        if self._index is not None:
            self._index.add(group.filter, group.filter)
        elif len(self._told) > _MANY:
            self._index = Index()
            self._index.add_many((filter, filter, None) for filter in self._told)
        return True

    def _untell(self, group: _Group) -> list[_Group]:
        """The groups that are to be placed anew, because the neighbour no longer knows one: its own rest, and what it covered."""
        group.told = None
        del self._told[group.filter]
        if self._index is not None:
            self._index.remove(group.filter)
        orphans, group.covered = list(group.covered), {}
        for orphan in orphans:
            orphan.cover = None
        return [group, *orphans] if group.ids else orphans

    def _find_cover(self, filter: Filter) -> _Group | None:
        """Another group that the neighbour knows and that covers a filter."""
        point = witness(filter) if self._index is not None else None
        candidates = self._told if self._index is None or point is None else self._index.ids(point)
        for each in candidates:
            if each != filter and covers(each, filter):  # type: ignore[arg-type]
                return self._told[each]  # type: ignore[index]
        return None
