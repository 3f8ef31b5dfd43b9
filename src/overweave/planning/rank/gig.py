"""Greatest interest with group allocation (MINIMAL 5.1): a publisher with all its subscribers, then the next.

Groups go by the highest interest within them, subscribers of a group by their interest; ties at random, as for GI.
"""

import numpy as np

from overweave.planning.problem import Whole
from overweave.planning.rank.pairs import best_pairs, pair_row
from overweave.planning.similarity import Similarity


def gig(similarity: Similarity, draw: np.random.Generator) -> Whole:
    """Every client where it is first, alone or in a group; those without any interest come last."""
    seed, count = int(draw.integers(1 << 62)), len(similarity.publishes)
    pairs = best_pairs(similarity, seed)
    ranked: list[int] = []
    waiting = np.ones(count, np.bool_)
    for publisher in pairs.publisher_order().tolist():
        if waiting[publisher]:
            ranked.append(publisher)
            waiting[publisher] = False
        # Most subscribers belong to the first groups; the other groups are publishers alone.
        if not waiting[pairs.subscribers].any():
            continue
        interest, key = pair_row(similarity, seed, publisher, pairs.subscribers)
        order = np.lexsort((pairs.subscribers, key, -interest))
        group = pairs.subscribers[order[(interest[order] > 0) & waiting[pairs.subscribers[order]]]]
        ranked.extend(group.tolist())
        waiting[group] = False
    return np.concatenate([np.array(ranked, np.int64), np.flatnonzero(waiting)])
