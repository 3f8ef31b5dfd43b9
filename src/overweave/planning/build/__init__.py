"""Builders of overlays, by name; a new one is a file and a line here."""

from collections.abc import Mapping

from overweave.planning.build.base import Builder
from overweave.planning.build.fanout import fanout
from overweave.planning.build.random import random
from overweave.planning.build.recursive import RecursiveOptions, recursive

BUILDERS: Mapping[str, Builder] = {"recursive": recursive(RecursiveOptions()), "fanout": fanout, "random": random}
