"""Loads on the way from one overlay to another, against publications followed one by one."""

import random
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_coordinator import random_tree

from overweave.reweave.situation import Move
from overweave.reweave.step_loads import PREFIXES_MAX, ProfileModel
from overweave.reweave.target import utilisation_of
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
    found = ProfileModel(problem, {**clients, **publishers}).load(brokers, links, known)
    input_hz, output, _ = dumb_load(problem, SimpleNamespace(clients=clients, publishers=publishers, links=links))
    assert found.keys() == set(brokers)
    for broker in brokers:
        assert found[broker].input_hz == pytest.approx(input_hz[broker])
        assert found[broker].output_bytes_per_s == pytest.approx(output[broker])


@pytest.mark.parametrize("seed", range(8))
def test_the_peak_after_each_move_is_that_of_the_load_with_the_clients_there(seed):
    draw = random.Random(seed)
    problem = random_problem(seed, brokers=8, clients=25, fill=0.15)
    brokers = draw.sample(problem.pool.ids, 6)
    links, everyone = random_tree(draw, brokers), sorted({*problem.units.ids, *problem.publishers.ids})
    places = {id: draw.choice(brokers) for id in everyone}
    moves = [Move(id, places[id], draw.choice(brokers)) for id in draw.sample(everyone, 18)]
    model = ProfileModel(problem, {})
    found = model.peaks(brokers, links, places, moves)
    assert [each.moves for each in found] == list(range(1, 19))
    for move, peak in zip(moves, found, strict=True):
        places[move.client] = move.to
        shares = {id: utilisation_of(load) for id, load in model.load(brokers, links, places).items()}
        assert peak.utilisation == pytest.approx(max(shares.values()))
        assert shares[peak.broker] == pytest.approx(peak.utilisation)


def test_hundreds_of_moves_take_less_than_a_second():
    draw = random.Random(1)
    problem = random_problem(1, brokers=12, clients=600, publishers=40, bits=1280, fill=0.15)
    brokers, links = problem.pool.ids, random_tree(draw, problem.pool.ids)
    places = {id: draw.choice(brokers) for id in problem.units.ids}
    moves = [Move(id, places[id], draw.choice(brokers)) for id in problem.units.ids]
    model = ProfileModel(problem, {})
    begin_s = time.process_time()
    found = model.peaks(brokers, links, places, moves[:400])
    assert time.process_time() - begin_s < 1.0
    assert [each.moves for each in found] == list(range(1, 401))
    assert len(moves) > PREFIXES_MAX
    found = model.peaks(brokers, links, places, moves)
    assert [each.moves for each in found] == list(range(2, len(moves) + 1, 2))
