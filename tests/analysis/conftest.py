"""Random trees and rates."""

import numpy as np
import pytest


@pytest.fixture
def drawn():
    """A tree as parents (a root first), and unequal rates, of which some are nothing."""

    def draw(seed, brokers=8, classes=5, scale=1.0):
        dice = np.random.default_rng(seed)
        parents = [-1, *(int(dice.integers(child)) for child in range(1, brokers))]
        shape = (brokers, classes)
        arrival_hz = scale * dice.lognormal(-3, 2, shape) * (dice.random(shape) < 0.8)
        return parents, arrival_hz, dice.lognormal(2, 1, shape), dice.lognormal(0, 1, shape) * (dice.random(shape) < 0.7)

    return draw
