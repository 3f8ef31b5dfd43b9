"""A builder that compares costs: the cheaper of two designs where brokers do not all cost the same.

Which brokers to deploy first is a guess before the overlay is known: many cheap ones forward more among themselves. So a design
by another allocator is built too, and the one that overloads fewer brokers is taken, then the cheaper one.
"""

import numpy as np

from overweave.errors import DoesNotFit
from overweave.planning.allocate.base import Allocator
from overweave.planning.broker_cost import total_cost
from overweave.planning.build.base import Builder
from overweave.planning.build.iterated import excess
from overweave.planning.model import Model
from overweave.planning.tree import Design


def cheapest(build: Builder, other: Allocator) -> Builder:
    """The builder, with the other allocator's design where that is better; without costs, nothing is compared."""

    def choose(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
        if model.problem.pool.cost is None:
            return build(model, allocate, draw)
        seed, designs, failure = int(draw.integers(1 << 62)), [], None
        for each in (allocate, other):
            try:
                designs.append(build(model, each, np.random.default_rng(seed)))
            except DoesNotFit as error:
                failure = failure or error
        if failure is not None and not designs:
            raise failure
        return min(designs, key=lambda design: _badness(model, design))

    return choose


def _badness(model: Model, design: Design) -> tuple[int, float]:
    cost = total_cost(model.problem.pool, design.tree.broker)
    return int((excess(model, design) > 0).sum()), np.inf if cost is None else cost
