"""The subscriptions forwarded to one neighbour under covering, and those withheld because a forwarded one covers them (SPEC 0).

When a covering subscription is withdrawn, those that it leaves uncovered are forwarded first, so that no delivery is
interrupted. Subscriptions with equal filters are one group: when the forwarded one is withdrawn, a successor of the group is
forwarded, and what the group covers stays covered. So clients of a broker can leave one after the other,
whatever the number of equal filters.
"""

from overweave.language.predicates import Filter
from overweave.language.relations import covers
from overweave.language.witness import witness
from overweave.matching.index import Index

#: Above this number, candidates for covering are looked up in an index instead of tried one by one.
_MANY = 16


class _Group:
    """The subscriptions with one filter."""

    __slots__ = ("cover", "covered", "filter", "forwarded", "ids")

    def __init__(self, filter: Filter) -> None:
        self.filter = filter
        self.ids: dict[str, None] = {}
        #: The subscription that the neighbour has; None: the group is withheld.
        self.forwarded: str | None = None
        #: The group that covers this one if it is withheld, and the groups that this one covers.
        self.cover: _Group | None = None
        self.covered: dict[_Group, None] = {}

    def newest(self) -> str:
        """The last subscription: when clients leave in the order in which they came, it is withdrawn last."""
        return next(reversed(self.ids))


class ForwardedSubscriptions:
    """The subscriptions forwarded to one neighbour, and those withheld from it."""

    def __init__(self) -> None:
        self._groups: dict[Filter, _Group] = {}
        self._group_of: dict[str, _Group] = {}
        #: By filter.
        self._forwarded: dict[Filter, _Group] = {}
        self._index: Index | None = None

    def __contains__(self, id: str) -> bool:
        return id in self._group_of

    def __len__(self) -> int:
        return len(self._group_of)

    def forwarded(self) -> list[tuple[str, Filter]]:
        """The forwarded subscriptions."""
        return [(group.forwarded, filter) for filter, group in self._forwarded.items() if group.forwarded is not None]

    def offer(self, id: str, filter: Filter) -> bool:
        """Add a subscription; whether it is to be forwarded."""
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
        """Remove a subscription: those to forward in its place, and whether to withdraw ``id`` after them."""
        group = self._group_of.pop(id, None)
        if group is None:
            return [], False
        del group.ids[id]
        if not group.ids:
            self._remove(group)
        if group.forwarded != id:
            return [], False
        if group.ids and self._find_cover(group.filter) is None:
            group.forwarded = successor = group.newest()
            return [(successor, group.filter)], True
        uncovered = self._retract(group)
        return [(str(each.forwarded), each.filter) for each in uncovered if self._place(each)], True

    def validate(self) -> None:
        """Check what must always hold."""
        assert self._index is None or len(self._index) == len(self._forwarded)
        assert self._group_of == {id: group for group in self._groups.values() for id in group.ids}
        for filter, group in self._groups.items():
            assert group.filter == filter
            assert group.ids
            assert (self._forwarded.get(filter) is group) == (group.forwarded in group.ids) == (group.cover is None)
            assert group.cover is None or group in group.cover.covered
            assert all(covered.cover is group for covered in group.covered)
            assert group.forwarded is not None or not group.covered

    def _remove(self, group: _Group) -> None:
        """Remove a group without subscriptions."""
        del self._groups[group.filter]
        if group.cover is not None:
            del group.cover.covered[group]

    def _place(self, group: _Group) -> bool:
        """Forward a group unless another one covers it; whether it is to be forwarded."""
        group.cover = self._find_cover(group.filter)
        if group.cover is not None:
            group.cover.covered[group] = None
            return False
        group.forwarded = group.newest()
        self._forwarded[group.filter] = group
        if self._index is not None:
            self._index.add(group.filter, group.filter)
        elif len(self._forwarded) > _MANY:
            self._index = Index()
            self._index.add_many((filter, filter, None) for filter in self._forwarded)
        return True

    def _retract(self, group: _Group) -> list[_Group]:
        """Mark a group as not forwarded: the groups to place again, its own rest and those it covered."""
        group.forwarded = None
        del self._forwarded[group.filter]
        if self._index is not None:
            self._index.remove(group.filter)
        uncovered, group.covered = list(group.covered), {}
        for each in uncovered:
            each.cover = None
        return [group, *uncovered] if group.ids else uncovered

    def _find_cover(self, filter: Filter) -> _Group | None:
        """Another forwarded group that covers a filter."""
        point = witness(filter) if self._index is not None else None
        candidates = self._forwarded if self._index is None or point is None else self._index.ids(point)
        for each in candidates:
            if each != filter and covers(each, filter):  # type: ignore[arg-type]
                return self._forwarded[each]  # type: ignore[index]
        return None
