"""The vectorised equations against the same ones written out, and at the ends of what numbers can hold."""

import math
from decimal import Decimal

import numpy as np
import pytest
from plain_equations import plain

from overweave.analysis import workload as workloads
from overweave.analysis.hierarchical import analyse
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.errors import InvalidInput
from overweave.overlay.shapes import make_overlay


def tree_of(parents):
    return Tree.of_parents({f"B{place}": None if parent < 0 else f"B{parent}" for place, parent in enumerate(parents)})


def ours(parents, *rates):
    tree = tree_of(parents)
    rows = [int(id[1:]) for id in tree.ids]
    return analyse(tree, Workload(*(np.asarray(values, float)[rows] for values in rates)))


def check_close(found, expected, relative=1e-11):
    for name, value in expected.items():
        computed = Decimal(float(getattr(found, name)))
        # What is smaller than any number of the machine may be nothing.
        assert abs(computed - value) <= abs(value) * Decimal(relative) + Decimal("1e-300"), (name, computed, value)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("scale", [1e-12, 1e-3, 1.0, 30.0])
def test_as_the_equations_written_out(drawn, seed, scale):
    case = drawn(seed, scale=scale)
    expected = plain(*case)
    del expected["saved_rate"]  # a difference of two that are right
    check_close(ours(*case).totals, expected)


@pytest.mark.parametrize("subscriptions", [1e-9, 1e-3, 1e5, 2e6, 3e6, 1e9, 1e15])
def test_rare_and_crowded_classes_lose_no_digits(subscriptions):
    parents, shape = [-1, 0, 1, 1, 2], (5, 3)
    arrival_hz = np.full(shape, subscriptions / 15 / 60) * [[1, 1e-3, 1e-6]]
    case = parents, arrival_hz, np.full(shape, 60.0), np.full(shape, 0.25)
    found = ours(*case).totals
    assert all(math.isfinite(value) for value in vars(found).values())
    expected = plain(*case)
    del expected["saved_rate"]
    check_close(found, expected, 1e-10)


def test_brokers_and_classes_add_up_to_the_whole(drawn):
    parents, *rates = drawn(3, brokers=9, classes=7)
    found = ours(parents, *rates)
    for name, total in vars(found.totals).items():
        assert np.isclose(getattr(found.per_broker, name).sum(), total)
    one = ours(parents, *(values[:, 2:3] for values in rates)).totals
    assert all(np.isclose(getattr(found.per_class, name)[2], value) for name, value in vars(one).items())


def test_entries_stand_at_the_parent_and_messages_at_the_child():
    tree = Tree.of_overlay(make_overlay("chain", brokers=3))
    zero, all_of_it = np.zeros((3, 1)), np.full((3, 1), 1e3)
    found = analyse(tree, Workload(np.array([[0.0], [0.0], [1.0]]), all_of_it, zero + 1)).per_broker
    assert found.routing_entries.tolist() == [1, 1, 0]
    assert found.notification_rate.tolist() == [0, 3, 3]
    assert found.local_entries.tolist() == [0, 0, 1000]


def test_parts_of_the_classes_give_the_same_as_all_at_once(drawn, monkeypatch):
    case = drawn(5, brokers=6, classes=11)
    whole = ours(*case)
    monkeypatch.setattr(workloads, "CELLS_MAX", 18)
    parts = ours(*case)
    for name, values in vars(whole.per_class).items():
        assert np.allclose(getattr(parts.per_class, name), values, rtol=1e-14)
        assert np.allclose(getattr(parts.per_broker, name), getattr(whole.per_broker, name), rtol=1e-13)


@pytest.mark.parametrize("factor", [1.0, 3.5])
def test_equal_classes_are_computed_once_and_count_all(factor):
    tree = Tree.of_overlay(make_overlay("level-limited", width=2, brokers=9))
    alike = Workload.uniform(9, 40, 300, 60, 10).scaled(factor)
    assert [copies for _, copies in alike.parts()] == [40]
    each = Workload(*(np.array(values) for values in (alike.arrival_hz, alike.lifetime_s, alike.publication_hz)))
    assert [copies for _, copies in each.parts()] == [1]
    one, other = analyse(tree, alike), analyse(tree, each)
    for name, values in vars(one.per_class).items():
        assert np.allclose(values, getattr(other.per_class, name))
        assert np.allclose(getattr(one.per_broker, name), getattr(other.per_broker, name))
    assert np.isclose(alike.subscriptions, 300 * factor)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"arrival_hz": -1.0}, "arrival_hz: broker 'B2', class 3: expected a finite number from 0 on, found -1"),
        ({"lifetime_s": 0.0}, "lifetime_s: broker 'B2', class 3: expected a finite number above 0, found 0"),
        ({"publication_hz": math.nan}, "publication_hz: broker 'B2', class 3: expected a finite number from 0 on, found nan"),
        ({"lifetime_s": math.inf}, "lifetime_s: broker 'B2', class 3: expected a finite number above 0, found inf"),
    ],
)
def test_rates_that_cannot_be_are_named(change, expected):
    rates = {name: np.ones((3, 4)) for name in ("arrival_hz", "lifetime_s", "publication_hz")}
    for name, value in change.items():
        rates[name][1, 2] = value
    with pytest.raises(InvalidInput) as error:
        analyse(Tree.of_overlay(make_overlay("star", brokers=3)), Workload(**rates))
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ((-1, 60, 1), "subscriptions: expected a finite number from 0 on, found -1"),
        ((1, 0, 1), "lifetime: expected a finite number above 0, found 0"),
        ((1, 60, -0.5), "rate: expected a finite number from 0 on, found -0.5"),
    ],
)
def test_uniform_rates_that_cannot_be_are_named(options, expected):
    with pytest.raises(InvalidInput, match=f"^{expected}$"):
        Workload.uniform(3, 4, *options)


def test_rates_of_other_brokers_are_refused():
    with pytest.raises(InvalidInput, match="arrival_hz: expected 3 brokers by 4 classes, found"):
        analyse(Tree.of_overlay(make_overlay("star", brokers=3)), Workload.uniform(2, 4, 1, 1, 1))


def test_toggles_are_right_where_the_chance_of_an_empty_table_is_no_full_number_any_more():
    arrival_hz, one = np.full((2, 1), 0.5e20), np.ones((2, 1))
    case = [-1, 0], arrival_hz, one * 1.48e-17, one
    expected = plain(*case)["control_rate"]
    assert 0 < float(ours(*case).totals.control_rate) == pytest.approx(float(expected), rel=1e-12, abs=0)
