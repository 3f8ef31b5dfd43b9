"""PAIRWISE-K and PAIRWISE-N (THESIS 7.3.1): pairwise clustering by XOR to a given number of clusters, blind to capacity.

The closest two clusters are merged until the number is reached: that of CRAM-XOR, each cluster on a random broker
(PAIRWISE-K), or that of the brokers, one cluster each (PAIRWISE-N).
"""

from collections.abc import Callable

import numpy as np

from overweave.planning.allocate.base import Allocation, Allocator
from overweave.planning.closeness import CLOSENESS
from overweave.planning.closest_pairs import Partners, Scan
from overweave.planning.groups import Groups
from overweave.planning.model import Bins, Items, Model

#: The number of clusters of some items.
CountClusters = Callable[[Model, Items, Bins], int]


def pairwise_k(count_clusters: CountClusters) -> Allocator:
    """The allocator with as many clusters as another one makes of the free items, each on a random broker."""

    def allocate(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
        count = count_clusters(model, items.take(np.flatnonzero(items.fixed < 0)), bins)
        clusters = _clustered(model, items, count)
        return _placed(items, bins, clusters, draw.integers(len(bins), size=len(clusters)).astype(np.int64))

    return allocate


def pairwise_n(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
    """As many clusters as brokers, assigned at random, one each."""
    clusters = _clustered(model, items, len(bins))
    return _placed(items, bins, clusters, draw.permutation(len(bins))[: len(clusters)].astype(np.int64))


def _placed(
    items: Items, bins: Bins, clusters: list[list[int]], chosen: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> Allocation:
    where = {broker: bin for bin, broker in enumerate(bins.broker.tolist())}
    placed = np.array([where.get(int(broker), -1) for broker in items.fixed], np.int64)
    for cluster, bin in zip(clusters, chosen.tolist(), strict=True):
        placed[cluster] = bin
    return Allocation(placed, len(clusters))


def _clustered(model: Model, items: Items, wanted: int) -> list[list[int]]:
    """The clusters of the free items. Identical items are the closest, so they are merged first, as far as needed."""
    free = np.flatnonzero(items.fixed < 0)
    groups = Groups(model, items.take(free), identical=True, one_component=True)
    excess = len(free) - max(wanted, 1)
    for group in range(groups.size):
        taken = min(excess, len(groups.units[group]) - 1)
        if taken > 0:
            _unite(groups, {group: [unit for _, unit in groups.units[group][: taken + 1]]}, int(groups.profile[group]), group)
            excess -= taken
    if excess > 0:
        _unite_groups(groups, excess)
    return [free[groups.items_of(unit)].tolist() for unit in groups.clusters()]


def _unite(groups: Groups, parts: dict[int, list[int]], profile: int, target: int | None) -> int:
    made = groups.make(tuple(unit for units in parts.values() for unit in units), profile)
    for group, units in parts.items():
        groups.remove(group, set(units))
    group = groups.group_of(profile) if target is None else target
    groups.add(group, made)
    return group


def _unite_groups(groups: Groups, excess: int) -> None:
    """Merge the closest two groups, each of one unit, ``excess`` times."""
    partners = Partners(len(groups.sizes))
    search = Scan(groups, partners, CLOSENESS["xor"], bounded=True)
    for group in range(groups.size):
        search.look(group, offer=False)
    while excess > 0:
        active = groups.active(0)[: groups.active_count[0]]
        best = partners.best[active]
        one = int(active[best == best.max()].min())
        other = int(partners.partner[one])
        parts = {group: [unit for _, unit in groups.units[group]] for group in dict.fromkeys((one, other))}
        profile = groups.table.unite([int(groups.profile[one]), int(groups.profile[other])])
        made = _unite(groups, parts, profile, None)
        excess -= sum(map(len, parts.values())) - 1
        active = groups.active(0)[: groups.active_count[0]]
        stale = active[np.isin(partners.partner[active], list(parts))].tolist()
        search.look(made, offer=True)
        for group in stale:
            if group != made:
                search.look(group, offer=False)
