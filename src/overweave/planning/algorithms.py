"""Algorithms, by name: which allocator, which builder and which placement make a plan (THESIS 7.3.1); a new one is a line."""

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from overweave.errors import PlanningError
from overweave.planning.allocate import ALLOCATORS, AWARE
from overweave.planning.allocate.base import Allocator
from overweave.planning.allocate.cram import cram
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.allocate.cram.parts import RunParts, run_here
from overweave.planning.allocate.minimal import minimal
from overweave.planning.build import BUILDERS
from overweave.planning.build.at_most import at_most
from overweave.planning.build.base import Builder
from overweave.planning.build.cheapest import cheapest
from overweave.planning.build.iterated import iterated
from overweave.planning.build.recursive import RecursiveOptions, recursive
from overweave.planning.minimal import MinimalOptions
from overweave.planning.options import Options
from overweave.planning.place import PLACEMENTS
from overweave.planning.place.base import Placement
from overweave.planning.place.grape import GrapeOptions, grape


@dataclass(frozen=True)
class Algorithm:
    """Names in `ALLOCATORS`, `BUILDERS` and `PLACEMENTS`."""

    allocate: str
    build: str = "recursive"
    place: str = "grape"

    @property
    def keeps_capacity(self) -> bool:
        """Whether its plans respect capacities; the baselines do not."""
        return self.allocate in AWARE and self.build == "recursive"

    def parts(self, options: Options, run_parts: RunParts = run_here) -> tuple[Allocator, Builder, Placement]:
        """Its parts with options; CRAM uses ``run_parts`` for parts of large problems."""
        allocate, build, place = ALLOCATORS[self.allocate], BUILDERS[self.build], PLACEMENTS[self.place]
        if self.allocate.startswith("cram-"):
            closeness = self.allocate.removeprefix("cram-")
            fields = (options.rule, options.groups, options.search, options.one_to_many)
            allocate = cram(
                CramOptions(closeness=closeness, rule=fields[0], groups=fields[1], search=fields[2], one_to_many=fields[3]),
                run_parts,
            )
        if self.allocate.startswith("minimal-"):
            ranking = self.allocate.removeprefix("minimal-")
            share = 1.0 if options.lcf is None else options.lcf
            chosen = MinimalOptions(ranking=ranking, lcf=share, oversize=options.oversize)
            allocate, by_size = minimal(chosen), minimal(msgspec.structs.replace(chosen, by_cost=False))
            build = cheapest(iterated(build) if options.lcf is None else build, by_size)
        if self.build == "recursive":
            build = recursive(
                RecursiveOptions(
                    eliminate_forwarders=options.eliminate_forwarders,
                    take_over=options.take_over,
                    best_fit=options.best_fit,
                    backtrack=options.backtrack,
                    publishers_inside=options.publishers_inside,
                )
            )
        if self.allocate.startswith("cram-") and options.rule != "literal":
            build = at_most(build, ALLOCATORS["bin-packing"])
        if self.place == "grape":
            place = grape(GrapeOptions(priority=options.priority, weight=options.weight))
        return allocate, build, place


ALGORITHMS: Mapping[str, Algorithm] = {
    "fbf": Algorithm("fbf"),
    "bin-packing": Algorithm("bin-packing"),
    "cram-intersect": Algorithm("cram-intersect"),
    "cram-xor": Algorithm("cram-xor"),
    "cram-ios": Algorithm("cram-ios"),
    "cram-iou": Algorithm("cram-iou"),
    "pairwise-k": Algorithm("pairwise-k", "random", "random"),
    "pairwise-n": Algorithm("pairwise-n", "random", "random"),
    "manual": Algorithm("proportional", "fanout", "random"),
    "automatic": Algorithm("uniform", "random", "random"),
    # MINIMAL 5 and 6.1: publishers are placed with the subscribers.
    "minimal-gli": Algorithm("minimal-gli", "spanning-tree", "root"),
    "minimal-gi": Algorithm("minimal-gi", "spanning-tree", "root"),
    "minimal-gig": Algorithm("minimal-gig", "spanning-tree", "root"),
    "minimal-random": Algorithm("minimal-random", "random-used", "root"),
    "minimal-baldoni": Algorithm("minimal-random", "baldoni", "root"),
    # The breakdown of 7.3.4: one part of the whole left out.
    "manual-grape": Algorithm("proportional", "fanout", "grape"),
    "cram-iou-root": Algorithm("cram-iou", place="root"),
}


def algorithm(name: str) -> Algorithm:
    """The algorithm of a name."""
    if name not in ALGORITHMS:
        raise PlanningError(f"algorithm: expected one of {', '.join(ALGORITHMS)}, found {name!r}")
    return ALGORITHMS[name]
