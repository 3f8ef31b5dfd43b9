"""Fastest broker first (THESIS 6.2.1): items in random order, each to the most resourceful broker with room. O(S log B)."""

import numpy as np

from overweave.planning.allocate.base import Allocation
from overweave.planning.filling import pack
from overweave.planning.model import Bins, Items, Model


def fbf(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
    """First fit in random order."""
    order = draw.permutation(len(items)).astype(np.int64)
    return Allocation(pack(model, items, bins, order), len(items))
