"""PAIRWISE-K and PAIRWISE-N (THESIS 7.3.1): pairwise clustering by XOR to a number of clusters, with no look at capacity.

The closest two clusters become one until there are as many as wanted: as CRAM-XOR makes, each then to a random broker
(PAIRWISE-K), or as there are brokers, one for each (PAIRWISE-N).
"""

import numpy as np

from overweave.planning.allocate.base import Allocation
from overweave.planning.allocate.cram import clusters_of
from overweave.planning.allocate.cram.groups import Groups
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.allocate.cram.search import Partners, Scan
from overweave.planning.closeness import CLOSENESS
from overweave.planning.model import Bins, Items, Model


def pairwise_k(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
    """As many clusters as CRAM-XOR makes (rule ``no-worse``), each to a random broker."""
    free = items.take(np.flatnonzero(items.fixed < 0))
    count = len(clusters_of(model, free, bins, CramOptions(closeness="xor", rule="no-worse")))
    clusters = _clustered(model, items, count)
    return _placed(items, bins, clusters, draw.integers(len(bins), size=len(clusters)).astype(np.int64))


def pairwise_n(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
    """As many clusters as brokers, one for each; which is random."""
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
    """The clusters of the free items. Equal ones are united first, since nothing is closer, but only as far as needed."""
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
    """Unite the closest two groups, each with one unit now, ``excess`` times."""
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
