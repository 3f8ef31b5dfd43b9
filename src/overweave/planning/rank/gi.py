"""Greatest interest (MINIMAL 5.1): publisher-subscriber pairs by interest, of each pair the publisher first."""

import numpy as np

from overweave.planning.problem import Whole
from overweave.planning.rank.pairs import best_pairs
from overweave.planning.similarity import Similarity


def gi(similarity: Similarity, draw: np.random.Generator) -> Whole:
    """Every client at its first pair; pairs of equal interest in random order."""
    pairs = best_pairs(similarity, int(draw.integers(1 << 62)))
    clients = np.concatenate([pairs.publishers, pairs.subscribers])
    interest = np.concatenate([pairs.publisher_interest, pairs.subscriber_interest])
    key = np.concatenate([pairs.publisher_key, pairs.subscriber_key])
    subscribes = np.arange(len(clients)) >= len(pairs.publishers)
    ranked = clients[np.lexsort((clients, subscribes, key, -interest))]
    return each_once(ranked, len(similarity.publishes))


def each_once(ranked: Whole, count: int) -> Whole:
    """Clients where they are first, then those that are nowhere.

    >>> each_once(np.array([2, 0, 2]), 4).tolist()
    [2, 0, 1, 3]
    """
    ranked = np.concatenate([ranked, np.arange(count)])
    return ranked[np.sort(np.unique(ranked, return_index=True)[1])]
