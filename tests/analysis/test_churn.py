"""The protocols themselves, with subscriptions that come and go, against the models: means of independent runs."""

import numpy as np
import pytest

from overweave.analysis.classes import Inclusion
from overweave.analysis.models import MODELS, traffic
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.drivers.sim.churn import LIFETIMES, Churn, Process, measure
from overweave.overlay.shapes import make_overlay

OVERLAY = make_overlay("random-tree", brokers=7, degree_max=3, seed=4)
CLASSES, RUNS = 5, 10
INCLUSION = Inclusion.of(CLASSES, [(1, 0), (2, 0), (3, 1), (3, 2), (4, 2)])
MEASURES = ("routing_entries", "notification_rate", "control_rate")


def scenario(protocol, lifetimes):
    """Unequal rates, classes that include each other where that matters, advertisements that come and go likewise."""
    dice = np.random.default_rng(5)
    shape = (len(OVERLAY), CLASSES)
    rates = [dice.lognormal(-1.5, 1, shape), dice.lognormal(0, 0.5, shape), dice.lognormal(-1, 1, shape)]
    if protocol == "identity-advertised":
        rates += [dice.lognormal(-2, 0.5, shape), dice.lognormal(1, 0.5, shape)]
    inclusion = INCLUSION if protocol not in ("identity", "hierarchical-simple", "flooding") else None
    churn = Churn(
        subscriptions=Process(*rates[:2]),
        publication_hz=rates[2],
        advertisements=Process(*rates[3:]) if rates[3:] else None,
        wider=inclusion.wider if inclusion else (),
        lifetimes=lifetimes,
    )
    tree = Tree.of_overlay(OVERLAY)
    rows = [OVERLAY.position(id) for id in tree.ids]
    return churn, traffic(protocol, tree, Workload(*(values[rows] for values in rates)), inclusion)


def score(protocol, lifetimes, seed=0):
    """How many standard errors the simulation is away from the model, for each measure."""
    churn, expected = scenario(protocol, lifetimes)
    runs = [
        [
            getattr(measure(OVERLAY, protocol, churn, seed + run, warm_up_s=0.5, duration_s=8, samples=25), name)
            for name in MEASURES
        ]
        for run in range(RUNS)
    ]
    error = np.std(runs, axis=0, ddof=1) / np.sqrt(RUNS)
    away = np.mean(runs, axis=0) - [getattr(expected, name) for name in MEASURES]
    assert (np.abs(away[error == 0]) < 1e-9).all()
    return away / np.where(error > 0, error, 1)


# Beyond 4.5 standard errors of 10 runs is one in a thousand, and seeds are fixed.
@pytest.mark.parametrize("protocol", MODELS)
def test_a_protocol_does_what_its_model_says(protocol):
    assert (np.abs(score(protocol, "exponential")) < 4.5).all()


@pytest.mark.parametrize("lifetimes", [name for name in LIFETIMES if name != "exponential"])
def test_only_the_mean_of_lifetimes_matters(lifetimes):
    assert (np.abs(score("identity", lifetimes)) < 4.5).all()


def test_a_wrong_model_is_caught():
    """Simple routing is not what identity's model says: the check has power."""
    churn, _ = scenario("hierarchical-simple", "exponential")
    expected = scenario("identity", "exponential")[1].control_rate
    runs = [measure(OVERLAY, "hierarchical-simple", churn, run, warm_up_s=0.5, duration_s=6).control_rate for run in range(5)]
    assert (np.mean(runs) - expected) / (np.std(runs, ddof=1) / np.sqrt(5)) > 5


@pytest.mark.parametrize("name", LIFETIMES)
def test_lives_and_rests_of_lives_fit_together(name):
    """The rest of a life that is met at any moment has the density (1 - F) / mean."""
    dice = np.random.default_rng(1)
    whole, rest = (part(dice, 400_000) for part in LIFETIMES[name])
    for time in (0.2, 0.7, 0.99, 3.0, 10.0):
        # The chance that less than ``time`` is left is the mean of min(life, time), as lives have mean 1.
        assert (rest <= time).mean() == pytest.approx(np.minimum(whole, time).mean(), abs=0.01)


@pytest.mark.parametrize("protocol", ["covering", "covering-peer"])
def test_covered_classes_are_told_anew_when_the_last_wider_one_goes(protocol):
    """Two brokers and two classes, one in the other, many changes: here every term of the control rate shows."""
    chain, wider = make_overlay("chain", brokers=2), Inclusion.of(2, [(1, 0)])
    rates = np.array([[0.5, 1.0], [0.7, 1.5]]), np.ones((2, 2)), np.zeros((2, 2))
    churn = Churn(subscriptions=Process(*rates[:2]), publication_hz=rates[2], wider=wider.wider)
    expected = traffic(protocol, Tree.of_overlay(chain), Workload(*rates), wider)
    runs = [measure(chain, protocol, churn, run, warm_up_s=1, duration_s=60) for run in range(10)]
    for name in ("control_rate", "routing_entries"):
        values = [getattr(run, name) for run in runs]
        error = np.std(values, ddof=1) / np.sqrt(len(runs))
        assert abs(np.mean(values) - getattr(expected, name)) < 4 * error < 0.2 * np.mean(values)


def test_wide_classes_are_told_towards_advertisements_of_narrow_ones():
    """Two brokers: subscriptions of the wide class at one, advertisements of the narrow class alone at the other."""
    chain, wider = make_overlay("chain", brokers=2), Inclusion.of(2, [(1, 0)])
    rates = np.array([[0.0, 0.0], [1.0, 0.0]]), np.ones((2, 2)), np.array([[0.0, 1.0], [0.0, 0.0]])
    advertising = np.array([[0.0, 0.8], [0.0, 0.0]]), np.ones((2, 2))
    churn = Churn(
        subscriptions=Process(*rates[:2]), publication_hz=rates[2], advertisements=Process(*advertising), wider=wider.wider
    )
    expected = traffic("identity-advertised", Tree.of_overlay(chain), Workload(*rates, *advertising), wider)
    assert expected.routing_entries == pytest.approx((1 - np.exp(-1)) * (1 - np.exp(-0.8)))
    runs = [measure(chain, "identity-advertised", churn, run, warm_up_s=1, duration_s=60) for run in range(10)]
    for name in MEASURES:
        values = [getattr(run, name) for run in runs]
        assert abs(np.mean(values) - getattr(expected, name)) < 4.5 * np.std(values, ddof=1) / np.sqrt(len(runs))
