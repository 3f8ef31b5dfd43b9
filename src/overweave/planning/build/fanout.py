"""The overlay of MANUAL (THESIS 7.3.1): all brokers in a tree of fan-out 2, the most resourceful on top."""

import numpy as np

from overweave.planning.allocate.base import Allocator
from overweave.planning.model import Model
from overweave.planning.tree import Design, Tree

FANOUT = 2


def fanout(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
    """All bins, in their order; the one at i is below that at (i - 1) / 2."""
    found = allocate(model, model.items, model.bins, draw)
    parents = [(i - 1) // FANOUT if i else -1 for i in range(len(model.bins))]
    tree, numbers = Tree.of(model.bins.broker.tolist(), parents)
    item = numbers[found.bin]
    publisher = np.where(model.host >= 0, item[np.maximum(model.host, 0)] if len(item) else -1, -1)
    return Design(tree, item, publisher, found.clusters)
