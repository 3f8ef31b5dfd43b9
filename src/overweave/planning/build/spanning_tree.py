"""The overlay of MINIMAL 5.3 (algorithm 3): a maximum spanning tree over the commonality of the brokers in use.

Prim's algorithm, as the text has it: it asks for one row of commonality per broker, so no matrix of all pairs is kept.
`overlay.trees` has Kruskal's for weights that are known already. O(B^2 + S^2) time, O(B + S) memory.
"""

import numpy as np

from overweave.planning.allocate.base import Allocator
from overweave.planning.build.joining import joined
from overweave.planning.model import Model
from overweave.planning.model_similarity import homes, similarity_of
from overweave.planning.problem import Whole
from overweave.planning.similarity import BrokerRow
from overweave.planning.tree import Design


def spanning_tree(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
    """The brokers that the allocator uses, joined by commonality."""
    similarity = similarity_of(model)

    def join(items: Whole, publishers: Whole, brokers: int) -> Whole:
        return maximum_tree(brokers, similarity.commonality(homes(model, items, publishers), brokers))

    return joined(model, allocate(model, model.items, model.bins, draw), join)


def maximum_tree(brokers: int, row: BrokerRow) -> Whole:
    """The parents of a tree over all brokers with the greatest sum of weights (-1: root); of equal links the first found.

    >>> weights = np.array([[0.0, 0.1, 0.9], [0.1, 0.0, 0.5], [0.9, 0.5, 0.0]])
    >>> maximum_tree(3, weights.__getitem__).tolist()
    [-1, 2, 0]
    """
    parent, best = np.full(brokers, -1, np.int64), np.full(brokers, -np.inf)
    outside, at = np.ones(brokers, np.bool_), 0
    for _ in range(brokers - 1):
        outside[at], best[at] = False, -np.inf
        weights = row(at)
        better = outside & (weights > best)
        best[better], parent[better] = weights[better], at
        at = int(np.argmax(best))
    return parent
