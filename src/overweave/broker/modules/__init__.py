"""Modules that come with the broker, one file each; none knows another. `MODULES` names those that can be configured."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from overweave.broker.modules.load_report import LoadReporter, LoadReportOptions
from overweave.broker.modules.self_organise import SelfOrganise, SelfOrganiseOptions
from overweave.contract.modules import Module


class ModuleKind(NamedTuple):
    """What options a module has, how to make one at a broker, and whether brokers must know the overlay for it."""

    options: type[msgspec.Struct]
    make: Callable[[str, Any], Module]
    needs_overlay: bool = False


MODULES: Mapping[str, ModuleKind] = {
    "report": ModuleKind(LoadReportOptions, LoadReporter),
    "self_organise": ModuleKind(SelfOrganiseOptions, SelfOrganise, needs_overlay=True),
}
