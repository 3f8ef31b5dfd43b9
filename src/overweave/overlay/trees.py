"""Spanning trees, as overlays: the same brokers with the needed links.

Where not all brokers can be reached the result is a forest: brokers out of reach are there, without links.
"""

import itertools
from collections.abc import Callable, Mapping

import numpy as np
import rustworkx
from numpy.typing import NDArray

from overweave.errors import OverlayError
from overweave.overlay.graph import Overlay
from overweave.overlay.paths import distances_from

#: A weight per pair of brokers: for the pairs named, for all pairs by their ids, or as a symmetric matrix by their positions.
Weights = Mapping[tuple[str, str], float] | Callable[[str, str], float] | NDArray[np.float64]


def spanning_tree(overlay: Overlay, root: str) -> Overlay:
    """The overlay's links that make a tree of shortest paths from ``root``; parents are the nearer brokers of smallest position.

    >>> square = Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B3", "B4")])
    >>> [link.ends for link in spanning_tree(square, "B1").links]
    [('B1', 'B2'), ('B1', 'B3'), ('B2', 'B4')]
    """
    links_to, ids = distances_from(overlay, overlay.position(root)), overlay.ids
    parents = {
        child: min(near for near in overlay.lookup.graph.neighbors(child) if links_to[near] < links)
        for child, links in links_to.items()
        if links
    }
    return Overlay(overlay.brokers, (overlay.link(ids[child], ids[parent]) for child, parent in parents.items()))


def maximum_spanning_tree(overlay: Overlay, weights: Weights) -> Overlay:
    """The tree over all brokers whose primary links have the greatest sum of weights (MINIMAL 5.3: commonality).

    Any two brokers with a weight may be joined, whether the overlay links them now or not. MINIMAL names Prim's algorithm;
    rustworkx offers Kruskal's, which finds a tree of the same weight. Among equal weights the pair with the smallest positions
    is taken first. O(pairs x log pairs).

    >>> brokers = Overlay(["B1", "B2", "B3"])
    >>> [link.ends for link in maximum_spanning_tree(brokers, {("B1", "B2"): 0.1, ("B1", "B3"): 0.9, ("B2", "B3"): 0.5}).links]
    [('B1', 'B3'), ('B2', 'B3')]
    """
    pairs, values = _weighted_pairs(overlay, weights)
    return _lightest_tree(overlay, pairs, -values)


def minimum_spanning_tree(overlay: Overlay, weights: Weights) -> Overlay:
    """The tree over all brokers whose primary links have the least sum of weights; else as `maximum_spanning_tree`.

    >>> [link.ends for link in minimum_spanning_tree(Overlay(["B1", "B2", "B10"]), lambda one, other: len(one + other)).links]
    [('B1', 'B2'), ('B1', 'B10')]
    """
    return _lightest_tree(overlay, *_weighted_pairs(overlay, weights))


def _lightest_tree(overlay: Overlay, pairs: NDArray[np.int64], weights: NDArray[np.float64]) -> Overlay:
    # Kruskal's sort in rustworkx is not stable: ranks leave no ties, so there is only one lightest tree.
    order = np.lexsort((pairs[:, 1], pairs[:, 0], weights))
    ranked = pairs[order]
    # Parallel edges are allowed: forbidding them searches the old edges for every new one, slow for all pairs of brokers.
    graph: rustworkx.PyGraph[None, float] = rustworkx.PyGraph()
    graph.add_nodes_from([None] * len(overlay))
    graph.add_edges_from(list(zip(ranked[:, 0].tolist(), ranked[:, 1].tolist(), map(float, range(len(ranked))), strict=True)))
    chosen = rustworkx.minimum_spanning_edges(graph, weight_fn=float)
    return Overlay(overlay.brokers, ((overlay.ids[one], overlay.ids[other]) for one, other, _ in chosen))


def _weighted_pairs(overlay: Overlay, weights: Weights) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Pairs of positions, the smaller first, and their weights."""
    size = len(overlay)
    if isinstance(weights, Mapping):
        positions = [sorted((overlay.position(one), overlay.position(other))) for one, other in weights]
        pairs, values = np.array(positions, dtype=np.int64).reshape(-1, 2), np.array(list(weights.values()), dtype=np.float64)
    else:
        pairs = np.stack(np.triu_indices(size, 1), axis=1).astype(np.int64)
        if isinstance(weights, np.ndarray):
            if weights.shape != (size, size):
                raise OverlayError(f"weights: expected a matrix of {size} x {size}, got {' x '.join(map(str, weights.shape))}")
            values = weights[pairs[:, 0], pairs[:, 1]].astype(np.float64)
        else:
            values = np.array([weights(one, other) for one, other in itertools.combinations(overlay.ids, 2)], dtype=np.float64)
    if np.isnan(values).any():
        one, other = pairs[int(np.isnan(values).argmax())]
        raise OverlayError(f"weights: pair {overlay.ids[one]!r}-{overlay.ids[other]!r}: expected a number, got nan")
    return pairs, values
