"""The thesis's scenarios in small (7.3): what the planner must show, with generous room."""

import pytest

from overweave.experiments.thesis_allocation.scenarios import Scenario, make_problem, saturating_bandwidth
from overweave.planning.algorithms import ALGORITHMS
from overweave.planning.bounds import brokers_min
from overweave.planning.make import make_plan
from overweave.planning.options import Options

SMALL = Scenario(publishers=20, subscriptions=60, brokers=24, bits=256)


@pytest.fixture(scope="module")
def homogeneous():
    bandwidth = saturating_bandwidth(SMALL)
    return make_problem(Scenario(publishers=20, subscriptions=60, brokers=24, bits=256, bandwidth_bytes_per_s=bandwidth))


def test_the_bandwidth_saturates_manual(homogeneous):
    assert make_plan(homogeneous, "manual").totals.output_utilisation_max == pytest.approx(0.98, abs=0.01)


def test_fewer_brokers_and_lower_rates(homogeneous):
    totals = {name: make_plan(homogeneous, name).totals for name in ALGORITHMS if not name.startswith("pairwise")}
    assert totals["cram-iou"].brokers <= totals["bin-packing"].brokers <= totals["fbf"].brokers
    assert brokers_min(homogeneous) <= totals["cram-iou"].brokers
    assert totals["cram-iou"].input_hz_mean < 0.2 * totals["manual"].input_hz_mean
    assert totals["manual-grape"].input_hz_mean == pytest.approx(totals["manual"].input_hz_mean, rel=0.05)
    # Without placement the root takes everything (7.3.4).
    assert totals["cram-iou-root"].input_hz_max == pytest.approx(20 * 70 / 60)
    assert totals["cram-iou"].input_hz_max < 0.5 * totals["cram-iou-root"].input_hz_max


@pytest.mark.parametrize("metric", ["intersect", "ios", "iou"])
def test_pruned_and_unpruned_agree(homogeneous, metric):
    plans = [make_plan(homogeneous, f"cram-{metric}", Options(search=search)).totals for search in ("poset", "exhaustive")]
    assert plans[0].brokers == plans[1].brokers
    assert plans[0].input_hz_mean == pytest.approx(plans[1].input_hz_mean, rel=0.01)


def test_every_optimisation_can_be_switched_off(homogeneous):
    usual = make_plan(homogeneous, "cram-iou").totals
    for field in ("groups", "one_to_many", "eliminate_forwarders", "take_over", "best_fit", "backtrack", "relabel"):
        totals = make_plan(homogeneous, "cram-iou", Options(**{field: False})).totals
        assert abs(totals.brokers - usual.brokers) <= 2, field
    for rule in ("literal", "no-worse"):
        assert make_plan(homogeneous, "cram-iou", Options(rule=rule)).totals.overloaded == 0


def test_headroom_is_kept_after_placement(homogeneous):
    problem = make_problem(
        Scenario(publishers=20, subscriptions=40, brokers=24, bits=256, headroom=0.25, bandwidth_bytes_per_s=20e3)
    )
    for name in ("fbf", "bin-packing", "cram-iou", "cram-xor"):
        assert make_plan(problem, name).totals.output_utilisation_max <= 0.75


def test_publishers_inside_need_no_more_brokers_and_less_traffic():
    problem = make_problem(Scenario(publishers=20, subscriptions=60, brokers=24, bits=256, bandwidth_bytes_per_s=12e3))
    outside, inside = (make_plan(problem, "cram-iou", Options(publishers_inside=flag)).totals for flag in (False, True))
    assert inside.brokers <= outside.brokers
    assert inside.input_hz_mean <= outside.input_hz_mean * 1.01


def test_heterogeneous_totals():
    """7.3.2: 4,100 and 1,025 subscriptions fit Ns i / 40."""
    assert sum(Scenario(heterogeneous=True, subscriptions=200).counts) == 4100
    assert sum(Scenario(heterogeneous=True, subscriptions=50).counts) == pytest.approx(1025, abs=5)
    problem = make_problem(Scenario(heterogeneous=True, subscriptions=50, bits=256))
    assert make_plan(problem, "cram-iou").totals.brokers <= make_plan(problem, "bin-packing").totals.brokers
