"""What a placement is: a design goes in, a node for every publisher comes out."""

from typing import Protocol

import numpy as np

from overweave.planning.flows import Flows
from overweave.planning.model import Model
from overweave.planning.problem import Whole
from overweave.planning.tree import Design


class Placement(Protocol):
    """Places every publisher; those with a host or a place in the design stay there."""

    def __call__(self, model: Model, design: Design, flows: Flows, draw: np.random.Generator) -> Whole:
        """The node of each publisher."""
        ...


def hosted(model: Model, design: Design) -> Whole:
    """The node of publishers that are the side of an item, -1 for the others."""
    if not len(design.item):
        return np.full(len(model.host), -1, np.int64)
    return np.where(model.host >= 0, design.item[np.maximum(model.host, 0)], -1)
