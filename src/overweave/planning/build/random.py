"""The overlay of AUTOMATIC (THESIS 7.3.1): all brokers in a random tree."""

import numpy as np

from overweave.planning.allocate.base import Allocator
from overweave.planning.model import Model
from overweave.planning.tree import Design, Tree


def random(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
    """All bins in random order, each below a random one of those before it."""
    found = allocate(model, model.items, model.bins, draw)
    order = draw.permutation(len(model.bins))
    parents = np.full(len(order), -1, np.int64)
    for at in range(1, len(order)):
        parents[order[at]] = order[draw.integers(at)]
    tree, numbers = Tree.of(model.bins.broker.tolist(), parents.tolist())
    item = numbers[found.bin]
    publisher = np.where(model.host >= 0, item[np.maximum(model.host, 0)] if len(item) else -1, -1)
    return Design(tree, item, publisher, found.clusters)
