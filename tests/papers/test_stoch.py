"""STOCH, claim by claim, in closed form (sections 4.1 and 4.2)."""

from functools import cache

import numpy as np
import pytest

from overweave.analysis.choosing import choose
from overweave.analysis.hierarchical import analyse
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.experiments.stoch import claims, scenarios
from overweave.overlay.fixed_shapes import level_limited
from overweave.pipeline.sweeps.file import sweep_of

NUMBERS = np.geomspace(10, 700_000, 61)


@cache
def tree(width):
    return Tree.of_overlay(level_limited(width))


def totals(width, subscriptions, rate_hz=1000.0):
    return analyse(tree(width), Workload.uniform(127, 1000, subscriptions, 60, rate_hz)).totals


@pytest.mark.parametrize("width", scenarios.WIDTHS)
def test_routing_entries_converge_to_126_000(width):
    """Section 4.1 and figure 3."""
    assert float(totals(width, 1e9).routing_entries) == 126_000
    entries = [float(totals(width, number).routing_entries) for number in NUMBERS]
    assert (np.diff(entries) > 0).all()


@pytest.mark.parametrize(("width", "maxima"), [(1, 1), (2, 2), (4, 2), (8, 1), (16, 1), (32, 1), (64, 1)])
def test_local_maxima_of_the_control_rate(width, maxima):
    """Figure 5: T2 and T4 have two because they are not symmetric."""
    rates = np.array([float(totals(width, number).control_rate) for number in NUMBERS])
    assert claims._maxima(rates) == maxima


def test_where_flooding_becomes_cheaper():
    """Figure 7: T8 with 32 publications per second."""
    found = choose(tree(8), Workload.uniform(127, 1000, 1000, 60, 32), ("flooding", "identity", "hierarchical-simple"))
    assert found.break_even["identity"] == [pytest.approx(101_000, rel=0.01)]
    assert found.break_even["hierarchical-simple"] == [pytest.approx(9_500, rel=0.02)]
    for protocol, rate in (("identity", "saved_rate"), ("hierarchical-simple", "saved_rate_simple")):
        (at,) = found.break_even[protocol]
        assert float(getattr(totals(8, at * 0.999, 32), rate)) > 0 > float(getattr(totals(8, at * 1.001, 32), rate))


def test_without_subscriptions_what_goes_to_the_root_is_not_saved():
    """Figure 6's text says 126,000 for all topologies; equation 7 takes one message per level from it."""
    for width in scenarios.WIDTHS:
        depths = tree(width).depths
        assert float(totals(width, 0).saved_rate) == pytest.approx(126_000 - 1000 * depths.mean())


def test_the_exemplary_setting_has_over_1_400_scenarios():
    assert len(sweep_of(scenarios.topologies()).tasks) == 1407


def test_the_validation_has_at_least_200_scenarios_of_unequal_rates():
    tasks = sweep_of(scenarios.validation("identity", full=False)).tasks
    assert (
        len({tuple(sorted((name, str(value)) for name, value in task.parameters.items() if name != "seed")) for task in tasks})
        >= 200
    )
    assert all(task.parameters.get("workload_spread", 1.0) > 0 for task in tasks)


@pytest.mark.parametrize("protocol", ["flooding", "covering", "identity-advertised"])
def test_every_grid_can_be_read(protocol):
    assert sweep_of(scenarios.validation(protocol, full=False)).tasks


def test_the_setting_of_the_paper_can_be_simulated():
    assert len(sweep_of(scenarios.paper_scale()).tasks) == 7 * 3 * 8
