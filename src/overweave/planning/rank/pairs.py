"""Publisher-subscriber pairs in descending order of interest, without the list of them.

A client's place in that list is its best pair. Ties, of which there are many at interest 1, are broken at random: every pair
has a random number, drawn from a stream of its publisher, so that it is the same whenever it is looked at. O(P x S) time and
O(P + S) memory.
"""

from dataclasses import dataclass

import numpy as np

from overweave.planning.problem import Reals, Whole
from overweave.planning.similarity import Similarity


@dataclass(frozen=True, eq=False)
class BestPairs:
    """Publishers and subscribers, and the interest and the random number of the first pair of each."""

    publishers: Whole
    publisher_interest: Reals
    publisher_key: Reals
    subscribers: Whole
    subscriber_interest: Reals
    subscriber_key: Reals

    def publisher_order(self) -> Whole:
        """Publishers by their first pair."""
        return self.publishers[np.lexsort((self.publishers, self.publisher_key, -self.publisher_interest))]


def pair_row(similarity: Similarity, seed: int, publisher: int, subscribers: Whole) -> tuple[Reals, Reals]:
    """Interest and random number of the pairs of one publisher, without pairs of a client with itself."""
    interest = similarity.interest(publisher)[subscribers]
    interest[subscribers == publisher] = -1.0
    return interest, np.random.Generator(np.random.Philox(key=np.array([seed, publisher], np.uint64))).random(len(subscribers))


def best_pairs(similarity: Similarity, seed: int) -> BestPairs:
    """The first pair of every client."""
    publishers, subscribers = np.flatnonzero(similarity.publishes), np.flatnonzero(similarity.subscribes)
    best, key = np.full(len(subscribers), -1.0), np.full(len(subscribers), 1.0)
    own, own_key = np.full(len(publishers), -1.0), np.full(len(publishers), 1.0)
    for i, publisher in enumerate(publishers.tolist()):
        interest, keys = pair_row(similarity, seed, publisher, subscribers)
        if not len(interest):
            continue
        better = (interest > best) | ((interest == best) & (keys < key))
        best[better], key[better] = interest[better], keys[better]
        own[i] = interest.max()
        own_key[i] = keys[interest == own[i]].min()
    return BestPairs(publishers, own, own_key, subscribers, best, key)
