"""The search for the closest partner of every group (THESIS 6.2.3, optimisation 2), by name.

Only the closest partner of each group is kept; pairs that failed are skipped. ``exhaustive`` looks at all pairs of a component,
``bounded`` leaves out those whose counts of bits show that they cannot be the closest (same answers), ``poset`` is the
thesis's: breadth first from the root of a poset, ending below nodes with closeness 0 or where closeness begins to fall.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np

from overweave.language.poset import Poset
from overweave.planning.closeness import Closeness
from overweave.planning.groups import Groups
from overweave.planning.kernels.closeness import common, scan

#: No limit on the output of a pair.
ANY_PAIR = 1 << 62


class Partners:
    """The closest partner of each group: ``best`` is 0 and ``partner`` -1 where there is none."""

    def __init__(self, room: int) -> None:
        self.best = np.zeros(room, np.float64)
        self.partner = np.full(room, -1, np.int64)
        #: Closenesses that were computed.
        self.counted = np.zeros(1, np.int64)
        self._failed: dict[int, set[int]] = {}
        self._marks = np.zeros(room, np.int64)
        self._mark = 0

    def fail(self, one: int, other: int) -> None:
        """Do not pair them again."""
        self._failed.setdefault(one, set()).add(other)
        self._failed.setdefault(other, set()).add(one)

    def forgive(self, group: int) -> None:
        """Pair a group with itself again."""
        self._failed.get(group, set()).discard(group)

    def failed(self, group: int) -> set[int]:
        """Groups that are not paired again with a group."""
        return self._failed.get(group, set())

    def marked(self, group: int) -> tuple[np.ndarray[tuple[int], np.dtype[np.int64]], int]:
        """Marks of the groups that are not paired with a group, and the mark."""
        self._mark += 1
        for other in self._failed.get(group, ()):
            self._marks[other] = self._mark
        return self._marks, self._mark


class Search(Protocol):
    """The search for partners; it is notified of added and removed groups."""

    def added(self, group: int) -> None:
        """A group has units now."""

    def removed(self, group: int) -> None:
        """A group has no more units."""

    def look(self, group: int, *, offer: bool) -> None:
        """Find the closest partner of a group; with ``offer``, others learn of the group where it is closer than theirs."""


class Scan:
    """All groups of a component, one after the other, in a kernel."""

    def __init__(
        self, groups: Groups, partners: Partners, closeness: Closeness, pair_max: int = ANY_PAIR, *, bounded: bool
    ) -> None:
        self._groups, self._partners, self._metric, self._bounded = groups, partners, closeness.parameters, bounded
        self._pair_max = pair_max

    def added(self, group: int) -> None:
        """Groups know it."""

    def removed(self, group: int) -> None:
        """Groups know it."""

    def look(self, group: int, *, offer: bool) -> None:
        """Scan the component of ``group``."""
        groups, partners, component = self._groups, self._partners, int(self._groups.component[group])
        marks, mark = partners.marked(group)
        scan(
            group, groups.active(component), groups.active_count[component], marks, mark, groups.sizes, groups.start,
            groups.count, groups.table.publisher, groups.table.words, groups.ones, self._metric, self._bounded, offer,
            groups.lightest, self._pair_max, partners.best, partners.partner, partners.counted,
        )  # fmt: skip


class PosetSearch:
    """Breadth first over a poset of bit vectors, one for all groups.

    A departure: where closeness falls below its parent's, what is deeper is left out, but the node itself counts.
    """

    def __init__(self, groups: Groups, partners: Partners, closeness: Closeness, pair_max: int = ANY_PAIR) -> None:
        self._groups, self._partners, self._closeness, self._pair_max = groups, partners, closeness, pair_max
        self._poset: Poset[int, int] = Poset(self._covers)

    def added(self, group: int) -> None:
        """Insert it; groups with the same bits (when not grouped) share a node."""
        self._poset.insert(group, group)

    def removed(self, group: int) -> None:
        """Delete it; what it covers moves up."""
        self._poset.delete(group, group)

    def look(self, group: int, *, offer: bool) -> None:
        """Enumerate the poset from its root."""
        partners, top, found = self._partners, 0.0, -1
        failed, lightest = partners.failed(group), self._groups.lightest
        if self._groups.sizes[group] >= 2 and group not in failed:
            top, found = self._value(group, group), group
        seen, front = set(self._poset.css), [(node, 0.0) for node in self._poset.css]
        while front:
            below: list[tuple[int, float]] = []
            for node, above in front:
                value = self._value(group, node) if node != group else float("inf")
                if not self._closeness.pairs_strangers and value == 0:
                    continue
                for other in self._poset.subscribers(node):
                    if other != group and other not in failed and lightest[group] + lightest[other] <= self._pair_max:
                        shown = self._value(group, other)
                        if shown > top or (shown == top and shown > 0 and other < found):
                            top, found = shown, other
                        if offer and (
                            shown > partners.best[other] or (shown == partners.best[other] and group < partners.partner[other])
                        ):
                            partners.best[other], partners.partner[other] = shown, group
                if value < above and not self._closeness.pairs_strangers:
                    continue
                for child in self._poset.children(node):
                    if child not in seen:
                        seen.add(child)
                        below.append((child, value if node != group else 0.0))
            front = below
        partners.best[group], partners.partner[group] = top, found

    def _value(self, group: int, other: int) -> float:
        self._partners.counted[0] += 1
        ones = self._groups.ones
        both = int(ones[group]) if group == other else self._common(group, other)
        return self._closeness(both, int(ones[group]), int(ones[other]))

    def _common(self, one: int, other: int) -> int:
        groups, table = self._groups, self._groups.table
        return int(common(one, other, groups.start, groups.count, table.publisher, table.words))

    def _covers(self, wide: int, narrow: int) -> bool:
        if wide == narrow:
            return True
        ones = self._groups.ones
        return bool(ones[wide] >= ones[narrow]) and self._common(wide, narrow) == ones[narrow]


#: Makes a search from groups, partners, a metric, and the output limit of a pair that any broker could hold.
MakeSearch = Callable[[Groups, Partners, Closeness, int], Search]

SEARCHES: Mapping[str, MakeSearch] = {
    "bounded": lambda groups, partners, closeness, most: Scan(groups, partners, closeness, most, bounded=True),
    "exhaustive": lambda groups, partners, closeness, most: Scan(groups, partners, closeness, most, bounded=False),
    "poset": PosetSearch,
}
