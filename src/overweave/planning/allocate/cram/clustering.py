"""CRAM's loop (THESIS 6.2.3): cluster the closest pair, keep it if the pool can still be packed, until no pair is left.

What is clustered of two groups depends on how they relate (optimisation 1):

=========== ==========================================================================================================
equal       a group with itself: the largest cluster of its lightest units that can be packed, found by binary search,
            and again for those that are left
covering    the lightest unit of the covering group with as many of the covered group's, lightest first, as can be packed
intersect   one-to-many first (optimisation 3); else the lightest unit of each
=========== ==========================================================================================================

A pair that fails is noted and not tried again; a group is paired with itself again when it has got another unit. Of equally close
pairs the first by number is taken. In the worst case O(S^2) closenesses per profile word and O(S) packings.
"""

from collections.abc import Callable, Sequence

import numpy as np

from overweave.planning.allocate.cram.accept import Accepts
from overweave.planning.allocate.cram.one_to_many import coverings
from overweave.planning.closeness import Closeness
from overweave.planning.closest_pairs import MakeSearch, Partners
from overweave.planning.groups import Groups
from overweave.planning.kernels.closeness import common


class Clustering:
    """One run of the loop over some groups."""

    def __init__(
        self,
        groups: Groups,
        allocatable: Accepts,
        closeness: Closeness,
        make_search: MakeSearch,
        *,
        one_to_many: bool,
    ) -> None:
        self._groups, self._allocatable, self._closeness = groups, allocatable, closeness
        self.partners = Partners(len(groups.sizes))
        self._search = make_search(groups, self.partners, closeness, allocatable.pair_max)
        # A metric that pairs strangers has no use for covering.
        self._one_to_many = one_to_many and not closeness.pairs_strangers
        components = len(groups.active_count)
        #: The largest closeness of each component, and the first group that has it.
        self._top, self._first = np.zeros(components), np.full(components, -1, np.int64)

    def run(self) -> None:
        """Cluster until no pair is left."""
        groups = self._groups
        everyone = [group for group in range(groups.size) if groups.component[group] >= 0]
        for group in everyone:
            self._search.added(group)
        for group in everyone:
            self._search.look(group, offer=False)
        for component in range(len(self._top)):
            self._find_top(component)
        while (pair := self._next_pair()) is not None:
            self._cluster(*pair)
            self._find_top(int(groups.component[pair[0]]))

    def _next_pair(self) -> tuple[int, int] | None:
        top = self._top.max(initial=0.0)
        if top <= 0:
            return None
        group = int(self._first[self._top == top].min())
        return group, int(self.partners.partner[group])

    def _find_top(self, component: int) -> None:
        active = self._groups.active(component)[: self._groups.active_count[component]]
        best = self.partners.best[active]
        top = best.max(initial=0.0)
        self._top[component] = top
        self._first[component] = active[best == top].min() if top > 0 else -1

    def _cluster(self, one: int, other: int) -> None:
        groups = self._groups
        if one == other:
            self._cluster_equal(one)
            return
        table = groups.table
        both = common(one, other, groups.start, groups.count, table.publisher, table.words)
        x, y = groups.ones[one], groups.ones[other]
        if both == y < x:
            done = self._cluster_covered(one, other)
        elif both == x < y:
            done = self._cluster_covered(other, one)
        else:
            done = self._cluster_intersecting(one, other)
        if not done:
            self.partners.fail(one, other)
            self._search.look(one, offer=False)
            self._search.look(other, offer=False)

    def _cluster_equal(self, group: int) -> None:
        groups, profile = self._groups, int(self._groups.profile[group])
        left = [unit for _, unit in groups.units[group]]
        while len(left) > 1:
            count = self._largest(lambda count, left=left: self._passes(left[:count], profile), 2, len(left))  # type: ignore[misc]
            if count < 2:
                break
            self._commit({group: left[:count]}, profile)
            left = left[count:]
        self.partners.fail(group, group)
        self._search.look(group, offer=False)

    def _cluster_covered(self, wide: int, narrow: int) -> bool:
        groups = self._groups
        head, profile = groups.units[wide][0][1], int(groups.profile[wide])
        others = [unit for _, unit in groups.units[narrow]]
        count = self._largest(lambda count: self._passes([head, *others[:count]], profile), 1, len(others))
        if not count:
            return False
        self._commit({wide: [head], narrow: others[:count]}, profile)
        return True

    def _cluster_intersecting(self, one: int, other: int) -> bool:
        groups = self._groups
        if self._one_to_many:
            for covering in coverings(groups, self._closeness, one, other, float(self.partners.best[one])):
                parts = {each: [groups.units[each][0][1]] for each in (covering.group, *covering.chosen)}
                profile = int(groups.profile[covering.group])
                if self._passes([unit for units in parts.values() for unit in units], profile):
                    self._commit(parts, profile)
                    return True
        pair = [groups.units[each][0][1] for each in (one, other)]
        output = sum(groups.output[unit] for unit in pair)
        if not self._allocatable.could_hold(output):
            return False
        profile = groups.table.unite([int(groups.profile[one]), int(groups.profile[other])])
        if not self._passes(pair, profile):
            return False
        self._commit({one: pair[:1], other: pair[1:]}, profile)
        return True

    @staticmethod
    def _largest(passes: Callable[[int], bool], least: int, most: int) -> int:
        """The largest number from ``least`` to ``most`` that passes, by binary search; 0 if none does."""
        found = 0
        while least <= most:
            middle = (least + most + 1) // 2
            if passes(middle):
                found, least = middle, middle + 1
            else:
                most = middle - 1
        return found

    def _passes(self, units: Sequence[int], profile: int) -> bool:
        output, entries = self._groups.output, self._groups.entries
        return self._allocatable.passes(units, profile, sum(output[i] for i in units), sum(entries[i] for i in units))

    def _commit(self, parts: dict[int, list[int]], profile: int) -> None:
        """Make one unit of several, and bring partners up to date."""
        groups, partners = self._groups, self.partners
        removed = tuple(unit for units in parts.values() for unit in units)
        made = groups.make(removed, profile)
        self._allocatable.commit(removed, made, profile, groups.output[made], groups.entries[made])
        home = next((group for group in parts if groups.profile[group] == profile), -1)
        stale: set[int] = set()
        for group, units in parts.items():
            gone = set(units)
            if group == home:
                groups.exchange(group, gone, made)
                stale.add(group)
            elif groups.remove(group, gone):
                self._search.removed(group)
                stale |= self._who_wants(group)
                partners.best[group], partners.partner[group] = 0.0, -1
            else:
                stale.add(group)
        target = home if home >= 0 else groups.group_of(profile)
        partners.forgive(target)
        if home < 0:
            if groups.add(target, made):
                self._search.added(target)
                self._search.look(target, offer=True)
            else:
                stale.add(target)
        for group in sorted(stale):
            if groups.sizes[group]:
                self._search.look(group, offer=False)

    def _who_wants(self, group: int) -> set[int]:
        component = int(self._groups.component[group])
        active = self._groups.active(component)[: self._groups.active_count[component]]
        return set(active[self.partners.partner[active] == group].tolist())
