"""BIN PACKING (THESIS 6.2.2): as FBF, but the items that need most bandwidth first. O(S log S)."""

import numpy as np

from overweave.planning.allocate.base import Allocation
from overweave.planning.filling import descending, pack
from overweave.planning.model import Bins, Items, Model


def bin_packing(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:  # noqa: ARG001
    """First fit decreasing."""
    return Allocation(pack(model, items, bins, descending(items)), len(items))
