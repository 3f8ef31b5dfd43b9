"""What a builder is: it allocates items by an allocator and joins the brokers to a tree."""

from typing import Protocol

import numpy as np

from overweave.planning.allocate.base import Allocator
from overweave.planning.model import Model
from overweave.planning.tree import Design


class Builder(Protocol):
    """Makes the design of a model, or raises `DoesNotFit`."""

    def __call__(self, model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
        """The design."""
        ...
