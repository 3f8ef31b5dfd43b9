"""Which routing is cheapest: against trying every number of subscriptions on a fine grid."""

import numpy as np
import pytest

from overweave.analysis.choosing import choose
from overweave.analysis.classes import Inclusion
from overweave.analysis.models import traffic
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.overlay.shapes import make_overlay

PROTOCOLS = ("flooding", "hierarchical-simple", "identity", "identity-peer")


@pytest.mark.parametrize("rate_hz", [1.0, 20.0, 400.0])
def test_flips_are_where_the_cheapest_changes(rate_hz):
    tree = Tree.of_overlay(make_overlay("level-limited", width=2, brokers=9))
    workload = Workload.uniform(9, 20, 500, 60, rate_hz)
    found = choose(tree, workload, PROTOCOLS)

    def cheapest(subscriptions):
        scaled = Workload.uniform(9, 20, subscriptions, 60, rate_hz)
        return min(PROTOCOLS, key=lambda protocol: traffic(protocol, tree, scaled).message_rate)

    assert found.cheapest == cheapest(500)
    grid = [*np.geomspace(1, 3e3, 150), *(flip.subscriptions * side for flip in found.flips for side in (0.999, 1.001))]
    for subscriptions in grid:
        if subscriptions > 3e3:
            continue  # beyond that differences are smaller than the digits of what this oracle compares
        passed = [flip for flip in found.flips if flip.subscriptions <= subscriptions]
        now = passed[-1].then if passed else found.flips[0].before if found.flips else found.cheapest
        assert now == cheapest(subscriptions), subscriptions


def test_nothing_flips_because_of_rounding():
    tree = Tree.of_overlay(make_overlay("level-limited", width=8))
    flips = choose(tree, Workload.uniform(127, 1000, 1000, 60, 32), PROTOCOLS).flips
    assert flips[-1].then == "flooding"
    assert flips[-1].subscriptions == pytest.approx(101_000, rel=0.01)


def test_what_is_saved_is_flooding_minus_everything():
    tree = Tree.of_overlay(make_overlay("random-tree", brokers=8, degree_max=3, seed=1))
    dice = np.random.default_rng(3)
    workload = Workload(*(dice.lognormal(0, 1, (8, 4)) for _ in range(3)))
    inclusion = Inclusion.of(4, [(1, 0), (2, 1)])
    flooding = traffic("flooding", tree, workload).message_rate
    for protocol in (*PROTOCOLS, "covering", "covering-peer", "simple", "identity-advertised"):
        found = traffic(protocol, tree, workload, inclusion)
        assert found.saved_rate == pytest.approx(flooding - found.message_rate)


def test_without_subscriptions_there_is_nothing_to_scale():
    tree = Tree.of_overlay(make_overlay("star", brokers=3))
    found = choose(tree, Workload.uniform(3, 2, 0, 60, 10), PROTOCOLS)
    assert (found.cheapest, found.flips) == ("identity-peer", [])
