"""What an allocator is: items and bins go in, a bin for every item comes out."""

from typing import NamedTuple, Protocol

import numpy as np

from overweave.planning.model import Bins, Items, Model
from overweave.planning.problem import Whole


class Allocation(NamedTuple):
    """The bin of every item, by position; and how many clusters they were placed as (each item its own: as many as items)."""

    bin: Whole
    clusters: int
    #: The bin of every publisher without a client, if the allocator places publishers (-1: it does not).
    publisher: Whole | None = None


class Allocator(Protocol):
    """Places every item, pinned ones where they are pinned, or raises `DoesNotFit`."""

    def __call__(self, model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
        """The allocation of ``items`` to ``bins``."""
        ...
