"""DT-Baldoni (MINIMAL 6.1): a random tree, rewired broker by broker in favour of similar zones of interest.

A broker looks at all that are not its neighbours. Of those whose similarity is greater than the least in the cycle that a link
to them would close, the most similar becomes its neighbour, and the least similar link of the cycle goes. This is repeated for
all brokers until a round changes nothing, or for a number of rounds. The text's similarity is asymmetric and need not
converge; here it is the product of both directions, which converges because every exchange adds to the sum of the tree.
"""

import numpy as np

from overweave.planning.allocate.base import Allocator
from overweave.planning.build.joining import joined
from overweave.planning.build.random import random_parents
from overweave.planning.kernels.rewire import rewire
from overweave.planning.model import Model
from overweave.planning.model_similarity import homes, similarity_of
from overweave.planning.problem import Reals, Whole
from overweave.planning.similarity import BrokerRow
from overweave.planning.tree import Design

#: Rounds at most; a few brokers still change places in the last of them on large overlays.
ROUNDS = 100
#: Rows of similarity are kept up to this many values, 256 MB.
_KEPT_MAX = 1 << 25


def baldoni(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
    """The brokers that the allocator uses, joined by their zones of interest."""
    similarity = similarity_of(model)
    found = allocate(model, model.items, model.bins, draw)

    def join(items: Whole, publishers: Whole, brokers: int) -> Whole:
        return rewired(brokers, similarity.zones(homes(model, items, publishers), brokers), draw)

    return joined(model, found, join)


def rewired(brokers: int, row: BrokerRow, draw: np.random.Generator, rounds: int = ROUNDS) -> Whole:
    """The parents of the rewired tree (-1: root)."""
    parent = random_parents(brokers, draw)
    kept: dict[int, Reals] = {}

    def known(broker: int) -> Reals:
        if broker in kept:
            return kept[broker]
        found = row(broker)
        if (len(kept) + 1) * brokers <= _KEPT_MAX:
            kept[broker] = found
        return found

    weight = np.array([known(i)[above] if above >= 0 else 0.0 for i, above in enumerate(parent.tolist())])
    least, path = np.empty(brokers), np.empty(brokers, np.int64)
    for _ in range(rounds):
        changed = False
        for broker in range(brokers):
            changed |= bool(rewire(broker, known(broker), parent, weight, least, path))
        if not changed:
            break
    return parent
