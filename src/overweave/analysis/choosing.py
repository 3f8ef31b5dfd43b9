"""Which routing is cheapest for a workload, and where that changes with the number of subscriptions (STOCH 4.2, figure 7).

What is compared is what each saves against flooding: where almost everything is sent anyway, all send almost the same.
"""

import itertools
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np

from overweave.analysis.classes import Inclusion
from overweave.analysis.models import traffic
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload

#: The range of the total number of subscriptions, and the points per decade.
SUBSCRIPTIONS_MIN, SUBSCRIPTIONS_MAX = 1.0, 1e8
POINTS_PER_DECADE = 20
#: The relative precision of a break-even point.
PRECISION = 1e-5


class Flip(NamedTuple):
    """From ``subscriptions`` on, ``then`` is cheaper than ``before``."""

    subscriptions: float
    before: str
    then: str


class Choice(NamedTuple):
    """Messages per second of each protocol, the cheapest, where another becomes the cheapest, and where each meets flooding."""

    message_rates: dict[str, float]
    cheapest: str
    flips: list[Flip]
    break_even: dict[str, list[float]]


def choose(tree: Tree, workload: Workload, protocols: Sequence[str], inclusion: Inclusion | None = None) -> Choice:
    """Compare ``protocols``; of equal ones the first is chosen. Flips are those of the same workload, only larger or smaller.

    >>> from overweave.overlay.shapes import make_overlay
    >>> tree = Tree.of_overlay(make_overlay("level-limited", width=8))
    >>> choice = choose(tree, Workload.uniform(127, 1000, 1000, 60, 32), ("flooding", "identity"))
    >>> choice.cheapest, [(round(flip.subscriptions, -2), flip.then) for flip in choice.flips]
    ('identity', [(101000.0, 'flooding')])
    """
    present = workload.subscriptions

    @cache
    def saved(protocol: str, subscriptions: float) -> float:
        return traffic(protocol, tree, workload.scaled(subscriptions / present), inclusion).saved_rate

    now = {protocol: traffic(protocol, tree, workload, inclusion) for protocol in protocols}
    flips: list[Flip] = []
    break_even: dict[str, list[float]] = {}
    if present > 0:
        flips = [Flip(*each) for each in _changes(lambda n: max(protocols, key=lambda protocol: saved(protocol, n)))]
        for protocol in protocols:
            if protocol != "flooding":
                signs = _changes(lambda n, protocol=protocol: str(saved(protocol, n) > 0))  # type: ignore[misc]
                break_even[protocol] = [at for at, _, _ in signs]
    rates = {protocol: found.message_rate for protocol, found in now.items()}
    return Choice(rates, max(now, key=lambda protocol: now[protocol].saved_rate), flips, break_even)


def _changes(state: Callable[[float], str]) -> list[tuple[float, str, str]]:
    """Where ``state`` changes along the numbers of subscriptions; between two neighbouring points it is halved."""
    decades = np.log10(SUBSCRIPTIONS_MAX / SUBSCRIPTIONS_MIN)
    points = np.geomspace(SUBSCRIPTIONS_MIN, SUBSCRIPTIONS_MAX, int(decades * POINTS_PER_DECADE) + 1).tolist()
    found, here = [], state(points[0])
    for low, high in itertools.pairwise(points):
        while state(high) != here:
            left, right = low, high
            while right / left > 1 + PRECISION:
                middle = float(np.sqrt(left * right))
                left, right = (middle, right) if state(middle) == here else (left, middle)
            found.append((right, here, state(right)))
            low, here = right, state(right)
    return found
