"""Allocation and overlay in turn, instead of a fixed load compensation factor (MINIMAL 5.4, where it is thought too costly).

The first round lets clients have all of every broker. Where forwarding over the tree then makes a broker exceed its capacity, the
share of it that is for clients shrinks by the excess, and all is allocated and joined anew. Shares never grow again, so rounds
come to an end: at the first design that overloads nobody, or with the one that overloads the fewest.
"""

from functools import partial

import numpy as np

from overweave.errors import DoesNotFit
from overweave.planning.allocate.base import Allocation, Allocator
from overweave.planning.build.base import Builder
from overweave.planning.load import predict
from overweave.planning.model import Bins, Items, Model, shrunk
from overweave.planning.problem import Reals
from overweave.planning.tree import Design

#: Rounds at most.
ROUNDS = 40
#: What is taken off beyond the excess, so that rounds do not creep; and what is left at least.
_MORE, _LEFT = 0.02, 0.01


def iterated(build: Builder, rounds: int = ROUNDS) -> Builder:
    """The builder, repeated until nobody is overloaded."""

    def choose(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
        seed, share = int(draw.integers(1 << 62)), np.ones(len(model.bins))
        best: tuple[int, int, Design] | None = None
        for _ in range(rounds):
            try:
                design = build(model, partial(_reserved, allocate, share), np.random.default_rng(seed))
            except DoesNotFit:
                if best is None:
                    raise
                break
            over = excess(model, design)
            overloaded = int((over > 0).sum())
            if best is None or (overloaded, len(design.tree)) < best[:2]:
                best = overloaded, len(design.tree), design
            if not overloaded:
                break
            share = np.where(over > 0, np.maximum(share - over - _MORE, _LEFT), share)
        assert best is not None
        return best[2]

    return choose


def _reserved(allocate: Allocator, share: Reals, model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
    return allocate(model, items, shrunk(bins, share), draw)


def excess(model: Model, design: Design) -> Reals:
    """By how much of its capacity, less headroom, each bin is above it; 0 for those that are not."""
    problem = model.problem
    load = predict(problem, design.tree, design.item[: len(problem.units)], np.maximum(design.publisher, 0))
    used = np.maximum(load.input_utilisation, load.output_utilisation) / (1 - problem.goals.headroom)
    found = np.zeros(len(problem.pool))
    found[design.tree.broker] = np.maximum(used - 1, 0.0)
    return found[model.bins.broker]
