"""Scenarios: everything that a simulation depends on, as one value read from TOML (``scenario.toml`` of the interfaces).

Whatever is wrong is refused before anything runs, with the path of the field and what was expected; the file's name is put
before it by `read_scenario`. An unknown key anywhere is an error that names the nearest known one.
"""

import inspect
import math
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from overweave.broker.modules import MODULES
from overweave.contract.modules import Module
from overweave.drivers.sim.checkers import Checks
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.errors import InvalidInput, OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import SHAPES, make_overlay
from overweave.routing import PROTOCOLS

#: Kinds of workload; `overweave.drivers.sim.workload` makes them.
KINDS = ("stock",)

_Values = TypeVar("_Values", bound=msgspec.Struct)


class OverlaySpec(msgspec.Struct, frozen=True):
    """A shape of `SHAPES` with its options; the seed of a random shape is the scenario's unless it is given."""

    shape: str
    options: Mapping[str, Any] = {}

    def make(self, seed: int) -> Overlay:
        """The overlay itself.

        >>> OverlaySpec("chain", {"brokers": 3}).make(seed=1)
        Overlay(3 brokers B1…B3, 2 primary links)
        """
        if self.shape not in SHAPES:
            raise InvalidInput(_unknown("overlay.shape", self.shape, SHAPES))
        parameters = inspect.signature(SHAPES[self.shape]).parameters
        for name, value in self.options.items():
            if name not in parameters:
                raise InvalidInput(_unknown(f"overlay.{name}", "key", parameters, quoted=False))
            if isinstance(value, bool) or not isinstance(value, int | float | str):
                raise InvalidInput(f"overlay.{name}: expected a number or a text, got {value!r}")
        options = {"seed": seed, **self.options} if "seed" in parameters else self.options
        for name, parameter in parameters.items():
            if parameter.default is inspect.Parameter.empty and name not in options:
                raise InvalidInput(f"overlay.{name}: expected a value, which shape {self.shape!r} needs")
        try:
            return make_overlay(self.shape, **options)
        except OverlayError as error:
            raise InvalidInput(f"overlay.{str(error).removeprefix(f'shape {self.shape!r}: ')}") from None


class RoutingSpec(msgspec.Struct, frozen=True):
    """A protocol of `PROTOCOLS`."""

    protocol: str = "filter"

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise InvalidInput(_unknown("routing.protocol", self.protocol, PROTOCOLS))


class WorkloadSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Who publishes how often, and how many subscriptions there are to it."""

    kind: str = "stock"
    publishers: int
    subscriptions_per_publisher: int
    rate_hz: float = 1.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput(_unknown("workload.kind", self.kind, KINDS))
        if self.publishers < 1:
            raise InvalidInput(f"workload.publishers: expected an integer of at least 1, got {self.publishers}")
        if self.subscriptions_per_publisher < 0:
            count = self.subscriptions_per_publisher
            raise InvalidInput(f"workload.subscriptions_per_publisher: expected an integer of at least 0, got {count}")
        if not 0 < self.rate_hz < math.inf:
            raise InvalidInput(f"workload.rate_hz: expected a finite number above 0, got {self.rate_hz:g}")


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """One simulation; the same scenario gives the same trace."""

    seed: int = 1
    duration_s: float = 60.0
    overlay: OverlaySpec
    routing: RoutingSpec = RoutingSpec()
    workload: WorkloadSpec
    costs: Costs = Costs()
    faults: Faults = Faults()
    checks: Checks = Checks()
    #: By name, with their options.
    modules: Mapping[str, msgspec.Struct] = {}

    def __post_init__(self) -> None:
        if self.seed < 0:
            raise InvalidInput(f"seed: expected an integer of at least 0, got {self.seed}")
        if not 0 < self.duration_s < math.inf:
            raise InvalidInput(f"duration_s: expected a finite number above 0, got {self.duration_s:g}")

    def make_modules(self, broker: str) -> dict[str, Module]:
        """The modules of one broker."""
        return {name: MODULES[name].make(broker, options) for name, options in self.modules.items()}

    def make_overlay(self) -> Overlay:
        """The overlay, which has to suit the protocol."""
        overlay = self.overlay.make(self.seed)
        if PROTOCOLS[self.routing.protocol].acyclic and not overlay.is_tree():
            fit = ", ".join(name for name, protocol in PROTOCOLS.items() if not protocol.acyclic)
            raise InvalidInput(
                f"routing.protocol: expected one for overlays with cycles ({fit}), as overlay.shape {self.overlay.shape!r} "
                f"has some here; {self.routing.protocol!r} needs a tree"
            )
        return overlay


def read_scenario(path: Path, seed: int | None = None) -> Scenario:
    """The scenario of a TOML file, with another seed if one is given."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        scenario = scenario_of(document if seed is None else {**document, "seed": seed})
        scenario.make_overlay()
    except OSError as error:
        raise InvalidInput(f"{path}: expected a readable file, found {(error.strerror or str(error)).lower()}") from None
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{path}: expected UTF-8 text, found byte {error.object[error.start]:#04x} at {error.start}") from None
    except tomllib.TOMLDecodeError as error:
        raise InvalidInput(f"{path}: expected TOML, found: {error}") from None
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    return scenario


def scenario_of(document: Mapping[str, Any]) -> Scenario:
    """The scenario of a document that was read.

    >>> scenario_of({"overlay": {"shape": "star", "brokers": 3}, "worklod": {}})
    Traceback (most recent call last):
    overweave.errors.InvalidInput: worklod: unknown key, the nearest known one is 'workload'
    """
    _check_keys("", document, _fields(Scenario))
    tables: dict[str, Callable[[str, Any], Any]] = {
        "overlay": _overlay,
        "routing": lambda path, value: _values(RoutingSpec, path, value),
        "workload": lambda path, value: _values(WorkloadSpec, path, value),
        "costs": lambda path, value: _values(Costs, path, value),
        "faults": lambda path, value: _values(Faults, path, value),
        "checks": lambda path, value: _values(Checks, path, value),
        "modules": _modules,
    }
    plain = {name: value for name, value in document.items() if name not in tables}
    made = {name: make(name, document[name]) for name, make in tables.items() if name in document}
    for name in ("overlay", "workload"):
        if name not in document:
            raise InvalidInput(f"{name}: expected a table [{name}], which is missing")
    return Scenario(**made, **_converted(Scenario, "", plain))


def _overlay(path: str, value: Any) -> OverlaySpec:
    table = dict(_table(path, value))
    if not isinstance(table.get("shape"), str):
        raise InvalidInput(f"{path}.shape: expected one of {', '.join(SHAPES)}, got {table.get('shape')!r}")
    return OverlaySpec(table.pop("shape"), table)


def _modules(path: str, value: Any) -> dict[str, msgspec.Struct]:
    found: dict[str, msgspec.Struct] = {}
    for name, options in _table(path, value).items():
        if name not in MODULES:
            raise InvalidInput(_unknown(f"{path}.{name}", "module", MODULES, quoted=False))
        found[name] = _values(MODULES[name].options, f"{path}.{name}", options)
    return found


def _values(type: type[_Values], path: str, value: Any) -> _Values:
    table = _table(path, value)
    _check_keys(f"{path}.", table, _fields(type))
    for field in msgspec.structs.fields(type):
        if field.required and field.name not in table:
            raise InvalidInput(f"{path}.{field.name}: expected a value, which is missing")
    return type(**_converted(type, f"{path}.", table))


def _converted(type: type[msgspec.Struct], prefix: str, table: Mapping[str, Any]) -> dict[str, Any]:
    types = {field.name: field.type for field in msgspec.structs.fields(type)}
    found = {}
    for name, value in table.items():
        try:
            found[name] = msgspec.convert(value, types[name])
        except (msgspec.ValidationError, OverflowError):
            raise InvalidInput(f"{prefix}{name}: expected {_NOUNS.get(types[name], 'a number')}, got {value!r}") from None
        # Only the end of the faults may be never.
        if isinstance(found[name], float) and not math.isfinite(found[name]) and name != "until_s":
            raise InvalidInput(f"{prefix}{name}: expected a finite number, got {value!r}")
    return found


_NOUNS: Mapping[Any, str] = {int: "an integer", float: "a number", str: "a text"}


def _table(path: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{path}: expected a table [{path}], got {value!r}")
    return value


def _check_keys(prefix: str, table: Mapping[str, Any], known: Iterable[str]) -> None:
    known = list(known)
    for name in table:
        if name not in known:
            raise InvalidInput(_unknown(f"{prefix}{name}", "key", known, quoted=False))


def _fields(type: type[msgspec.Struct]) -> list[str]:
    return [field.name for field in msgspec.structs.fields(type)]


def _unknown(path: str, what: str, known: Iterable[str], quoted: bool = True) -> str:
    """An error's text: a value that is not known, or the last part of the path."""
    if quoted:
        return f"{path}: unknown {what!r}, {nearest(what, known)}"
    return f"{path}: unknown {what}, {nearest(path.rpartition('.')[2], known)}"
