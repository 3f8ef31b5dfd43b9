"""Placements that look at nothing: at the root (THESIS 6.3), at random (7.3.1), or where publishers are today."""

import numpy as np

from overweave.planning.flows import Flows
from overweave.planning.model import Model
from overweave.planning.place.base import hosted
from overweave.planning.problem import Whole
from overweave.planning.tree import Design


def root(model: Model, design: Design, flows: Flows, draw: np.random.Generator) -> Whole:  # noqa: ARG001
    """All free publishers at the root, or where the builder put them."""
    return np.maximum(design.publisher, 0)


def random(model: Model, design: Design, flows: Flows, draw: np.random.Generator) -> Whole:  # noqa: ARG001
    """Free publishers anywhere."""
    fixed = hosted(model, design)
    return np.where(fixed >= 0, fixed, draw.integers(len(design.tree), size=len(fixed)))


def stay(model: Model, design: Design, flows: Flows, draw: np.random.Generator) -> Whole:  # noqa: ARG001
    """Free publishers where they are today if that broker is in the plan, else at the root."""
    fixed, today = hosted(model, design), model.problem.today
    where = {broker: node for node, broker in enumerate(design.tree.broker.tolist())}
    at = [0] * len(fixed) if today is None else [where.get(broker, 0) for broker in today.publishers.tolist()]
    return np.where(fixed >= 0, fixed, np.array(at, np.int64))
