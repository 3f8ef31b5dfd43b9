"""Groups of identical filters, GIFs (THESIS 6.2.3, optimisation 1): units by profile, and their parts that share publishers."""

from bisect import insort
from typing import Protocol

import numpy as np

from overweave.planning.model import Items
from overweave.planning.problem import Whole
from overweave.planning.table import ProfileTable


class Profiled(Protocol):
    """Something with profiles: a model, or a part of one."""

    @property
    def table(self) -> ProfileTable:
        """Where they are."""
        ...


class Groups:
    """Units in groups. A unit is an item or a cluster; the light ones of a group come first.

    Groups of different *components* share no publisher: their closeness is 0, unless the metric pairs strangers.
    """

    def __init__(self, model: Profiled, items: Items, *, identical: bool, one_component: bool) -> None:
        self.table: ProfileTable = model.table
        self._identical = identical
        count = len(items)
        room = 2 * count + 2
        self.size = 0
        #: Per group: where its rows are in the table, set bits, how many units it has, its component and place there.
        self.profile, self.start, self.count, self.ones, self.sizes, self.component, self._address = np.zeros((7, room), np.int64)
        #: The output of a group's lightest unit.
        self.lightest = np.zeros(room, np.int64)
        self.units: list[list[tuple[int, int]]] = []
        #: Per unit: output, entries, profile, and what it was made of; items come first.
        self.output, self.entries = items.output.tolist(), items.entries.tolist()
        self.unit_profile = items.profile.tolist()
        self.parts: list[tuple[int, ...]] = [()] * count
        self._of_profile: dict[int, int] = {}
        self._component_of_publisher = components_of(model.table, items.profile, one_component)
        components = int(self._component_of_publisher.max(initial=0)) + 1
        self._active: list[Whole] = [np.zeros(4, np.int64) for _ in range(components)]
        #: How many groups with units a component has.
        self.active_count = [0] * components
        self._one_component = one_component
        for unit in range(count):
            self.units[self.group_of(self.unit_profile[unit])].append((self.output[unit], unit))
        for group in range(self.size):
            self.units[group].sort()
            self._count(group)
            self._activate(group)

    def active(self, component: int) -> Whole:
        """The groups of a component that have units, in no order."""
        return self._active[component]

    def group_of(self, profile: int) -> int:
        """The group of a profile, a new one if there is none (or if identical ones are kept apart)."""
        group = self._of_profile.get(profile) if self._identical else None
        if group is None:
            group = self._of_profile[profile] = self.size
            self.size += 1
            self.profile[group] = profile
            self.start[group], self.count[group] = self.table.start[profile], self.table.count[profile]
            self.ones[group] = self.table.ones[profile]
            self.component[group] = self._component(profile)
            self.units.append([])
        return group

    def make(self, parts: tuple[int, ...], profile: int) -> int:
        """A new unit of several, not yet in a group."""
        self.output.append(sum(self.output[i] for i in parts))
        self.entries.append(sum(self.entries[i] for i in parts))
        self.unit_profile.append(profile)
        self.parts.append(parts)
        return len(self.output) - 1

    def add(self, group: int, unit: int) -> bool:
        """Put a unit into a group; whether the group was empty before."""
        insort(self.units[group], (self.output[unit], unit))
        self._count(group)
        if self.sizes[group] == 1:
            self._activate(group)
            return True
        return False

    def remove(self, group: int, units: set[int]) -> bool:
        """Take units out of a group; whether it is empty now."""
        self.units[group] = [each for each in self.units[group] if each[1] not in units]
        self._count(group)
        if self.units[group]:
            return False
        self._deactivate(group)
        return True

    def exchange(self, group: int, units: set[int], made: int) -> None:
        """Put one unit into a group in the place of others, so that the group never is empty."""
        self.units[group] = [each for each in self.units[group] if each[1] not in units]
        insort(self.units[group], (self.output[made], made))
        self._count(group)

    def _count(self, group: int) -> None:
        units = self.units[group]
        self.sizes[group], self.lightest[group] = len(units), units[0][0] if units else 0

    def items_of(self, unit: int) -> list[int]:
        """The items that a unit is made of."""
        found, open = [], [unit]
        while open:
            each = open.pop()
            if self.parts[each]:
                open.extend(self.parts[each])
            else:
                found.append(each)
        return sorted(found)

    def clusters(self) -> list[int]:
        """All units there are now."""
        return sorted(unit for several in self.units for _, unit in several)

    def _component(self, profile: int) -> int:
        if self._one_component:
            return 0
        return (
            int(self._component_of_publisher[self.table.publisher[self.table.start[profile]]])
            if self.table.count[profile]
            else -1
        )

    def _activate(self, group: int) -> None:
        component = int(self.component[group])
        if component < 0 or not self.sizes[group]:
            return
        place = self.active_count[component]
        if place == len(self._active[component]):
            self._active[component] = np.concatenate([self._active[component], np.zeros(place, np.int64)])
        self._active[component][place], self._address[group] = group, place
        self.active_count[component] += 1

    def _deactivate(self, group: int) -> None:
        component = int(self.component[group])
        if component < 0:
            return
        self.active_count[component] -= 1
        active, place = self._active[component], int(self._address[group])
        last = int(active[self.active_count[component]])
        active[place], self._address[last] = last, place


def components_of(table: ProfileTable, profiles: Whole, one: bool) -> Whole:
    """The component of every publisher in the table: publishers that one of the profiles has are in the same."""
    parent = list(range(int(table.publisher[: table.rows].max(initial=-1)) + 1))

    def root(i: int) -> int:
        while parent[i] != i:
            parent[i] = parent[parent[i]]
            i = parent[i]
        return i

    if one:
        return np.zeros(len(parent), np.int64)
    several = np.unique(profiles[table.count[profiles] > 1]) if len(profiles) else profiles
    # Neighbours in a profile hang together; which pairs there are is far less than how many profiles.
    counts = table.count[several] - 1
    inner = np.repeat(table.start[several] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
    pairs = np.unique(np.stack([table.publisher[inner], table.publisher[inner + 1]], axis=1), axis=0)
    for one_end, other_end in pairs.tolist():
        parent[root(other_end)] = root(one_end)
    roots = np.array([root(i) for i in range(len(parent))], np.int64)
    return np.unique(roots, return_inverse=True)[1].astype(np.int64) if len(roots) else roots
