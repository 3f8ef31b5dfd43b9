"""Modules that come with the broker, one file each; none knows another. `MODULES` names those that can be configured."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import msgspec

from overweave.broker.modules.load_report import LoadReporter, LoadReportOptions
from overweave.broker.modules.self_organise import SelfOrganise, SelfOrganiseOptions
from overweave.contract.modules import Module


class ModuleKind(NamedTuple):
    """A kind of module: its options, its factory, whether it needs the known overlay, and whether it opens links."""

    options: type[msgspec.Struct]
    make: Callable[[str, Any], Module]
    needs_overlay: bool = False
    opens_links: bool = False


MODULES: Mapping[str, ModuleKind] = {
    "report": ModuleKind(LoadReportOptions, LoadReporter),
    "self_organise": ModuleKind(SelfOrganiseOptions, SelfOrganise, needs_overlay=True, opens_links=True),
}
