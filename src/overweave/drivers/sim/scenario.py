"""Scenarios: everything that a simulation depends on, as one value read from TOML (``scenario.toml`` of the interfaces).

Errors are raised before anything runs, with the path of the field and the expected value (`overweave.drivers.toml_config`).
"""

import dataclasses
import math
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from overweave.broker.modules import make_modules
from overweave.contract.config import SESSION_EXPIRY_S
from overweave.contract.modules import Environment, Module
from overweave.drivers.capacities import CAPACITIES, with_capacities
from overweave.drivers.routing_table import check_options, read_options
from overweave.drivers.sim.checkers import Checks
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.timeline import KINDS as TIMELINE
from overweave.drivers.sim.timeline import Clients, Entry, Join, Leave, Move, Rate, Timeline
from overweave.drivers.toml_config import (
    check_keys,
    check_modules,
    check_suits,
    converted,
    fields,
    modules,
    read_toml,
    rows,
    shaped,
    table,
    unknown,
    values,
)
from overweave.errors import InvalidInput, OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import SHAPES
from overweave.routing import protocol
from overweave.routing.base import Engine
from overweave.routing.options import RoutingOptions

#: Kinds of workload; `overweave.drivers.sim.workload` makes them.
KINDS = ("stock",)
#: Arrays of tables, with those of their fields that are lists.
ARRAYS: Mapping[str, tuple[str, ...]] = {
    "broker": (),
    "link": ("between",),
    "join": ("clients",),
    "leave": ("clients",),
    "rate": ("publishers",),
    "move": ("clients",),
}


class OverlaySpec(msgspec.Struct, frozen=True):
    """A shape of `SHAPES` with its options; the seed of a random shape is the scenario's unless it is given."""

    shape: str
    options: Mapping[str, Any] = {}

    def make(self, seed: int) -> Overlay:
        """The overlay itself.

        >>> OverlaySpec("chain", {"brokers": 3}).make(seed=1)
        Overlay(3 brokers B1…B3, 2 primary links)
        """
        return shaped("overlay", self.shape, self.options, seed)


class RoutingSpec(msgspec.Struct, frozen=True):
    """A protocol of `PROTOCOLS` with its options; none: their defaults."""

    protocol: str = "filter"
    options: RoutingOptions | None = None

    def __post_init__(self) -> None:
        protocol(self.protocol, "routing.protocol")

    def make(self, broker: str, overlay: Overlay, incarnation: int = 1) -> Engine:
        """The protocol at one broker."""
        return protocol(self.protocol).make(broker, overlay, incarnation, self.options)


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Publishers with their rate, and the number of subscriptions to each."""

    kind: str = "stock"
    publishers: int
    subscriptions_per_publisher: int
    rate_hz: float = 1.0
    #: Publications that leave a publisher together, at a rate lower by this factor.
    batch: int = 1

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput(unknown("workload.kind", self.kind, KINDS))
        if self.publishers < 1:
            raise InvalidInput(f"workload.publishers: expected an integer of at least 1, got {self.publishers}")
        if self.subscriptions_per_publisher < 0:
            count = self.subscriptions_per_publisher
            raise InvalidInput(f"workload.subscriptions_per_publisher: expected an integer of at least 0, got {count}")
        if not 0 < self.rate_hz < math.inf:
            raise InvalidInput(f"workload.rate_hz: expected a finite number above 0, got {self.rate_hz:g}")
        if self.batch < 1:
            raise InvalidInput(f"workload.batch: expected an integer of at least 1, got {self.batch}")

    def ids(self) -> Clients:
        """The ids of all clients."""
        publishers = [f"P{number}" for number in range(1, self.publishers + 1)]
        places = range(1, self.subscriptions_per_publisher + 1)
        return Clients(publishers, [f"{publisher}.{place}" for publisher in publishers for place in places])


class BrokerSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A broker of ``[[broker]]`` with capacities of its own; ``[costs]`` has the others."""

    id: str
    output_bandwidth_bytes_per_s: float | None = None
    matching_delay_base_s: float | None = None
    matching_delay_per_subscription_s: float | None = None
    #: For plans, and for `costs.overload_delay_s`.
    capacity_hz: float | None = None

    def capacities(self) -> dict[str, float]:
        """Those that are given."""
        return {name: value for name in CAPACITIES if (value := getattr(self, name)) is not None}


class LinkSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A link of ``[[link]]`` with a delay of its own."""

    between: tuple[str, str]
    delay_s: float


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation; the same scenario gives the same trace."""

    seed: int = 1
    duration_s: float = 60.0
    overlay: OverlaySpec
    routing: RoutingSpec = msgspec.field(default_factory=RoutingSpec)
    workload: WorkloadSpec
    costs: Costs = Costs()
    faults: Faults = Faults()
    checks: Checks = Checks()
    #: By name, with their options.
    modules: Mapping[str, msgspec.Struct] = {}
    #: Brokers that differ from the others.
    broker: tuple[BrokerSpec, ...] = ()
    #: Links that differ from the others.
    link: tuple[LinkSpec, ...] = ()
    #: The timeline: clients that come, go and move, and rates that change.
    join: tuple[Join, ...] = ()
    leave: tuple[Leave, ...] = ()
    rate: tuple[Rate, ...] = ()
    move: tuple[Move, ...] = ()
    #: The session of a disconnected client expires after this time.
    session_expiry_s: float = SESSION_EXPIRY_S

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InvalidInput(f"seed: expected an integer of at least 0, got {self.seed}")
        if not 0 < self.duration_s < math.inf:
            raise InvalidInput(f"duration_s: expected a finite number above 0, got {self.duration_s:g}")
        if not self.session_expiry_s > 0:
            raise InvalidInput(f"session_expiry_s: expected a time above 0, got {self.session_expiry_s:g}")
        check_modules("modules", self.modules, self.routing.protocol)

    def make_modules(self, environment: Environment) -> dict[str, Module]:
        """The modules of one broker."""
        return make_modules(environment, self.modules)

    def make_timeline(self, clients: Clients) -> Timeline:
        """The timed actions of a workload's clients."""
        return Timeline({kind: getattr(self, kind) for kind in TIMELINE}, clients, self.duration_s)

    def make_overlay(self) -> Overlay:
        """The overlay, which has to suit the protocol."""
        overlay = self.overlay.make(self.seed)
        check_suits("routing.protocol", self.routing.protocol, overlay, f"overlay.shape {self.overlay.shape!r}")
        for number, move in enumerate(self.move):
            if move.to not in overlay.ids:
                raise InvalidInput(f"move[{number}].to: unknown broker {move.to!r}, {nearest(move.to, overlay.ids)}")
        if self.routing.options is not None:
            check_options("routing", self.routing.options, overlay)
        common = {name: value for name in CAPACITIES if (value := getattr(self.costs, name, None)) is not None}
        for number, spec in enumerate(self.broker):
            if spec.id not in overlay:
                raise InvalidInput(unknown(f"broker[{number}].id", spec.id, overlay.ids))
            if any(spec.id == other.id for other in self.broker[:number]):
                raise InvalidInput(f"broker[{number}].id: expected every id once, got {spec.id!r} again")
            own = with_capacities(f"broker[{number}]", overlay.broker(spec.id), {**common, **spec.capacities()})
            overlay = overlay.replace_broker(own)
        for number, link in enumerate(self.link):
            overlay = _with_delay(overlay, f"link[{number}]", link)
        return overlay

    def own_costs(self) -> dict[str, Costs]:
        """The costs of the brokers that differ."""
        known = fields(Costs)
        own = {spec.id: {name: each for name, each in spec.capacities().items() if name in known} for spec in self.broker}
        return {id: msgspec.structs.replace(self.costs, **some) for id, some in own.items()}


def read_scenario(path: Path, seed: int | None = None) -> Scenario:
    """The scenario of a TOML file, with another seed if one is given."""

    def make(document: dict[str, Any]) -> Scenario:
        scenario = scenario_of(document if seed is None else {**document, "seed": seed})
        scenario.make_overlay()
        scenario.make_timeline(scenario.workload.ids())
        return scenario

    return read_toml(path, make)


def scenario_of(document: Mapping[str, Any]) -> Scenario:
    """The scenario of a document that was read.

    >>> scenario_of({"overlay": {"shape": "star", "brokers": 3}, "worklod": {}})
    Traceback (most recent call last):
    overweave.errors.InvalidInput: worklod: unknown key, the nearest known one is 'workload'
    """
    if "network" in document:
        raise InvalidInput("expected a scenario, found a network file: use 'overweave up'")
    check_keys("", document, fields(Scenario))
    tables: dict[str, Callable[[str, Any], Any]] = {
        "overlay": _overlay,
        "routing": _routing,
        "workload": lambda path, value: values(WorkloadSpec, path, value),
        "costs": lambda path, value: values(Costs, path, value),
        "faults": lambda path, value: values(Faults, path, value),
        "checks": lambda path, value: values(Checks, path, value),
        "modules": modules,
        "broker": lambda path, value: tuple(rows(BrokerSpec, path, value)),
        "link": lambda path, value: tuple(rows(LinkSpec, path, value)),
        **{kind: partial(_timed, entry) for kind, entry in TIMELINE.items()},
    }
    plain = {name: value for name, value in document.items() if name not in tables}
    made = {name: make(name, document[name]) for name, make in tables.items() if name in document}
    for name in ("overlay", "workload"):
        if name not in document:
            raise InvalidInput(f"{name}: expected a table [{name}], which is missing")
    return Scenario(**made, **converted(Scenario, "", plain))


def _with_delay(overlay: Overlay, path: str, spec: LinkSpec) -> Overlay:
    try:
        found = overlay.link(*spec.between)
        if found.delay_s is not None:
            raise InvalidInput(f"{path}.between: expected every link once, got {' and '.join(spec.between)} again")
    except OverlayError as error:
        raise InvalidInput(f"{path}.between: {error}") from None
    if not spec.delay_s >= 0:
        raise InvalidInput(f"{path}.delay_s: expected a time from 0 on, got {spec.delay_s:g}")
    return overlay.replace_link(dataclasses.replace(found, delay_s=spec.delay_s))


def _timed(entry: type[Entry], path: str, value: Any) -> tuple[Entry, ...]:
    return tuple(rows(entry, path, value))


def _overlay(path: str, value: Any) -> OverlaySpec:
    options = dict(table(path, value))
    if not isinstance(options.get("shape"), str):
        raise InvalidInput(f"{path}.shape: expected one of {', '.join(SHAPES)}, got {options.get('shape')!r}")
    return OverlaySpec(options.pop("shape"), options)


def _routing(path: str, value: Any) -> RoutingSpec:
    given = table(path, value)
    name = given.get("protocol", "filter")
    if not isinstance(name, str):
        raise InvalidInput(f"{path}.protocol: expected a text, got {name!r}")
    protocol(name, f"{path}.protocol")
    return RoutingSpec(name, read_options(path, name, given, beside=("protocol",)))
