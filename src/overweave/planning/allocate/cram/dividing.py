"""Clusters of everything by clusters of parts: components apart, and those that are too large in slices that are merged.

INTERSECT, IOS and IOU are 0 between groups that share no publisher, so components of the graph of profiles and publishers are
clustered apart, and the answer is that of the whole. XOR pairs strangers: all groups are one component. One of more than
``part_groups``, whose search is quadratic, is cut into slices by the publisher that weighs most in a group, and a
publisher's slice that is still too large into ranges of counts of bits, in which neighbours are alike. The clusters of slices are
then clustered with each other, cut by the next publisher where they are still too many, until all are one slice or hardly any two
can be joined.
"""

from collections.abc import Iterator

import numpy as np

from overweave.planning.allocate.cram.accept import Limits
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.allocate.cram.parts import Part, RunParts, Work
from overweave.planning.closeness import CLOSENESS
from overweave.planning.groups import components_of
from overweave.planning.model import Items
from overweave.planning.problem import Whole
from overweave.planning.table import ProfileTable

#: A round of merging that leaves more than this share of the clusters is the last.
_LEFT = 0.9


def divided(
    table: ProfileTable,
    items: Items,
    limits: Limits,
    options: CramOptions,
    run: RunParts,
) -> list[list[int]]:
    """The clusters of items, none of which is pinned, each with its items ascending; clusters by their first item."""
    found = [np.sort(each) for each in _clusters(table, items, Work(options, limits), run, 0)]
    found.sort(key=lambda each: int(each[0]))
    return [each.tolist() for each in found]


def _clusters(table: ProfileTable, items: Items, work: Work, run: RunParts, turn: int) -> list[Whole]:
    group, first = _groups(items.profile, work.options.groups)
    profiles = items.profile[first]
    one = CLOSENESS[work.options.closeness].pairs_strangers
    component = _components(table, profiles, one)
    by_item = np.argsort(group, kind="stable")
    ends = np.searchsorted(group[by_item], np.arange(len(first) + 1))
    members = [by_item[start:end] for start, end in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)]
    # Groups without deliveries are close to no other.
    found = [np.array([item]) for each in np.flatnonzero(component < 0).tolist() for item in members[each].tolist()]
    whole, sliced = _cut(table, profiles, component, work.options.part_groups, turn)
    parts = [Part.of(table, profiles[each], [members[i] for i in each.tolist()], items) for each in (*whole, *sliced)]
    answers = list(run(parts, work))
    found.extend(cluster for answer in answers[: len(whole)] for cluster in answer)
    rest = [cluster for answer in answers[len(whole) :] for cluster in answer]
    if not rest:
        return found
    before = sum(len(part.items) for part in parts[len(whole) :])
    if turn and len(rest) > _LEFT * before:
        return found + rest
    merged, joined = _joined(table, items, rest)
    again = _clusters(merged, joined, work, run, turn + 1)
    return found + [np.concatenate([rest[i] for i in each.tolist()]) for each in again]


def _groups(profile: Whole, identical: bool) -> tuple[Whole, Whole]:
    """The group of each item, numbered as they come, and the first item of each."""
    if not identical:
        return np.arange(len(profile)), np.arange(len(profile))
    _, first, group = np.unique(profile, return_index=True, return_inverse=True)
    order = np.argsort(first, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    return rank[group], first[order]


def _components(table: ProfileTable, profiles: Whole, one: bool) -> Whole:
    """The component of each profile, -1 for those without any publisher."""
    if one:
        return np.zeros(len(profiles), np.int64)
    of_publisher = components_of(table, profiles, one)
    found = np.full(len(profiles), -1, np.int64)
    some = np.flatnonzero(table.count[profiles] > 0)
    found[some] = of_publisher[table.publisher[table.start[profiles[some]]]]
    return found


def _cut(table: ProfileTable, profiles: Whole, component: Whole, part_groups: int, turn: int) -> tuple[list[Whole], list[Whole]]:
    """Groups by part: parts of whole components, small ones together, and slices of large ones."""
    order = np.argsort(component, kind="stable")
    order = order[component[order] >= 0]
    starts = np.flatnonzero(np.diff(component[order], prepend=-2))
    pieces = np.split(order, starts[1:]) if len(order) else []
    # Small components go together: enough for a task to be worth it, few enough for all tasks to be as long.
    whole = list(_bundled([each for each in pieces if len(each) <= part_groups], part_groups // 4))
    sliced: list[Whole] = []
    for piece in (each for each in pieces if len(each) > part_groups):
        sliced.extend(_bundled(_slices(table, profiles, piece, part_groups, turn), part_groups))
    return whole, sliced


def _slices(table: ProfileTable, profiles: Whole, groups: Whole, part_groups: int, turn: int) -> list[Whole]:
    """Groups by the publisher that weighs most in them (the next one in the next turn), then by their counts of bits."""
    chosen = _heaviest(table, profiles[groups], turn)
    order = groups[np.lexsort((groups, table.ones[profiles[groups]], chosen))]
    by = np.sort(chosen, kind="stable")
    found = []
    for piece in np.split(order, np.flatnonzero(np.diff(by)) + 1):
        found.extend(np.array_split(piece, -(-len(piece) // part_groups)))
    return found


def _heaviest(table: ProfileTable, profiles: Whole, turn: int) -> Whole:
    """The publisher of a profile with most bits; in later turns that with the next most, and so on round."""
    found = np.full(len(profiles), -1, np.int64)
    for i, profile in enumerate(profiles.tolist()):
        publisher, words = table.of(profile)
        if len(publisher):
            bits = np.bitwise_count(words).sum(axis=1)
            found[i] = publisher[np.lexsort((publisher, -bits.astype(np.int64)))[turn % len(publisher)]]
    return found


def _bundled(pieces: list[Whole], most: int) -> Iterator[Whole]:
    """Adjacent pieces merged, up to a number of groups."""
    open: list[Whole] = []
    size = 0
    for piece in pieces:
        if open and size + len(piece) > most:
            yield np.sort(np.concatenate(open))
            open, size = [], 0
        open.append(piece)
        size += len(piece)
    if open:
        yield np.sort(np.concatenate(open))


def _joined(table: ProfileTable, items: Items, clusters: list[Whole]) -> tuple[ProfileTable, Items]:
    """Clusters as items, with a table of their own."""
    merged = ProfileTable(table.words.shape[1])
    profile = np.array([merged.add(*table.union(np.unique(items.profile[each]))) for each in clusters], np.int64)
    output = np.array([items.output[each].sum() for each in clusters], np.int64)
    entries = np.array([items.entries[each].sum() for each in clusters], np.int64)
    return merged, Items(profile, output, entries, np.full(len(clusters), -1, np.int64))
