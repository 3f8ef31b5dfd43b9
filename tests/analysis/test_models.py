"""The models of all protocols: against equations 1 to 14, against each other, and against what must hold."""

from dataclasses import replace

import numpy as np
import pytest

from overweave.analysis.classes import Inclusion
from overweave.analysis.hierarchical import analyse
from overweave.analysis.models import MODELS, traffic
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.errors import InvalidInput
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


@pytest.fixture
def case(drawn):
    def make(seed, **options):
        parents, *rates = drawn(seed, **options)
        tree = Tree.of_parents({f"B{place}": None if parent < 0 else f"B{parent}" for place, parent in enumerate(parents)})
        rows = [int(id[1:]) for id in tree.ids]
        return tree, Workload(*(values[rows] for values in rates))

    return make


def test_every_model_is_one_of_a_protocol():
    assert set(MODELS) <= set(PROTOCOLS)


@pytest.mark.parametrize("seed", range(5))
def test_hierarchical_models_are_the_equations(case, seed):
    tree, workload = case(seed)
    totals = analyse(tree, workload).totals
    identity, simple, flooding = (traffic(name, tree, workload) for name in ("identity", "hierarchical-simple", "flooding"))
    assert np.isclose(identity.routing_entries, totals.routing_entries, rtol=1e-12)
    assert np.isclose(identity.notification_rate, totals.notification_rate, rtol=1e-12)
    assert np.isclose(simple.notification_rate, totals.notification_rate, rtol=1e-12)
    assert np.isclose(identity.control_rate, totals.control_rate, rtol=1e-12)
    assert np.isclose(simple.control_rate, totals.control_rate_simple, rtol=1e-12)
    assert (flooding.notification_rate, flooding.control_rate) == (pytest.approx(totals.flooding_rate), 0)


@pytest.mark.parametrize("seed", range(5))
def test_covering_of_classes_without_inclusion_is_identity(case, seed):
    tree, workload = case(seed)
    for one, other in (("covering", "identity"), ("covering-peer", "identity-peer")):
        a, b = traffic(one, tree, workload), traffic(other, tree, workload)
        assert all(np.allclose(getattr(a, name), values) for name, values in vars(b).items())


def test_a_peer_to_peer_network_does_not_care_who_is_the_root():
    arrivals = np.array([[1e-3], [2.0], [0.5], [1.0], [0.0]])
    one = Tree.of_parents({"A": None, "B": "A", "C": "A", "D": "C", "E": "D"})
    other = Tree.of_parents({"D": None, "C": "D", "E": "D", "A": "C", "B": "A"})
    for protocol in ("simple", "identity-peer", "identity-advertised", "flooding"):
        totals = []
        for tree in (one, other):
            rates = arrivals[["ABCDE".index(id) for id in tree.ids]]
            found = traffic(protocol, tree, Workload(rates, np.full((5, 1), 0.7), 3 * rates[:, ::-1]))
            totals.append((found.routing_entries, found.notification_rate, found.control_rate))
        assert totals[0] == pytest.approx(totals[1], rel=1e-12)


def test_the_widest_class_hides_all_others_when_it_is_always_wanted():
    tree = Tree.of_overlay(make_overlay("chain", brokers=2))
    rates = np.array([[0.0] * 3, [5e3, 1.0, 1.0]])
    found = traffic("covering", tree, Workload(rates, np.ones((2, 3)), np.ones((2, 3))), Inclusion.of(3, [(1, 0), (2, 1)]))
    assert found.entries_up.tolist() == [0, 1]
    assert found.control_rate == 0
    # Subscribers of the first class get what is published of any.
    assert found.publications_down.tolist() == [0, 3]


def test_without_advertisements_nothing_is_told_and_with_standing_ones_all_is():
    tree = Tree.of_overlay(make_overlay("chain", brokers=3))
    rates, ones = np.full((3, 2), 0.5), np.ones((3, 2))
    silent = traffic("identity-advertised", tree, Workload(rates, ones, 0 * ones))
    assert (silent.routing_entries, silent.control_rate, silent.notification_rate) == (0, 0, 0)
    standing, plain = (traffic(name, tree, Workload(rates, ones, ones)) for name in ("identity-advertised", "identity-peer"))
    assert all(np.allclose(getattr(standing, name), values) for name, values in vars(plain).items())
    brief = traffic("identity-advertised", tree, Workload(rates, ones, ones, 0.2 * ones, ones))
    assert brief.routing_entries < standing.routing_entries
    assert np.isclose(brief.notification_rate, standing.notification_rate)


def test_what_is_left_out_keeps_its_digits():
    tree = Tree.of_overlay(make_overlay("star", brokers=4))
    values = np.array([[1e-9], [1e9], [2e-9], [3e-9]])
    outside = tree.left_out(values, tree.gathered(values))
    assert np.allclose(outside[1], 6e-9, rtol=1e-15)
    assert outside[0] == 0


@pytest.mark.parametrize("seed", range(4))
def test_left_out_is_everything_that_is_not_below(case, seed):
    tree, workload = case(seed, brokers=12)
    below = tree.gathered(workload.offered)
    assert np.allclose(tree.left_out(workload.offered, below), workload.offered.sum(axis=0) - below)


def test_inclusion_is_transitive_and_refuses_cycles():
    assert Inclusion.of(4, [(0, 1), (1, 3), (2, 3)]).wider == ((1, 3), (3,), (3,), ())
    with pytest.raises(InvalidInput, match=r"within: expected that no class includes itself, found the cycle"):
        Inclusion.of(3, [(0, 1), (1, 0)])


@pytest.mark.parametrize("protocol", MODELS)
def test_a_billion_subscriptions_are_a_number(protocol):
    tree = Tree.of_overlay(make_overlay("level-limited", width=4, brokers=15))
    found = traffic(protocol, tree, Workload.uniform(15, 10, 1e9, 60, 100))
    assert all(np.isfinite(values).all() for values in vars(found).values())


def test_advertisements_that_cannot_be_are_named(case):
    tree, workload = case(1)
    wrong = replace(workload, advertising_hz=-workload.lifetime_s, advertisement_lifetime_s=workload.lifetime_s)
    with pytest.raises(InvalidInput, match=r"^advertising_hz: broker 'B0', class 1: expected a finite number from 0 on"):
        traffic("identity-advertised", tree, wrong)
