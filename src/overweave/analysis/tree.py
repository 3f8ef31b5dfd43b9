"""The tree that is analysed: every broker but the root hangs under a parent (STOCH 2)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import rustworkx
from numpy.typing import NDArray

from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay

Reals = NDArray[np.float64]
Wholes = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Tree:
    """Brokers so that parents stand before children; the first is the root.

    >>> tree = Tree.of_parents({"B3": "B1", "B2": "B3", "B1": None})
    >>> tree.ids, tree.parents.tolist(), tree.depths.tolist()
    (('B1', 'B3', 'B2'), [-1, 0, 1], [0, 1, 2])
    """

    ids: tuple[str, ...]
    #: The place of each broker's parent, which is before its own; -1 for the root.
    parents: Wholes

    @staticmethod
    def of_parents(parents: Mapping[str, str | None]) -> "Tree":
        """The tree in which every broker has the parent given; exactly one has none.

        >>> Tree.of_parents({"B1": None, "B2": "B3", "B3": "B2"})
        Traceback (most recent call last):
        overweave.errors.InvalidInput: broker 'B2': parent: expected a way up to the root, found the cycle 'B2', 'B3'
        """
        roots = [broker for broker, parent in parents.items() if parent is None]
        if not roots:
            raise InvalidInput("parent: expected one broker without a parent, the root, found none")
        if len(roots) > 1:
            raise InvalidInput(f"broker {roots[1]!r}: parent: expected a broker, as {roots[0]!r} is the root already, found none")
        for broker, parent in parents.items():
            if parent is not None and parent not in parents:
                raise InvalidInput(f"broker {broker!r}: parent: expected one of the brokers, found {parent!r}")
        return _ordered(list(parents), parents, roots[0])

    @staticmethod
    def of_overlay(overlay: Overlay) -> "Tree":
        """The overlay with its first broker as the root, as routing has it; it has to be a tree.

        >>> from overweave.overlay.shapes import make_overlay
        >>> Tree.of_overlay(make_overlay("star", brokers=3)).parents.tolist()
        [-1, 0, 0]
        """
        if not overlay.ids:
            raise InvalidInput("brokers: expected at least one, found none")
        root = overlay.ids[0]
        parents: dict[str, str | None] = {root: None}
        reached = [root]
        for broker in reached:
            for neighbour in overlay.neighbours(broker):
                if neighbour not in parents:
                    parents[neighbour] = broker
                    reached.append(neighbour)
        for broker in overlay.ids:
            if broker not in parents:
                raise InvalidInput(f"broker {broker!r}: links: expected a way up to the root {root!r}, found none")
        if not overlay.is_tree():
            raise InvalidInput(f"links: expected a tree, found the cycle {_cycle_of_links(overlay)}")
        return Tree.of_parents(parents)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def links(self) -> int:
        """How many links there are: one above every broker but the root."""
        return len(self) - 1

    @property
    def depths(self) -> Wholes:
        """How many links each broker is away from the root."""
        depths = np.zeros(len(self), np.int64)
        for place, parent in enumerate(self.parents[1:], 1):
            depths[place] = depths[parent] + 1
        return depths

    def gathered(self, values: Reals) -> Reals:
        """Sums over the sub-tree of each broker (rows), like equation 8; ``values`` is not changed."""
        sums = values.astype(np.float64, copy=True)
        for place in range(len(self) - 1, 0, -1):
            sums[self.parents[place]] += sums[place]
        return sums

    def left_out(self, values: Reals, sums: Reals) -> Reals:
        """Sums over all brokers outside the sub-tree of each, where ``sums`` are those inside; nothing is subtracted.

        A difference of sums would be wrong where almost everything is inside.
        """
        outside = np.zeros_like(sums)
        for parent, children in enumerate(self.children):
            for order in (children, children[::-1]):
                # Forward it collects the parent, everything above it and elder siblings, back the younger ones.
                collected = outside[parent] + values[parent] if order is children else np.zeros_like(sums[0])
                for child in order:
                    outside[child] += collected
                    collected = collected + sums[child]
        return outside

    @property
    def children(self) -> list[list[int]]:
        """The places of each broker's children."""
        children: list[list[int]] = [[] for _ in self.ids]
        for place, parent in enumerate(self.parents[1:], 1):
            children[parent].append(place)
        return children


def _ordered(brokers: Sequence[str], parents: Mapping[str, str | None], root: str) -> Tree:
    children: dict[str, list[str]] = {broker: [] for broker in brokers}
    for broker in brokers:
        parent = parents[broker]
        if parent is not None:
            children[parent].append(broker)
    order = [root]
    for broker in order:
        order += children[broker]
    if len(order) < len(brokers):
        lost = next(broker for broker in brokers if broker not in set(order))
        raise InvalidInput(f"broker {lost!r}: parent: expected a way up to the root, found the cycle {_cycle(parents, lost)}")
    places = {broker: place for place, broker in enumerate(order)}
    above = [-1 if (parent := parents[broker]) is None else places[parent] for broker in order]
    return Tree(tuple(order), np.array(above, np.int64))


def _cycle(parents: Mapping[str, str | None], broker: str) -> str:
    """The brokers of the cycle that the way up from ``broker`` ends in."""
    way: list[str] = []
    here: str | None = broker
    while here is not None and here not in way:
        way.append(here)
        here = parents[here]
    return ", ".join(map(repr, way[way.index(str(here)) :]))


def _cycle_of_links(overlay: Overlay) -> str:
    graph: rustworkx.PyGraph[None, None] = rustworkx.PyGraph()
    graph.add_nodes_from([None] * len(overlay))
    graph.add_edges_from([(overlay.position(link.first), overlay.position(link.second), None) for link in overlay.links])
    return ", ".join(repr(overlay.ids[place]) for place in rustworkx.cycle_basis(graph)[0])
