"""Designs of the brokers that an allocator has used, joined by a tree over these alone."""

from collections.abc import Callable

import numpy as np

from overweave.planning.allocate.base import Allocation
from overweave.planning.model import Model
from overweave.planning.problem import Whole
from overweave.planning.tree import Design, Tree

#: The parent of each of some brokers, -1 for the root, from the number of the broker of every item and of every publisher.
Joining = Callable[[Whole, Whole, int], Whole]


def joined(model: Model, found: Allocation, join: Joining) -> Design:
    """The design; publishers that the allocator has not placed stay where their hosts are, or have no place yet."""
    hosts = np.where(model.host >= 0, found.bin[np.maximum(model.host, 0)] if len(found.bin) else -1, -1)
    at = hosts if found.publisher is None else np.where(model.host >= 0, hosts, found.publisher)
    used = np.unique(np.concatenate([found.bin, at[at >= 0], [0] if not len(found.bin) and not (at >= 0).any() else []]))
    used = used.astype(np.int64)
    items = np.searchsorted(used, found.bin)
    publishers = np.where(at >= 0, np.searchsorted(used, at), -1)
    parents = join(items, publishers, len(used))
    tree, numbers = Tree.of(model.bins.broker[used].tolist(), parents.tolist())
    placed = np.where(publishers >= 0, numbers[np.maximum(publishers, 0)], -1)
    return Design(tree, numbers[items] if len(items) else items, placed, found.clusters)
