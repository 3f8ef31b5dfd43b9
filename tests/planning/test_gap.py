"""Algorithms against an exact solver, and the solver against everything that can be tried."""

import itertools

import numpy as np
import pytest

from overweave.planning.algorithms import ALGORITHMS
from overweave.planning.load import predict
from overweave.planning.tree import Tree
from overweave.testing.exact_plan import BROKERS_MAX, best_plan, trees_of
from overweave.testing.planning import random_problem
from overweave.testing.planning_gap import gaps


def tried(problem):
    """The fewest brokers and the least input, by trying every tree and every placement with the planner's own prediction."""
    free = [p for p, unit in enumerate(problem.publishers.unit.tolist()) if unit < 0]
    for count in range(1, len(problem.pool) + 1):
        found = []
        for brokers in itertools.combinations(range(len(problem.pool)), count):
            for links in trees_of(brokers):
                tree, nodes = Tree.of(brokers, parents_of(brokers, links))
                for places in itertools.product(range(count), repeat=len(problem.units) + len(free)):
                    unit_node, homes = nodes[list(places[: len(problem.units)])], np.zeros(len(problem.publishers), np.int64)
                    for p, unit in enumerate(problem.publishers.unit.tolist()):
                        homes[p] = unit_node[unit] if unit >= 0 else nodes[places[len(problem.units) + free.index(p)]]
                    load = predict(problem, tree, unit_node, homes)
                    if (load.output_utilisation <= 1 - problem.goals.headroom + 1e-9).all():
                        found.append(load.input_hz.sum())
        if found:
            return count, min(found)
    return None


def parents_of(brokers, links):
    """Each broker's parent, with the first broker as the root."""
    parents, queue = {brokers[0]: -1}, [brokers[0]]
    while queue:
        at = queue.pop()
        for a, b in links:
            for here, there in ((a, b), (b, a)):
                if here == at and there not in parents:
                    parents[there] = brokers.index(at)
                    queue.append(there)
    return [parents[broker] for broker in brokers]


@pytest.mark.parametrize("seed", range(8))
def test_the_solver_finds_what_trying_everything_finds(seed):
    problem = random_problem(
        seed, clients=4, brokers=3, publishers=2, bits=16, fill=0.5, publishing=seed % 2 == 0, headroom=0.2 * (seed % 3 == 0)
    )
    best, expected = best_plan(problem), tried(problem)
    if expected is None:
        assert best is None
    else:
        assert (best.brokers, best.input_hz) == (expected[0], pytest.approx(expected[1]))


def test_no_algorithm_beats_the_solver():
    found = gaps(range(20))
    assert set(found) == set(ALGORITHMS)
    assert found["cram-iou"].cases >= 15
    assert all(gap.cases == len(gap.brokers_above) + gap.failed + gap.overloaded for gap in found.values())


def test_large_pools_are_refused():
    with pytest.raises(Exception, match=f"expected at most {BROKERS_MAX} brokers, found 6"):
        best_plan(random_problem(1, brokers=6))
