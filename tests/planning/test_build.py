"""Recursive overlay construction (THESIS 6.3): its three optimisations, and what is done when a layer fails (8.2)."""

from dataclasses import replace

import numpy as np
import pytest

from overweave.errors import DoesNotFit
from overweave.planning.allocate import ALLOCATORS
from overweave.planning.build.recursive import RecursiveOptions, _attempts, _Construction
from overweave.planning.canonical import canonical
from overweave.planning.make import make_plan
from overweave.planning.model import make_model
from overweave.planning.options import Options
from overweave.planning.problem import Goals, Pool, Publishers
from overweave.planning.profiles import Profiles, assemble, packed
from overweave.testing.planning import random_problem

RATE, SIZE = 10.0, 100.0


def problem_of(wants, bandwidths, **goals):
    """Clients that want all of some publishers, 1,000 bytes/s each, and brokers with room for a number of such streams."""
    count = max(p for wanted in wants.values() for p in wanted) + 1
    rows = [(s, p) for s, wanted in enumerate(wants.values()) for p in wanted]
    publishers = Publishers(
        tuple(f"P{i}" for i in range(count)),
        np.full(count, RATE),
        np.full(count, RATE * SIZE),
        np.full(count, 64),
        np.full(count, -1),
    )
    subscription, publisher = (np.array(column, np.int64) for column in zip(*rows, strict=True))
    words = packed(np.ones((len(rows), 64), np.uint8))
    # Some output has to remain: half a stream more than what is to fit.
    bandwidth = (np.array(bandwidths) + 0.5) * RATE * SIZE
    size = len(bandwidths)
    pool = Pool(tuple(f"B{i}" for i in range(size)), bandwidth, *np.full((2, size), 1e-6), np.full(size, np.inf))
    goals = {"headroom": 0.0, **goals}
    return assemble(pool, publishers, Profiles(subscription, publisher, words), list(wants), goals=Goals(**goals))


def same_wants(count):
    return {f"c{i}": [0] for i in range(count)}


def test_one_broker_is_its_own_root():
    assert make_plan(problem_of(same_wants(3), [3, 3]), "bin-packing").brokers == ("B0",)


def test_layers_end_at_one_broker():
    """8 clients on brokers of 2: 4 brokers, joined by 2, joined by 1; the best that fits is as large as any other."""
    plan = make_plan(problem_of(same_wants(8), [2] * 8), "bin-packing", Options(take_over=False))
    assert len(plan.brokers) == 7
    assert sorted(sum(broker in link for link in plan.links) for broker in plan.brokers) == [1, 1, 1, 1, 2, 3, 3]


def test_pure_forwarders_are_left_out():
    """6.3.1: of 3 brokers below, 2 are joined by one; the third would have a parent of its own."""
    problem = problem_of(same_wants(6), [2] * 8)
    with_them = make_plan(problem, "bin-packing", Options(eliminate_forwarders=False, take_over=False))
    without = make_plan(problem, "bin-packing", Options(take_over=False))
    assert (len(with_them.brokers), len(without.brokers)) == (6, 5)


def test_parents_take_over_their_children():
    """6.3.2: a last broker with one client is not needed where its parent has room for the client itself."""
    problem = problem_of(same_wants(7), [3] * 6)
    assert len(make_plan(problem, "bin-packing", Options(take_over=False)).brokers) == 4
    plan = make_plan(problem, "bin-packing")
    assert len(plan.brokers) == 3
    assert max(load.output_utilisation for load in plan.load.values()) < 1


def test_the_best_fit_replaces_a_broker():
    """6.3.3: clients that need room for 3 leave the broker for 9 free."""
    problem = problem_of(same_wants(3), [9, 5, 3, 2])
    assert make_plan(problem, "bin-packing").brokers == ("B2",)
    assert make_plan(problem, "bin-packing", Options(best_fit=False)).brokers == ("B0",)


def test_strong_brokers_are_reserved_when_a_layer_fails():
    """8.2: clients fill the only broker that has room to join two others; reserved for that, it does."""
    problem = problem_of({f"c{i}": [i % 3] for i in range(10)}, [9, *[3] * 6])
    with pytest.raises(DoesNotFit):
        make_plan(problem, "bin-packing", Options(backtrack=False))
    assert list(_attempts(7, True))[:4] == [(0, 1.0), (1, 1.0), (2, 1.0), (4, 1.0)]
    model = make_model(canonical(problem))
    design = _Construction(model, ALLOCATORS["bin-packing"], np.random.default_rng(0), RecursiveOptions()).build(1, 1.0)
    assert design.tree.broker[0] == 0
    plan = make_plan(problem, "bin-packing")
    assert max(load.output_utilisation for load in plan.load.values()) < 1


def test_publishers_are_placed_where_only_one_broker_wants_them():
    """8.2: nothing has to come down from the root, so brokers above that have no room for it are no obstacle."""
    wants = {f"c{i}{j}": [i] for i in range(4) for j in range(3)}
    problem = problem_of(wants, [3, 3, 3, 3, 1])
    with pytest.raises(DoesNotFit):
        make_plan(problem, "cram-iou", Options(backtrack=False))
    plan = make_plan(problem, "cram-iou", Options(backtrack=False, publishers_inside=True))
    assert len(plan.brokers) == 5
    assert plan.totals.hops == 0
    for i in range(4):
        assert plan.publishers[f"P{i}"] == plan.clients[f"c{i}0"]


def test_whatever_does_not_fit_is_named():
    """Of all problems that cannot be solved, the error has the client or the broker for which there is no room."""
    found = {"client": 0, "broker": 0}
    for seed in range(60):
        problem = random_problem(seed, clients=12 + seed % 30, publishing=seed % 2 == 1, input_bound=seed % 5 == 0)
        total = problem.units.output_bytes_per_s.sum() / problem.pool.bandwidth_bytes_per_s.sum()
        # So small that deliveries alone just fit.
        largest = problem.units.output_bytes_per_s.max() / problem.pool.bandwidth_bytes_per_s.max()
        small = replace(problem.pool, bandwidth_bytes_per_s=problem.pool.bandwidth_bytes_per_s * max(total, largest) * 1.02)
        for name in ("fbf", "bin-packing", "cram-iou", "cram-xor"):
            try:
                make_plan(replace(problem, pool=small, goals=Goals(headroom=0.0)), name)
            except DoesNotFit as error:
                ids = {"client": problem.units.ids, "broker": problem.pool.ids}
                kind = next(kind for kind in ids if error.id in ids[kind])
                assert f"{kind} {error.id!r}" in str(error)
                found[kind] += 1
    assert min(found.values()) > 0, found
