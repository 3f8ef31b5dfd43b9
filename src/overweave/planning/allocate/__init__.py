"""Allocators, by name; a new one is a file and a line here."""

from collections.abc import Mapping

from overweave.planning.allocate.base import Allocator
from overweave.planning.allocate.bin_packing import bin_packing
from overweave.planning.allocate.cram import clusters_of, cram
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.allocate.fbf import fbf
from overweave.planning.allocate.minimal import minimal
from overweave.planning.allocate.pairwise import pairwise_k, pairwise_n
from overweave.planning.allocate.random import proportional, uniform
from overweave.planning.minimal import MinimalOptions
from overweave.planning.model import Bins, Items, Model


def _clusters_of_cram_xor(model: Model, items: Items, bins: Bins) -> int:
    """The number of clusters for PAIRWISE-K (THESIS 7.3.1): that of CRAM-XOR, rule ``no-worse``."""
    return len(clusters_of(model, items, bins, CramOptions(closeness="xor", rule="no-worse")))


ALLOCATORS: Mapping[str, Allocator] = {
    "fbf": fbf,
    "bin-packing": bin_packing,
    "cram-intersect": cram(CramOptions(closeness="intersect")),
    "cram-xor": cram(CramOptions(closeness="xor")),
    "cram-ios": cram(CramOptions(closeness="ios")),
    "cram-iou": cram(CramOptions(closeness="iou")),
    "pairwise-k": pairwise_k(_clusters_of_cram_xor),
    "pairwise-n": pairwise_n,
    "minimal-gli": minimal(MinimalOptions(ranking="gli", lcf=1.0)),
    "minimal-gi": minimal(MinimalOptions(ranking="gi", lcf=1.0)),
    "minimal-gig": minimal(MinimalOptions(ranking="gig", lcf=1.0)),
    "minimal-random": minimal(MinimalOptions(ranking="random", lcf=1.0)),
    "uniform": uniform,
    "proportional": proportional,
}
#: Allocators that respect capacities; the others are baselines and may overload brokers.
AWARE = frozenset(name for name in ALLOCATORS if name.startswith(("fbf", "bin-packing", "cram-", "minimal-")))
