"""The overlay of a network file or of a scenario, with the capacities of brokers, for plans."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from overweave.drivers.capacities import CAPACITIES, with_capacities
from overweave.drivers.sim.scenario import Scenario, scenario_of
from overweave.drivers.tcp.network_file import network_of
from overweave.drivers.toml_config import read_toml
from overweave.overlay.graph import Overlay


def read_overlay(path: Path) -> Overlay:
    """The overlay of a TOML file: one with a table ``[overlay]`` is a scenario, any other a network file."""

    def make(document: Mapping[str, Any]) -> Overlay:
        if "overlay" in document:
            return _with_costs(scenario_of(document))
        return network_of(document, path.parent).overlay

    return read_toml(path, make)


def _with_costs(scenario: Scenario) -> Overlay:
    """Brokers without a ``[[broker]]`` are as ``[costs]`` has them; unlimited bandwidth is a broker's default."""
    overlay, own = scenario.make_overlay(), {spec.id for spec in scenario.broker}
    common = {name: value for name in CAPACITIES if (value := getattr(scenario.costs, name, None)) is not None}
    brokers = (overlay.broker(id) for id in overlay.ids)
    return Overlay((each if each.id in own else with_capacities("costs", each, common) for each in brokers), overlay.links)
