"""Allocation and overlay in turn, instead of a fixed load compensation factor (MINIMAL 5.4, where it is thought too costly).

The first round lets clients have all of every broker. Where forwarding over the tree then makes a broker exceed its capacity, the
share of it that is for clients shrinks by the excess, and all is allocated and joined again. Shares never grow again, so rounds
come to an end: at the first design that overloads nobody, or when some rounds have not made overloaded brokers fewer.

A broker in the middle may have to forward more than it can carry whatever its own clients are; no round helps there. Then the
design is taken that needs the fewest brokers, with what is above capacity counted as brokers that are missing.
"""

from collections.abc import Callable
from functools import partial
from typing import TypeVar

import numpy as np

from overweave.errors import DoesNotFit
from overweave.planning.allocate.base import Allocation, Allocator
from overweave.planning.build.base import Builder
from overweave.planning.load import predict
from overweave.planning.model import Bins, Items, Model, shrunk
from overweave.planning.problem import Reals
from overweave.planning.tree import Design

#: Rounds at most, and without progress.
ROUNDS, ROUNDS_WITHOUT_GAIN = 60, 20
#: The additional reduction beyond the excess, for fast convergence; and the smallest share.
_MORE, _LEFT = 0.02, 0.01


Made = TypeVar("Made")


def iterated(build: Builder) -> Builder:
    """The builder, repeated until no broker is overloaded."""

    def choose(model: Model, allocate: Allocator, draw: np.random.Generator) -> Design:
        seed = int(draw.integers(1 << 62))

        def attempt(share: Reals) -> tuple[Design, int, Reals]:
            design = build(model, partial(_reserved, allocate, share), np.random.default_rng(seed))
            return design, len(design.tree), excess(model, design)

        return in_turn(attempt, len(model.bins))

    return choose


def in_turn(attempt: Callable[[Reals], tuple[Made, int, Reals]], brokers: int) -> Made:
    """The best round; an attempt, with shares for clients, returns its number of brokers and the excess of each."""
    share, fewest, since = np.ones(brokers), brokers + 1, 0
    best, chosen = (True, np.inf), None
    for _ in range(ROUNDS):
        try:
            made, used, over = attempt(share)
        except DoesNotFit:
            if chosen is None:
                raise
            break
        overloaded = int((over > 0).sum())
        badness = overloaded > 0, used + float(over.sum())
        if chosen is None or badness < best:
            best, chosen = badness, made
        fewest, since = min(fewest, overloaded), 0 if overloaded < fewest else since + 1
        if not overloaded or since == ROUNDS_WITHOUT_GAIN:
            break
        share = less(share, over)
    assert chosen is not None
    return chosen


def less(share: Reals, over: Reals) -> Reals:
    """Shares for clients, less the excess where there is one."""
    return np.where(over > 0, np.maximum(share - over - _MORE, _LEFT), share)


def _reserved(allocate: Allocator, share: Reals, model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
    return allocate(model, items, shrunk(bins, share), draw)


def excess(model: Model, design: Design) -> Reals:
    """The excess of each bin over its capacity less headroom, as a share; 0 without excess."""
    problem = model.problem
    load = predict(problem, design.tree, design.item[: len(problem.units)], np.maximum(design.publisher, 0))
    used = np.maximum(load.input_utilisation, load.output_utilisation) / (1 - problem.goals.headroom)
    found = np.zeros(len(problem.pool))
    found[design.tree.broker] = np.maximum(used - 1, 0.0)
    return found[model.bins.broker]
