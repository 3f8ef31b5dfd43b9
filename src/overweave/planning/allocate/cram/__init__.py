"""CRAM: clustering with resource awareness and minimisation (THESIS 6.2.3)."""

from collections.abc import Iterable, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.allocate.base import Allocation, Allocator
from overweave.planning.allocate.cram.accept import Limits
from overweave.planning.allocate.cram.allocatable import Allocatable
from overweave.planning.allocate.cram.clustering import Clustering
from overweave.planning.allocate.cram.dividing import divided
from overweave.planning.allocate.cram.options import RULES, CramOptions
from overweave.planning.allocate.cram.parts import Part, RunParts, Work, run_here
from overweave.planning.allocate.cram.splitting import place_clusters
from overweave.planning.closeness import CLOSENESS
from overweave.planning.closest_pairs import SEARCHES
from overweave.planning.filling import descending, pack
from overweave.planning.groups import Groups
from overweave.planning.model import Bins, Items, Model
from overweave.planning.problem import Whole


def cram(options: CramOptions, run_parts: RunParts = run_here) -> Allocator:
    """CRAM with some options; an unknown name is an error. ``run_parts`` clusters parts where groups are many."""
    for field, names in (("closeness", CLOSENESS), ("rule", RULES), ("search", SEARCHES)):
        if getattr(options, field) not in names:
            raise PlanningError(f"{field}: expected one of {', '.join(names)}, found {getattr(options, field)!r}")

    # A builder that tries again offers other brokers for the same items, and mostly the same clusters come of it.
    parts = _Remembered(run_parts)

    def allocate(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:  # noqa: ARG001
        return _allocate(model, items, bins, options, parts)

    return allocate


class _Remembered:
    """Clusters parts, and remembers the clusters of items as long as there are these."""

    def __init__(self, run_parts: RunParts) -> None:
        self._run = run_parts
        self._known: WeakKeyDictionary[Items, tuple[bytes, list[list[int]]]] = WeakKeyDictionary()

    def __call__(self, parts: Sequence[Part], work: Work) -> Iterable[list[Whole]]:
        return self._run(parts, work)

    def divided(self, model: Model, items: Items, own: Items, limits: Limits, options: CramOptions) -> list[list[int]]:
        """The clusters of the free items."""
        known = self._known.get(items)
        if known is None or known[0] != limits.key:
            known = self._known[items] = limits.key, divided(model.table, own, limits, options, self._run)
        return known[1]


def clusters_of(model: Model, items: Items, bins: Bins, options: CramOptions, run_parts: RunParts = run_here) -> list[list[int]]:
    """The clusters of the free items, each with its items; pinned ones are left out. BIN PACKING of all must succeed."""
    free = np.flatnonzero(items.fixed < 0)
    if not len(free):
        return []
    closeness, rule = CLOSENESS[options.closeness], RULES[options.rule]
    own = items.take(free)
    if rule.split and _many(own, options):
        limits = Limits.of(model, bins, items)
        if not isinstance(run_parts, _Remembered):
            run_parts = _Remembered(run_parts)
        return [free[each].tolist() for each in run_parts.divided(model, items, own, limits, options)]
    groups = Groups(model, own, identical=options.groups, one_component=closeness.pairs_strangers)
    pinned = items.take(np.flatnonzero(items.fixed >= 0))
    allocatable = Allocatable(model, bins, pinned, own, no_worse=rule.no_worse, whole_pool=not rule.split)
    Clustering(groups, allocatable, closeness, SEARCHES[options.search], one_to_many=options.one_to_many).run()
    return [free[groups.items_of(unit)].tolist() for unit in groups.clusters()]


def _many(items: Items, options: CramOptions) -> bool:
    most = options.whole_groups
    return len(items) > most and (not options.groups or len(np.unique(items.profile)) > most)


def _allocate(model: Model, items: Items, bins: Bins, options: CramOptions, run_parts: RunParts) -> Allocation:
    packed = pack(model, items, bins, descending(items))  # step 0: without any clustering; if that fails, so does CRAM
    clusters = clusters_of(model, items, bins, options, run_parts)
    if RULES[options.rule].split:
        return Allocation(place_clusters(model, items, bins, clusters, packed), len(clusters))
    return Allocation(_packed_whole(model, items, bins, clusters), len(clusters))


def _packed_whole(
    model: Model, items: Items, bins: Bins, clusters: list[list[int]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    """BIN PACKING of the clusters."""
    pinned = np.flatnonzero(items.fixed >= 0)
    members = [*([i] for i in pinned.tolist()), *clusters]
    whole = Items(
        np.array([model.table.unite([int(items.profile[i]) for i in each]) for each in members], np.int64),
        np.array([items.output[each].sum() for each in members], np.int64),
        np.array([items.entries[each].sum() for each in members], np.int64),
        np.array([items.fixed[each[0]] for each in members], np.int64),
    )
    bins_of = pack(model, whole, bins, descending(whole))
    placed = np.empty(len(items), np.int64)
    for each, bin in zip(members, bins_of.tolist(), strict=True):
        placed[each] = bin
    return placed
