"""How filter classes include each other (STOCH 6, covering): a wider class wants all that a narrower one wants, and more."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import rustworkx

from overweave.analysis.tree import Reals
from overweave.errors import InvalidInput


@dataclass(frozen=True)
class Inclusion:
    """For each class the classes that include it, near and far; a publication of a class matches all of these too.

    >>> Inclusion.of(3, [(0, 1), (1, 2)]).wider
    ((1, 2), (2,), ())
    """

    wider: tuple[tuple[int, ...], ...]

    @staticmethod
    def none(classes: int) -> "Inclusion":
        """Classes that have nothing in common, as STOCH 3.1 has them."""
        return Inclusion(((),) * classes)

    @staticmethod
    def of(classes: int, pairs: Iterable[tuple[int, int]], names: Sequence[str] | None = None) -> "Inclusion":
        """Of pairs (narrow, wide), from which the rest follows; no class is wider than itself."""
        graph: rustworkx.PyDiGraph[None, None] = rustworkx.PyDiGraph()
        graph.add_nodes_from([None] * classes)
        graph.add_edges_from([(narrow, wide, None) for narrow, wide in pairs])
        cycle = rustworkx.digraph_find_cycle(graph)
        if cycle:
            named = ", ".join(repr(names[narrow] if names else narrow + 1) for narrow, _ in cycle)
            raise InvalidInput(f"within: expected that no class includes itself, found the cycle {named}")
        return Inclusion(tuple(tuple(sorted(rustworkx.descendants(graph, each))) for each in range(classes)))

    @property
    def is_empty(self) -> bool:
        """Whether no class includes another."""
        return not any(self.wider)

    def above(self, values: Reals) -> Reals:
        """Sums over all strictly wider classes; classes are columns."""
        sums = np.zeros(values.shape)
        for narrow, wide in enumerate(self.wider):
            if wide:
                sums[:, narrow] = values[:, wide].sum(axis=1)
        return sums

    def below(self, values: Reals) -> Reals:
        """Sums over all strictly narrower classes."""
        sums = np.zeros(values.shape)
        for narrow, wide in enumerate(self.wider):
            for each in wide:
                sums[:, each] += values[:, narrow]
        return sums
