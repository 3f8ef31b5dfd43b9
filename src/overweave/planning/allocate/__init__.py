"""Allocators, by name; a new one is a file and a line here."""

from collections.abc import Mapping

from overweave.planning.allocate.base import Allocator
from overweave.planning.allocate.bin_packing import bin_packing
from overweave.planning.allocate.cram import cram
from overweave.planning.allocate.cram.options import CramOptions
from overweave.planning.allocate.fbf import fbf
from overweave.planning.allocate.pairwise import pairwise_k, pairwise_n
from overweave.planning.allocate.random import proportional, uniform

ALLOCATORS: Mapping[str, Allocator] = {
    "fbf": fbf,
    "bin-packing": bin_packing,
    "cram-intersect": cram(CramOptions(closeness="intersect")),
    "cram-xor": cram(CramOptions(closeness="xor")),
    "cram-ios": cram(CramOptions(closeness="ios")),
    "cram-iou": cram(CramOptions(closeness="iou")),
    "pairwise-k": pairwise_k,
    "pairwise-n": pairwise_n,
    "uniform": uniform,
    "proportional": proportional,
}
#: Those that keep to capacities; the others are baselines and may overload brokers.
AWARE = frozenset({"fbf", "bin-packing", "cram-intersect", "cram-xor", "cram-ios", "cram-iou"})
