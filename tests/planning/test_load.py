"""Predicted load against publications followed one by one; costs of places against the printed algorithms 5 to 7."""

import numpy as np
import pytest
from dumb_load import bits, dumb_load

from overweave.planning.algorithms import ALGORITHMS
from overweave.planning.bounds import brokers_min
from overweave.planning.flows import flows_of
from overweave.planning.kernels.flow import distances
from overweave.planning.make import make_plan
from overweave.planning.place.cost import average_delay, total_message_rate
from overweave.planning.tree import Tree
from overweave.testing.planning import random_problem


@pytest.mark.parametrize("algorithm", ["bin-packing", "cram-iou", "manual", "automatic", "manual-grape"])
def test_prediction_equals_following_every_publication(algorithm):
    for seed in range(8):
        problem = random_problem(seed, publishing=seed % 2 == 1, brokers=14, fill=0.15, clients=30)
        plan = make_plan(problem, algorithm, seed=seed)
        input_hz, output, hops = dumb_load(problem, plan)
        for broker in plan.brokers:
            assert plan.load[broker].input_hz == pytest.approx(input_hz[broker])
            assert plan.load[broker].output_bytes_per_s == pytest.approx(output[broker])
        assert plan.totals.hops == pytest.approx(hops)
        if ALGORITHMS[algorithm].keeps_capacity:
            assert brokers_min(problem) <= len(plan.brokers)


def random_tree(seed, brokers):
    draw = np.random.default_rng(seed)
    return Tree.of(range(brokers), [-1, *(int(draw.integers(i)) for i in range(1, brokers))])[0]


def test_places_cost_what_the_printed_algorithms_say():
    for seed in range(10):
        problem, draw = random_problem(seed), np.random.default_rng(seed)
        tree = random_tree(seed, 7)
        unit_node = draw.integers(7, size=len(problem.units))
        flows = flows_of(problem, tree, unit_node)
        neighbours = {v: [] for v in range(7)}
        for v in range(1, 7):
            neighbours[v].append(int(tree.parent[v]))
            neighbours[int(tree.parent[v])].append(v)
        for p in range(len(problem.publishers)):
            vectors = dict.fromkeys(range(7), 0)
            for u in range(len(problem.units)):
                for row in problem.units.rows[problem.units.row_start[u] : problem.units.row_start[u + 1]]:
                    if problem.vectors.publisher[row] == p:
                        vectors[int(unit_node[u])] |= sum(1 << bit for bit in bits(problem.vectors.words[row]))
            expected = [total_message_rate(neighbours, vectors, v) for v in range(7)]
            assert flows.total_rates(p).tolist() == expected
            stay = draw.random(7)
            deliveries = {v: int(flows.delivered[p, v]) for v in range(7)}
            if sum(deliveries.values()):
                for v in range(7):
                    way = np.empty(7)
                    distances(tree.parent, v, stay, 0.0, way)
                    mean = float(flows.delivered[p] @ way) / flows.delivered[p].sum()
                    assert mean == pytest.approx(average_delay(neighbours, deliveries, lambda broker, _: stay[broker], v))  # noqa: B023
