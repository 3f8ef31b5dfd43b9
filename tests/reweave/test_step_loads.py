"""Loads on the way from one overlay to another, against publications followed one by one."""

import random
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_coordinator import random_tree

from overweave.reweave.step_loads import predict_of
from overweave.testing.planning import random_problem

sys.path.append(str(Path(__file__).parents[1] / "planning"))
from dumb_load import dumb_load


@pytest.mark.parametrize("seed", range(6))
def test_any_tree_with_any_places(seed):
    draw = random.Random(seed)
    problem = random_problem(seed, brokers=8, clients=20, fill=0.15)
    brokers = draw.sample(problem.pool.ids, 5)
    links = random_tree(draw, brokers)
    clients = {id: draw.choice(brokers) for id in problem.units.ids}
    publishers = {id: draw.choice(brokers) for id in problem.publishers.ids}
    known = {id: broker for id, broker in {**clients, **publishers}.items() if draw.random() < 0.7}
    found = predict_of(problem, {**clients, **publishers})(brokers, links, known)
    input_hz, output, _ = dumb_load(problem, SimpleNamespace(clients=clients, publishers=publishers, links=links))
    assert found.keys() == set(brokers)
    for broker in brokers:
        assert found[broker].input_hz == pytest.approx(input_hz[broker])
        assert found[broker].output_bytes_per_s == pytest.approx(output[broker])
