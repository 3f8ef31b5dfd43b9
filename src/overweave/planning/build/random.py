"""Random trees: over all brokers (AUTOMATIC, THESIS 7.3.1), or over those in use (the baseline of MINIMAL 6.1)."""

import numpy as np

from overweave.planning.allocate.base import Allocator
from overweave.planning.build.joining import joined
from overweave.planning.model import Model
from overweave.planning.problem import Whole
from overweave.planning.tree import Design, Tree


def random(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
    """All bins in random order, each below a random one of those before it."""
    found = allocate(model, model.items, model.bins, draw)
    parents = random_parents(len(model.bins), draw)
    tree, numbers = Tree.of(model.bins.broker.tolist(), parents.tolist())
    item = numbers[found.bin]
    publisher = np.where(model.host >= 0, item[np.maximum(model.host, 0)] if len(item) else -1, -1)
    return Design(tree, item, publisher, found.clusters)


def random_used(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
    """The brokers that the allocator uses, in random order, each below a random one of those before it."""
    found = allocate(model, model.items, model.bins, draw)
    return joined(model, found, lambda items, publishers, brokers: random_parents(brokers, draw))  # noqa: ARG005


def random_parents(count: int, draw: np.random.Generator) -> Whole:
    """A random tree of a given size, as the parent of each node (-1: root)."""
    order = draw.permutation(count)
    parents = np.full(count, -1, np.int64)
    for at in range(1, count):
        parents[order[at]] = order[draw.integers(at)]
    return parents
