"""Modules that come with the broker, one file each; none knows another. `MODULES` names those that can be configured.

Every broker has the collector besides.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from overweave.broker.modules.collector import Collector
from overweave.broker.modules.load_report import LoadReporter, LoadReportOptions
from overweave.broker.modules.self_organise import SelfOrganise, SelfOrganiseOptions
from overweave.contract.modules import Environment, Module
from overweave.contract.observation import COLLECTOR


class ModuleKind(NamedTuple):
    """A kind of module: its options, its factory, whether it needs the known overlay, and whether it opens links."""

    options: type[msgspec.Struct]
    make: Callable[[Environment, Any], Module]
    needs_overlay: bool = False
    opens_links: bool = False


MODULES: Mapping[str, ModuleKind] = {
    "report": ModuleKind(LoadReportOptions, lambda at, options: LoadReporter(at.broker, options)),
    "self_organise": ModuleKind(
        SelfOrganiseOptions, lambda at, options: SelfOrganise(at.broker, options), needs_overlay=True, opens_links=True
    ),
}


def make_modules(environment: Environment, options: Mapping[str, msgspec.Struct]) -> dict[str, Module]:
    """The modules of a broker, by name, each with its options."""
    return {name: MODULES[name].make(environment.of_module(name), each) for name, each in options.items()}


def with_collector(environment: Environment, modules: Mapping[str, Module]) -> dict[str, Module]:
    """The modules of a broker with its collector."""
    return {COLLECTOR: Collector(environment.of_module(COLLECTOR)), **modules}
