"""Modules that come with the broker, one file each; none knows another. `MODULES` names those that can be configured."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from overweave.broker.modules.report import Report, ReportOptions
from overweave.broker.modules.self_organise import SelfOrganise, SelfOrganiseOptions
from overweave.contract.modules import Module


class ModuleKind(NamedTuple):
    """What options a module has, and how to make one at a broker."""

    options: type[msgspec.Struct]
    make: Callable[[str, Any], Module]


MODULES: Mapping[str, ModuleKind] = {
    "report": ModuleKind(ReportOptions, Report),
    "self_organise": ModuleKind(SelfOrganiseOptions, SelfOrganise),
}
