"""Placements of publishers, by name; a new one is a file and a line here."""

from collections.abc import Mapping

from overweave.planning.place.base import Placement
from overweave.planning.place.grape import GrapeOptions, grape
from overweave.planning.place.simple import random, root, stay

PLACEMENTS: Mapping[str, Placement] = {"root": root, "random": random, "stay": stay, "grape": grape(GrapeOptions())}
