"""Builders of overlays, by name; a new one is a file and a line here."""

from collections.abc import Mapping

from overweave.planning.build.baldoni import baldoni
from overweave.planning.build.base import Builder
from overweave.planning.build.fanout import fanout
from overweave.planning.build.random import random, random_used
from overweave.planning.build.recursive import RecursiveOptions, recursive
from overweave.planning.build.spanning_tree import spanning_tree

BUILDERS: Mapping[str, Builder] = {
    "recursive": recursive(RecursiveOptions()),
    "fanout": fanout,
    "random": random,
    "random-used": random_used,
    "spanning-tree": spanning_tree,
    "baldoni": baldoni,
}
