"""Guides name all there is."""

import inspect
from pathlib import Path

import pytest

from overweave.broker.modules import MODULES
from overweave.drivers.sim.checkers import Checks
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.metrics import Metrics
from overweave.drivers.sim.scenario import RoutingSpec, Scenario, WorkloadSpec
from overweave.overlay.shapes import SHAPES
from overweave.routing import PROTOCOLS

SCENARIOS = (Path(__file__).parents[1] / "docs/guides/scenarios.md").read_text()
TABLES = {"routing": RoutingSpec, "workload": WorkloadSpec, "costs": Costs, "faults": Faults, "checks": Checks}


def keys():
    for table, kind in TABLES.items():
        yield from (f"{table}.{name}" for name in kind.__struct_fields__)
    yield from set(Scenario.__struct_fields__) - set(TABLES) - {"overlay", "modules"}


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *keys(),
            *PROTOCOLS,
            *SHAPES,
            *(option for shape in SHAPES.values() for option in inspect.signature(shape).parameters),
            *(name.removesuffix("_") for name in Metrics.__struct_fields__),
        }
    ),
)
def test_the_guide_to_scenarios_names_all(name):
    assert f"`{name}`" in SCENARIOS


def test_the_guide_to_scenarios_names_all_options_of_modules():
    for name, module in MODULES.items():
        assert all(
            f"`modules.{name}.{option}`" in SCENARIOS or f"`.{option}`" in SCENARIOS
            for option in module.options.__struct_fields__
        )
