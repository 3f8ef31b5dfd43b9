"""Parts of a clustering that are done apart: each has all it needs in it, and can be sent to another process.

A part is some whole components (groups that share no publisher with those of other parts), or a slice of a component that is
larger than one task should be. Answers do not depend on where parts are clustered.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np

from overweave.planning.allocate.cram.accept import HeldAlone, Limits
from overweave.planning.allocate.cram.clustering import Clustering
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.closeness import CLOSENESS
from overweave.planning.closest_pairs import SEARCHES
from overweave.planning.groups import Groups
from overweave.planning.model import Items
from overweave.planning.problem import BitWords, Whole
from overweave.planning.table import ProfileTable


@dataclass(frozen=True, eq=False)
class Part:
    """Profiles, and the items of each: those of profile i are ``items[item_start[i]:item_start[i + 1]]``, rows likewise."""

    row_start: Whole
    publisher: Whole
    words: BitWords
    item_start: Whole
    #: Numbers in the whole, and what each item weighs.
    items: Whole
    output: Whole
    entries: Whole

    def __len__(self) -> int:
        return len(self.row_start) - 1

    @classmethod
    def of(cls, table: ProfileTable, profiles: Whole, items: Sequence[Whole], weights: Items) -> "Part":
        """The part of some profiles of a table, with the items of each and what all items weigh."""
        count = table.count[profiles]
        row_start = _starts(count)
        rows = np.repeat(table.start[profiles] - row_start[:-1], count) + np.arange(row_start[-1])
        chosen = np.concatenate(items)
        return cls(
            row_start,
            table.publisher[rows],
            table.words[rows],
            _starts(np.array([len(each) for each in items], np.int64)),
            chosen,
            weights.output[chosen],
            weights.entries[chosen],
        )


@dataclass(frozen=True, eq=False)
class Work:
    """The work on each part."""

    options: CramOptions
    limits: Limits


#: The clusters of each part, in the order of parts; a cluster is the numbers of its items.
RunParts = Callable[[Sequence[Part], Work], Iterable[list[Whole]]]


@dataclass
class _Table:
    table: ProfileTable = field(default_factory=lambda: ProfileTable(1))


def cluster_part(part: Part, work: Work) -> list[Whole]:
    """The clusters of one part."""
    closeness, options = CLOSENESS[work.options.closeness], work.options
    table = ProfileTable(part.words.shape[1])
    numbers = np.array(
        [
            table.add(part.publisher[first:last], np.ascontiguousarray(part.words[first:last]))
            for first, last in zip(part.row_start[:-1].tolist(), part.row_start[1:].tolist(), strict=True)
        ],
        np.int64,
    )
    profile = np.repeat(numbers, np.diff(part.item_start))
    # As in the whole: of equally close groups, and of equally light units, the first counts.
    order = np.argsort(part.items, kind="stable")
    own = Items(profile[order], part.output[order], part.entries[order], np.full(len(order), -1, np.int64))
    groups = Groups(_Table(table), own, identical=options.groups, one_component=closeness.pairs_strangers)
    accepts = HeldAlone(table, work.limits)
    Clustering(groups, accepts, closeness, SEARCHES[options.search], one_to_many=options.one_to_many).run()
    numbers_of = part.items[order]
    return [numbers_of[groups.items_of(unit)] for unit in groups.clusters()]


def run_here(parts: Sequence[Part], work: Work) -> Iterable[list[Whole]]:
    """Cluster parts one after the other in this process."""
    return (cluster_part(part, work) for part in parts)


def _starts(counts: Whole) -> Whole:
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(counts)])
