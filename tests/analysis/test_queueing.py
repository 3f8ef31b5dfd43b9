"""Waiting at brokers: against a single queue simulated by Lindley's recursion, and against the simulator."""

import numpy as np
import pytest

from overweave.analysis.models import traffic
from overweave.analysis.queueing import Service, _station, _uplink, load
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.drivers.sim.churn import Churn, Process, measure_load
from overweave.drivers.sim.costs import Costs
from overweave.errors import InvalidInput
from overweave.overlay.shapes import make_overlay


def queue(rate_hz, service_s):
    """The mean wait in a queue with Poisson arrivals, customer by customer."""
    gaps_s = np.random.default_rng(1).exponential(1 / rate_hz, len(service_s))
    # Lindley: a wait is what is left of the walk of service minus gaps above its lowest point.
    walk = np.concatenate([[0.0], np.cumsum(service_s[:-1] - gaps_s[1:])])
    return float(np.mean(walk - np.minimum.accumulate(walk)))


@pytest.mark.parametrize("rate_hz", [0.2, 0.6])
def test_a_station_waits_like_a_queue(rate_hz):
    services_s = np.random.default_rng(2).uniform(0.5, 1.5, 400_000)
    utilisation, stay_s = _station(np.array([rate_hz]), np.array([1.0]), np.array([1 + 1 / 12]))
    assert utilisation[0] == rate_hz
    assert stay_s[0] - 1 == pytest.approx(queue(rate_hz, services_s), rel=0.03)


def test_messages_of_two_sizes_share_the_uplink():
    service = Service(output_bandwidth_bytes_per_s=100, publication_bytes=200, control_bytes=50)
    utilisation, stay_s = _uplink(np.array([0.2]), np.array([0.4]), service)
    services_s = np.where(np.random.default_rng(3).random(400_000) < 1 / 3, 2.0, 0.5)
    assert utilisation[0] == pytest.approx(0.6)
    assert stay_s[0] - 2.0 == pytest.approx(queue(0.6, services_s), rel=0.03)


def test_what_is_overloaded_waits_for_ever():
    tree = Tree.of_overlay(make_overlay("chain", brokers=2))
    workload = Workload.uniform(2, 1, 10, 60, 100)
    found = load(tree, workload, traffic("identity", tree, workload), Service(matching_delay_base_s=0.02))
    assert (found.input_utilisation > 1).all()
    assert np.isinf(found.matching_s).all()
    assert found.delivery_s == np.inf


def test_nothing_published_takes_no_time():
    tree = Tree.of_overlay(make_overlay("chain", brokers=2))
    workload = Workload.uniform(2, 1, 10, 60, 0)
    found = load(tree, workload, traffic("identity", tree, workload), Service())
    assert found.delivery_s is None
    assert not found.input_utilisation.any()


@pytest.mark.parametrize(("name", "value"), [("output_bandwidth_bytes_per_s", 0), ("link_delay_s", -1)])
def test_costs_that_cannot_be_are_named(name, value):
    with pytest.raises(InvalidInput, match=f"^{name}: expected a finite number"):
        Service(**{name: value})


@pytest.mark.parametrize("protocol", ["identity", "simple"])
def test_the_simulator_agrees(protocol):
    """Utilisation, and the delay of deliveries when brokers wait for their engine alone."""
    overlay = make_overlay("random-tree", brokers=5, degree_max=3, seed=4)
    tree = Tree.of_overlay(overlay)
    rows = [overlay.position(id) for id in tree.ids]
    dice = np.random.default_rng(2)
    arrivals, lifetimes, rates = dice.lognormal(-1, 0.5, (5, 3)), dice.lognormal(0, 0.5, (5, 3)), dice.lognormal(0.5, 0.5, (5, 3))
    workload = Workload(arrivals[rows], lifetimes[rows], rates[rows])
    costs = Costs(link_delay_s=0.001, matching_delay_base_s=0.02, matching_delay_per_subscription_s=2e-4)
    expected = load(tree, workload, traffic(protocol, tree, workload), Service(0.02, 2e-4, 1e15, 0.001))
    churn = Churn(subscriptions=Process(arrivals, lifetimes), publication_hz=rates)
    runs = [measure_load(overlay, protocol, churn, seed, costs, warm_up_s=1, duration_s=20) for seed in range(8)]
    utilisation = np.array([run.input_utilisation for run in runs])[:, rows]
    away = utilisation.mean(axis=0) - expected.input_utilisation
    assert (np.abs(away) < 5 * utilisation.std(axis=0, ddof=1) / np.sqrt(len(runs))).all()
    assert np.abs(away).max() < 0.05
    assert np.mean([run.delivery_s for run in runs]) == pytest.approx(expected.delivery_s, rel=0.12)
    assert 0.3 < expected.input_utilisation.max() < 0.8, "else waiting does not show"
