"""Problems made of profiles: clients with several subscriptions, publishing sides, evidence, today's load, explanations."""

from dataclasses import replace

import numpy as np
import pytest

from overweave.errors import PlanningError
from overweave.planning.current import current_load
from overweave.planning.evidence import check_evidence, evidence_of
from overweave.planning.explain import explain
from overweave.planning.make import make_plan
from overweave.planning.problem import Goals, Pool, Publishers, Today
from overweave.planning.profiles import Profiles, assemble, packed
from overweave.testing.planning import random_problem


def two_subscriptions(**arguments):
    """One client with 0..9 and 5..14 of 20 publications, 100 bytes/s."""
    bits = np.zeros((2, 64), np.uint8)
    bits[0, :10], bits[1, 5:15] = 1, 1
    publishers = Publishers(("P1",), np.array([10.0]), np.array([100.0]), np.array([20]), np.array([-1]))
    profiles = Profiles(np.array([0, 1]), np.array([0, 0]), packed(bits))
    return assemble(Pool.equal(2, 1e4), publishers, profiles, ["s1", "s2"], ["c", "c"], **arguments)


def test_outputs_add_up_and_inputs_are_a_union():
    problem = two_subscriptions()
    assert problem.units.output_bytes_per_s.tolist() == [100.0]
    assert (problem.vectors.ones.tolist(), problem.units.row_deliveries.tolist(), problem.units.filters.tolist()) == (
        [15],
        [20],
        [2],
    )
    assert two_subscriptions(copies="client").units.output_bytes_per_s.tolist() == [75.0]
    assert two_subscriptions(correct=True).units.output_bytes_per_s.tolist() == [100.0]  # half of all bits needs no correction


def test_a_publishing_side_stays_with_its_client():
    problem = two_subscriptions(publishing=["c"])
    plan = make_plan(problem, "cram-iou")
    assert plan.publishers["P1"] == plan.clients["c"]
    assert {plan.subscribers[id] for id in ("s1", "s2")} == {plan.clients["c"]}
    assert make_plan(two_subscriptions(publishing=["other"]), "fbf").clients.keys() == {"c", "other"}


def test_evidence():
    problem = two_subscriptions()
    evidence = evidence_of(problem, np.array([5.0, 15.0]))
    assert (evidence.duration_s_max, evidence.window_bits, evidence.fill_mean) == (2.0, 64, 20 / 64)
    assert (evidence.peak_over_mean, evidence.sufficient) == (1.5, True)
    check_evidence(evidence)
    with pytest.raises(PlanningError, match=r"filled to 50% on average, found 31\.2% after 2 s"):
        check_evidence(evidence_of(problem, fill_min=0.5), fill_min=0.5)


def test_todays_load_is_that_of_a_plan_that_is_in_force():
    problem = random_problem(3, fill=0.2, brokers=12, clients=30)
    plan = make_plan(problem, "bin-packing")
    at = {id: i for i, id in enumerate(problem.pool.ids)}
    today = Today(
        np.array([at[plan.clients[id]] for id in problem.units.ids]),
        np.array([at[plan.publishers[id]] for id in problem.publishers.ids]),
        plan.links,
    )
    ids, load = current_load(replace(problem, today=today))
    assert set(ids) == set(plan.brokers)
    for id, input_hz in zip(ids, load.input_hz.tolist(), strict=True):
        assert plan.load[id].input_hz == pytest.approx(input_hz)
    with pytest.raises(PlanningError, match="expected a tree"):
        current_load(replace(problem, today=replace(today, links=today.links[1:])))


def test_explanations_name_the_choice_and_the_others():
    problem = replace(random_problem(3, fill=0.2, brokers=12, clients=30), goals=Goals(headroom=0.0))
    plan = make_plan(problem, "cram-iou")
    for id in (problem.units.ids[0], "P1"):
        found = explain(plan, problem, id)
        assert [each.broker for each in found if each.chosen] == [{**plan.clients, **plan.publishers}[id]]
        assert {each.broker for each in found} == set(plan.brokers)
    best = explain(plan, problem, "P1")[0]
    assert best.chosen or best.input_hz == explain(plan, problem, "P1")[1].input_hz
    with pytest.raises(PlanningError, match="'nobody'"):
        explain(plan, problem, "nobody")
