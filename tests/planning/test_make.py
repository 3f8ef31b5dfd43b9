"""Plans: the same for the same problem however it is written down, valid, and with goals met or named."""

import itertools
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from overweave.errors import DoesNotFit, GoalNotMet, PlanningError
from overweave.planning.algorithms import ALGORITHMS
from overweave.planning.canonical import canonical
from overweave.planning.make import make_plan
from overweave.planning.options import Options
from overweave.planning.plan import Plan
from overweave.planning.problem import Goals, Pool, Problem, Publishers, Today, Units, Vectors
from overweave.planning.profiles import Profiles, assemble, packed
from overweave.planning.relabel import assigned
from overweave.planning.validation import validate_plan
from overweave.testing.planning import random_problem


def with_goals(problem, **goals):
    return replace(problem, goals=msgspec.structs.replace(problem.goals, **goals))


def permuted(problem, seed):
    """The same problem with all its rows in another order."""
    draw = np.random.default_rng(seed)
    pool, publishers, vectors, units = problem.pool, problem.publishers, problem.vectors, problem.units
    b, p, v, u = (draw.permutation(len(each)) for each in (pool, publishers, vectors, units))
    to_p, to_v, to_u = (np.argsort(order) for order in (p, v, u))
    rows = [list(range(units.row_start[i], units.row_start[i + 1])) for i in u]
    flat = np.array(list(itertools.chain(*rows)), np.int64)
    side = publishers.unit[p]
    return Problem(
        pool.take(b),
        Publishers(
            tuple(publishers.ids[i] for i in p), publishers.rate_hz[p], publishers.bytes_per_s[p], publishers.window[p],
            np.where(side >= 0, to_u[side], -1),
        ),
        Vectors(to_p[vectors.publisher[v]], vectors.words[v], vectors.ones[v]),
        Units(
            tuple(units.ids[i] for i in u), np.cumsum([0, *map(len, rows)]), to_v[units.rows[flat]], units.row_deliveries[flat],
            units.output_bytes_per_s[u], units.filters[u], units.subscriptions, to_u[units.subscription_unit],
        ),
        None,
        problem.goals,
    )  # fmt: skip


CASES = [(seed, kind) for seed in range(6) for kind in ({}, {"publishing": True}, {"input_bound": True})]


@pytest.mark.parametrize("name", ["fbf", "bin-packing", "cram-iou", "cram-xor", "manual"])
def test_a_plan_is_a_function_of_the_problem(name):
    solved = 0
    for seed, kind in CASES:
        problem = random_problem(seed, clients=30, fill=0.3, brokers=12, **kind)
        try:
            plan = make_plan(problem, name, seed=3)
        except DoesNotFit:
            continue
        solved += 1
        assert make_plan(problem, name, seed=3).encode() == plan.encode()
        other = make_plan(permuted(problem, seed), name, seed=3)
        assert len(other.brokers) == len(plan.brokers), (seed, kind)
        assert other.totals.input_hz_mean == pytest.approx(plan.totals.input_hz_mean, rel=0.01) or name == "manual"
        faster = sevenfold_of(problem)
        sevenfold = make_plan(faster, name, seed=3)
        assert (sevenfold.clients, sevenfold.publishers, sevenfold.links) == (plan.clients, plan.publishers, plan.links)
        renamed = make_plan(with_other_names(problem), name, seed=3)
        assert renamed.clients == {f"z-{id}": f"y-{broker}" for id, broker in plan.clients.items()}
        assert renamed.publishers == {f"x-{id}": f"y-{broker}" for id, broker in plan.publishers.items()}
        assert {frozenset(link) for link in renamed.links} == {frozenset(f"y-{end}" for end in link) for link in plan.links}
    assert solved >= len(CASES) // 2


def sevenfold_of(problem):
    pool, publishers, units = problem.pool, problem.publishers, problem.units
    bandwidth = pool.bandwidth_bytes_per_s * 7
    return replace(
        problem,
        pool=replace(pool, bandwidth_bytes_per_s=bandwidth, base_s=pool.base_s / 7, slope_s=pool.slope_s / 7),
        publishers=replace(publishers, rate_hz=publishers.rate_hz * 7, bytes_per_s=publishers.bytes_per_s * 7),
        units=replace(units, output_bytes_per_s=units.output_bytes_per_s * 7),
    )


def test_the_canonical_order_does_not_depend_on_the_order_of_rows():
    for seed in range(8):
        problem = random_problem(seed, clients=25, publishing=seed % 2 == 0)
        one, other = canonical(problem), canonical(permuted(problem, seed))
        assert one.publishers.ids == other.publishers.ids
        assert (one.vectors.words == other.vectors.words).all()
        assert (one.units.rows == other.units.rows).all()
        assert (one.units.output_bytes_per_s == other.units.output_bytes_per_s).all()


def with_other_names(problem):
    return replace(
        problem,
        pool=replace(problem.pool, ids=tuple(f"y-{id}" for id in problem.pool.ids)),
        publishers=replace(problem.publishers, ids=tuple(f"x-{id}" for id in problem.publishers.ids)),
        units=replace(problem.units, ids=tuple(f"z-{id}" for id in problem.units.ids)),
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_plans_are_valid_and_round_trip(name):
    problem = random_problem(5, with_today=True, headroom=0.1, fill=0.3, brokers=10)
    plan = make_plan(problem, name)
    again = Plan.decode(plan.encode())
    assert again.encode() == plan.encode()
    validate_plan(again, problem, capacity=ALGORITHMS[name].keeps_capacity)
    if ALGORITHMS[name].keeps_capacity:
        assert max(load.output_utilisation for load in plan.load.values()) <= 0.9


def test_wrong_plans_are_named():
    problem = random_problem(5, fill=0.1, publishing=True, brokers=12)
    plan = make_plan(problem, "manual")
    client = next(iter(plan.clients))
    side = next(id for id, unit in zip(problem.publishers.ids, problem.publishers.unit, strict=True) if unit >= 0)
    elsewhere = next(id for id in plan.brokers if id != plan.publishers[side])
    wrong = {
        "exactly once": {"clients": {id: at for id, at in plan.clients.items() if id != client}},
        "not in the plan": {"clients": {**plan.clients, client: "nowhere"}},
        "not where its client is": {"publishers": {**plan.publishers, side: elsewhere}},
        "a tree": {"links": plan.links[1:]},
        "for another": {"fingerprint": "?"},
        "not in the pool": {"brokers": (*plan.brokers[1:], "B99")},
        "load": {"load": {id: msgspec.structs.replace(load, input_hz=load.input_hz + 1) for id, load in plan.load.items()}},
    }
    for text, change in wrong.items():
        with pytest.raises(PlanningError, match=text):
            validate_plan(msgspec.structs.replace(plan, **change), problem, capacity=False)
    with pytest.raises(PlanningError, match="version"):
        Plan.decode(msgspec.structs.replace(plan, version=99).encode())


def test_pins_and_exclusions_are_kept():
    problem = random_problem(7, fill=0.15, brokers=10, with_today=True)
    pins = {problem.units.ids[0]: "B9", problem.units.ids[1]: "B2", "P1": "B5"}
    for name in ("fbf", "bin-packing", "cram-iou"):
        plan = make_plan(with_goals(problem, pins=pins, exclude=("B1", "B3")), name)
        assert {id: {**plan.clients, **plan.publishers}[id] for id in pins} == pins
        assert not {"B1", "B3"} & set(plan.brokers)


IMPOSSIBLE = {
    "pins": {"pins": {"c1": "B1"}, "exclude": ("B1",)},
    "exclude": {"exclude": ("B77",)},
    "headroom": {"headroom": 1.0},
    "moves_max": {"moves_max": 0},
    "brokers_max": {"brokers_max": 1},
    "delay_s_max": {"delay_s_max": 1e-9},
}


@pytest.mark.parametrize("goal", IMPOSSIBLE)
def test_goals_that_cannot_be_met_are_named(goal):
    problem = random_problem(7, fill=0.15, brokers=14, with_today=True, clients=40)
    with pytest.raises(GoalNotMet) as caught:
        make_plan(with_goals(problem, **IMPOSSIBLE[goal]), "bin-packing")
    assert caught.value.goal == goal


def tiny(bandwidth=1000.0, brokers=2, window=64, **changes):
    publishers = Publishers(("P1",), np.array([10.0]), np.array([500.0]), np.array([window]), np.array([-1]))
    words = packed(np.ones((1, 64), np.uint8))
    arguments = {"publisher": np.array([0]), **changes}
    return assemble(
        Pool.equal(brokers, bandwidth),
        publishers,
        Profiles(np.array([0]), arguments["publisher"], words),
        ["s1"],
        goals=Goals(headroom=0.0),
    )


def test_impossible_input_is_named():
    with pytest.raises(DoesNotFit, match="client 's1'") as caught:
        tiny(bandwidth=500.0)
    assert caught.value.id == "s1"
    with pytest.raises(PlanningError, match="brokers: expected at least one"):
        tiny(brokers=0)
    with pytest.raises(PlanningError, match="expected a known publisher, found number 3"):
        tiny(publisher=np.array([3]))
    with pytest.raises(PlanningError, match="publisher 'P1': window: expected at least the 64"):
        tiny(window=10)
    with pytest.raises(PlanningError, match="algorithm: expected one of"):
        make_plan(tiny(), "nonsense")
    with pytest.raises(PlanningError, match="rule: expected one of"):
        make_plan(tiny(), "cram-iou", Options(rule="nonsense"))
    assert len(make_plan(tiny(bandwidth=501.0), "cram-iou").brokers) == 1


def test_assignment_against_all_permutations():
    for seed in range(40):
        draw = np.random.default_rng(seed)
        rows, columns = sorted(draw.integers(1, 6, size=2).tolist())
        cost = draw.integers(-9, 10, size=(rows, columns))
        best = min(sum(cost[i, j] for i, j in enumerate(chosen)) for chosen in itertools.permutations(range(columns), rows))
        found = assigned(cost)
        assert len(set(found.tolist())) == rows
        assert sum(cost[i, j] for i, j in enumerate(found.tolist())) == best


def test_relabelling_moves_the_fewest():
    """A network that is as planned already, but for the names of its brokers: nobody moves. Without, most do."""
    problem = random_problem(11, clients=40, fill=0.4, equal_brokers=True)
    plan = make_plan(problem, "cram-iou")
    assert len(plan.brokers) > 2
    other = dict(zip(plan.brokers, reversed(problem.pool.ids), strict=False))
    at = {id: i for i, id in enumerate(problem.pool.ids)}
    today = Today(
        np.array([at[other[plan.clients[id]]] for id in problem.units.ids]),
        np.array([at[other[plan.publishers[id]]] for id in problem.publishers.ids]),
        tuple((other[one], other[two]) for one, two in plan.links),
    )
    moved = replace(problem, today=today)
    assert make_plan(moved, "cram-iou", Options(relabel=False)).totals.moves > 0
    again = make_plan(moved, "cram-iou")
    assert (again.totals.moves, again.changes) == (0, ())


def test_clustering_never_needs_more_brokers():
    """Also counting the upper layers, and wherever BIN PACKING finds a plan at all."""
    compared = 0
    for seed in range(40):
        problem = random_problem(seed, clients=30, fill=0.3, brokers=12, input_bound=seed % 3 == 0, publishing=seed % 2 == 0)
        try:
            plain = make_plan(problem, "bin-packing")
        except DoesNotFit:
            continue
        compared += 1
        assert len(make_plan(problem, "cram-iou").brokers) <= len(plain.brokers), seed
    assert compared > 20
