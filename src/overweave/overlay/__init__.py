"""The broker overlay as a value: its graph, shapes by name, paths and trees, and its file formats."""

from overweave.overlay.files import FORMATS, file_format, from_json, to_json
from overweave.overlay.graph import Overlay
from overweave.overlay.graphml import from_graphml, to_graphml
from overweave.overlay.parts import Broker, Link, LinkKind, Role
from overweave.overlay.paths import NextHops, average_path_length, diameter, distances, neighbourhood, next_hops, path_between
from overweave.overlay.shapes import SHAPES, make_overlay
from overweave.overlay.trees import maximum_spanning_tree, minimum_spanning_tree, spanning_tree

__all__ = [
    "FORMATS",
    "SHAPES",
    "Broker",
    "Link",
    "LinkKind",
    "NextHops",
    "Overlay",
    "Role",
    "average_path_length",
    "diameter",
    "distances",
    "file_format",
    "from_graphml",
    "from_json",
    "make_overlay",
    "maximum_spanning_tree",
    "minimum_spanning_tree",
    "neighbourhood",
    "next_hops",
    "path_between",
    "spanning_tree",
    "to_graphml",
    "to_json",
]
