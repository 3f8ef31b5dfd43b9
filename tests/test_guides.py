"""Guides name all there is."""

import inspect
import json
import re
from pathlib import Path

import msgspec
import pytest

from overweave.broker.modules import MODULES
from overweave.drivers.sim.checkers import Checks
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.metrics import Metrics
from overweave.drivers.sim.scenario import RoutingSpec, Scenario, WorkloadSpec
from overweave.drivers.tcp import network_file, network_overlay
from overweave.drivers.tcp.broker_options import OVERRIDES, BrokerOptions
from overweave.drivers.tcp.settings import LimitSettings, SecuritySettings
from overweave.overlay.shapes import SHAPES
from overweave.routing import BUILT_IN

ROOT = Path(__file__).parents[1]
SCENARIOS = (ROOT / "docs/guides/scenarios.md").read_text()
TABLES = {"routing": RoutingSpec, "workload": WorkloadSpec, "costs": Costs, "faults": Faults, "checks": Checks}


ROUTING_OPTIONS = {field.name: field for each in BUILT_IN.values() for field in msgspec.structs.fields(each.options)}


def keys():
    for table, kind in TABLES.items():
        yield from (f"{table}.{name}" for name in kind.__struct_fields__ if (table, name) != ("routing", "options"))
    yield from (f"routing.{name}" for name in ROUTING_OPTIONS)
    yield from set(Scenario.__struct_fields__) - set(TABLES) - {"overlay", "modules"}


@pytest.mark.parametrize(
    "name",
    sorted(
        {
            *keys(),
            *BUILT_IN,
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


NETWORK_FILE = (Path(__file__).parents[1] / "docs/guides/network-file.md").read_text()
NETWORK_TABLES = {
    "network": network_file._Network,
    "broker": network_overlay.BrokerTable,
    "link": network_overlay.LinkTable,
    "brokers": BrokerOptions,
    "limits": LimitSettings,
    "security": SecuritySettings,
    **{f"modules.{name}": module.options for name, module in MODULES.items()},
}


def default_of(field):
    """A default as the guide has it."""
    if field.required:
        return "*required*"
    value = field.default
    return "-" if value is None else f"`{json.dumps(list(value) if isinstance(value, tuple) else value)}`"


def test_the_guide_to_network_files_has_every_key_with_its_default():
    expected = {
        f"{table}.{field.name}": default_of(field)
        for table, kind in NETWORK_TABLES.items()
        for field in msgspec.structs.fields(kind)
    }
    expected |= {f"routing.{name}": default_of(field) for name, field in ROUTING_OPTIONS.items()}
    rows = re.findall(r"^\| `([a-z_.]+\.[a-z_]+)` \|(.*?)\|(.*?)\|.+\|$", NETWORK_FILE, re.MULTILINE)
    rows = [(key, default.strip(), unit.strip()) for key, default, unit in rows]
    assert {key: default for key, default, _ in rows} == expected
    assert len(rows) == len(expected)
    for key, _, unit in rows:
        if key.endswith("_bytes_per_s"):
            assert unit == "bytes/s"
            continue
        assert unit == "s" or not key.endswith("_s")
        assert unit == "bytes" or "bytes" not in key
        assert unit == "1/s" or "_hz" not in key


def test_no_table_of_network_files_is_missing_in_the_guide():
    assert {table.partition(".")[0] for table in NETWORK_TABLES} | {"routing"} == set(network_file._TABLES)
    assert all(f"`{name}`" in NETWORK_FILE for name in OVERRIDES)


def test_guarantees_name_tests_that_exist():
    text = (ROOT / "docs/guarantees.md").read_text()
    named = set(re.findall(r"test_\w+\.py", text))
    assert len(named) > 20
    assert named <= {path.name for path in (ROOT / "tests").rglob("test_*.py")}
