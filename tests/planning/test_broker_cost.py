"""Brokers that cost differently: who is deployed first, and who gives way to a cheaper one."""

from dataclasses import replace

import numpy as np
import pytest

from overweave.errors import PlanningError
from overweave.planning.box_design import design_boxes
from overweave.planning.box_similarity import BoxClients, BoxSimilarity
from overweave.planning.boxes import Boxes
from overweave.planning.broker_cost import deployment_order
from overweave.planning.make import make_plan
from overweave.testing.planning import random_problem


def some_clients(seed, count=40):
    draw = np.random.default_rng(seed)
    lo = draw.random((count, 2))
    hi = lo + draw.random((count, 2))
    few = count // 4
    ads, subs = Boxes(lo[:few], hi[:few], np.arange(few)), Boxes(lo[few:], hi[few:], np.arange(few, count))
    return BoxClients(tuple(f"c{i}" for i in range(count)), ads, np.full(few, 5.0), subs)


def cost_of(design, capacity, cost):
    return sum(cost[int(id[1:]) - 1] for id in design.brokers)


def test_equal_costs_are_the_order_of_the_text():
    draw = np.random.default_rng(0)
    capacity = draw.choice([10.0, 20.0, 40.0], size=30)
    by_capacity = np.argsort(-capacity, kind="stable").tolist()
    assert deployment_order(capacity, np.ones(30)).tolist() == by_capacity
    assert deployment_order(capacity, capacity * 3).tolist() == by_capacity, "in proportion, the largest first as well"
    assert deployment_order(capacity * 7, np.full(30, 0.1)).tolist() == by_capacity


@pytest.mark.parametrize("ranking", ["gli", "gi", "gig"])
def test_a_plan_by_cost_is_cheaper(ranking):
    """Large brokers cost more than their share: by capacity all of them are used, by cost as few as needed."""
    capacity = np.repeat([120.0, 60.0], [20, 60])
    cost = np.repeat([5.0, 1.0], [20, 60])
    for seed in range(4):
        clients = some_clients(seed)
        plain = design_boxes(clients, ranking=ranking, capacity_hz=capacity)
        cheap = design_boxes(clients, ranking=ranking, capacity_hz=capacity, cost=cost)
        assert cost_of(cheap, capacity, cost) < cost_of(plain, capacity, cost)
        check_loads(clients, cheap, capacity)


def check_loads(clients, design, capacity):
    at = np.array([int(id[1:]) - 1 for id in design.brokers])
    similarity = BoxSimilarity(clients)
    alone = [np.flatnonzero(design.home == i) for i in range(len(at))]
    over = design.load_hz >= 0.75 * capacity[at]
    assert all(len(alone[i]) == 1 for i in np.flatnonzero(over)), "only who is too big for any broker"
    assert len(design.home) == len(similarity.impact_hz)


def test_a_broker_gives_way_to_a_cheaper_one():
    """One subscriber of 3 messages: the best broker for its cost is too large for it, a dear small one is still cheaper."""
    box = np.zeros((1, 1)), np.ones((1, 1))
    clients = BoxClients(("P", "s"), Boxes(*box, np.array([0])), np.array([3.0]), Boxes(*box, np.array([1])))
    capacity, cost = np.array([100.0, 8.0, 2.0]), np.array([10.0, 2.0, 0.5])
    assert deployment_order(capacity, cost).tolist() == [0, 1, 2]
    assert design_boxes(clients, capacity_hz=capacity, cost=cost).brokers == ("B2",)
    assert design_boxes(clients, capacity_hz=capacity).brokers == ("B1",)


def test_plans_say_what_they_cost():
    cheaper = 0
    for seed in range(5):
        problem = random_problem(seed, clients=60, fill=0.1, brokers=40, publishers=6)
        plain = make_plan(problem, "minimal-gig")
        assert plain.totals.cost is None
        bandwidth = problem.pool.bandwidth_bytes_per_s
        steep = np.where(bandwidth == bandwidth.max(), 9.0, 1.0)
        plan = make_plan(replace(problem, pool=replace(problem.pool, cost=steep)), "minimal-gig")
        before, after = (sum(steep[problem.pool.ids.index(id)] for id in each.brokers) for each in (plain, plan))
        assert plan.totals.cost == after <= before
        assert plan.totals.overloaded == 0
        cheaper += after < before
    assert cheaper > 0
    with pytest.raises(PlanningError, match="broker 'B1': cost: expected a number from 0 on"):
        make_plan(replace(problem, pool=replace(problem.pool, cost=-steep)), "minimal-gig")
