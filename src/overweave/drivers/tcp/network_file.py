"""The network file: brokers, links and their settings as one value read from TOML (``network.toml``).

Every broker reads the same file and must come to the same network: the seed of a random shape is 1 unless ``network.seed`` is
given. A broker listens at the ``listen`` of its ``[[broker]]``, else on ``port`` + its position from 1. A ``[[link]]`` beside a
shape is an additional link, unless the shape has it. Paths are relative to the file's directory.

Options of all brokers are in ``[brokers]``; where no ``[[broker]]`` is listed, ``[broker]`` is the same. All keys are in
docs/guides/network-file.md.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from overweave.drivers.routing_table import check_options, read_options
from overweave.drivers.tcp.broker_options import OVERRIDES, BrokerOptions
from overweave.drivers.tcp.network_addresses import check_metrics_ports, listen_urls
from overweave.drivers.tcp.network_overlay import BrokerTable, LinkTable, network_overlay
from overweave.drivers.tcp.security import check_security
from overweave.drivers.tcp.settings import BrokerSettings, LimitSettings, SecuritySettings
from overweave.drivers.toml_config import (
    check_keys,
    check_modules,
    check_suits,
    converted,
    fields,
    modules,
    read_toml,
    rows,
    table,
    unknown,
    values,
)
from overweave.drivers.tracing.names import run_name
from overweave.errors import InvalidInput
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import SHAPES
from overweave.routing import protocol
from overweave.routing.options import RoutingOptions

METRICS_HOST = "127.0.0.1"
_Table = TypeVar("_Table", bound=msgspec.Struct)


class NetworkFile(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a network file."""

    overlay: Overlay
    urls: Mapping[str, str]
    routing: str = "filter"
    routing_options: RoutingOptions | None = None
    modules: Mapping[str, msgspec.Struct] = {}
    trace: Path | None = None
    run: str = "live"
    trace_every_s: float = 5.0
    #: Each broker has a directory of its own in it.
    state: Path | None = None
    #: The broker at position i, from 1, serves metrics on this + i.
    metrics_port: int | None = None
    security: SecuritySettings = SecuritySettings()
    limits: LimitSettings = LimitSettings()
    options: BrokerOptions = BrokerOptions()
    #: By broker: options of its own, and its token for neighbours or the file of that token.
    options_of: Mapping[str, BrokerOptions] = {}
    token_of: Mapping[str, str | Path] = {}

    def settings(self, broker_id: str) -> BrokerSettings:
        """The settings of one broker."""
        if broker_id not in self.overlay:
            raise InvalidInput(f"broker {broker_id!r}: expected one of the network, {nearest(broker_id, self.overlay.ids)}")
        return BrokerSettings(
            id=broker_id,
            listen=self.urls[broker_id],
            overlay=self.overlay,
            urls=self.urls,
            routing=self.routing,
            routing_options=self.routing_options,
            modules=self.modules,
            trace=self.trace,
            run=self.run,
            trace_every_s=self.trace_every_s,
            state=None if self.state is None else self.state / broker_id,
            metrics=None if self.metrics_port is None else f"{METRICS_HOST}:{self._metrics_port(broker_id)}",
            security=self._security(broker_id),
            **self.options_of.get(broker_id, self.options).settings(self.limits),
        )

    def _security(self, broker_id: str) -> SecuritySettings:
        token = self.token_of.get(broker_id)
        if token is None:
            return self.security
        return msgspec.structs.replace(self.security, token=_read_token(token) if isinstance(token, Path) else token)

    def _metrics_port(self, broker_id: str) -> int:
        return (self.metrics_port or 0) + self.overlay.position(broker_id) + 1


def read_network(path: Path) -> NetworkFile:
    """The network of a TOML file."""
    return read_toml(path, lambda document: network_of(document, path.parent))


def network_of(document: Mapping[str, Any], directory: Path = Path()) -> NetworkFile:
    """The network of a parsed document from a file in ``directory``.

    >>> network_of({"network": {"shape": "chain", "brokers": 2, "port": 7400}}).settings("B2").listen
    'tcp://127.0.0.1:7402'
    >>> network_of({"network": {"shape": "chain", "brokers": 2, "prot": 7400}})
    Traceback (most recent call last):
    overweave.errors.InvalidInput: network.prot: unknown key, the nearest known one is 'port'
    """
    check_keys("", document, _TABLES)

    def in_directory(_: type, value: Any) -> Path:
        if not isinstance(value, str) or not value:
            raise ValueError
        return directory / value

    network, shape_options = _network(document.get("network", {}), in_directory)
    options_at, options, listed_tables = _brokers(document)
    listed, options_of = _listed_brokers(listed_tables, options, in_directory)
    links = rows(LinkTable, "link", document.get("link", []))
    overlay, source = network_overlay(network.shape, shape_options, listed, links)
    check_suits("network.routing", network.routing, overlay, source)
    routing_options = _routing_options(network.routing, document.get("routing", {}), overlay)
    security = values(SecuritySettings, "security", document.get("security", {}), in_directory)
    check_security(security)
    found = modules("modules", document.get("modules", {}))
    check_modules("modules", found, network.routing)
    made = NetworkFile(
        overlay=overlay,
        urls=listen_urls(overlay, _given_urls(listed), (network.host, network.port, network.tls), security),
        routing=network.routing,
        routing_options=routing_options,
        modules=found,
        trace=network.trace,
        run=network.run,
        trace_every_s=network.trace_every_s,
        state=network.state,
        metrics_port=network.metrics_port,
        security=security,
        limits=_checked(LimitSettings, "limits", document.get("limits", {})),
        options=_checked(BrokerOptions, options_at, options),
        options_of=options_of,
        token_of={each.id: token for each in listed if (token := each.token or each.token_file) is not None},
    )
    check_metrics_ports(made.metrics_port, made.overlay, made.urls)
    return made


_TABLES = ("network", "routing", "broker", "brokers", "link", "modules", "security", "limits")


class _Network(msgspec.Struct, frozen=True, kw_only=True):
    routing: str = "filter"
    shape: str | None = None
    port: int | None = None
    host: str = "127.0.0.1"
    tls: bool = False
    trace: Path | None = None
    run: str = "live"
    trace_every_s: float = 5.0
    state: Path | None = None
    metrics_port: int | None = None

    def __post_init__(self) -> None:
        if not 0.1 <= self.trace_every_s < float("inf"):
            raise InvalidInput(f"network.trace_every_s: expected a time of at least 0.1 s, got {self.trace_every_s:g}")
        protocol(self.routing, "network.routing")
        if self.shape is not None and self.shape not in SHAPES:
            raise InvalidInput(unknown("network.shape", self.shape, SHAPES))
        if self.run != run_name(self.run):
            raise InvalidInput(f"network.run: expected letters, digits, '.', '_' and '-', got {self.run!r}")


def _network(value: Any, hook: Any) -> tuple[_Network, dict[str, Any]]:
    """The table [network], and separately the options of its shape."""
    given = table("network", value)
    shape = given.get("shape")
    options: Sequence[str] = []
    if isinstance(shape, str) and shape in SHAPES:
        options = list(inspect.signature(SHAPES[shape]).parameters)
    elif shape is None and "brokers" in given:
        raise InvalidInput(f"network.shape: expected one of {', '.join(SHAPES)} beside network.brokers, which is missing")
    own = fields(_Network)
    # A misspelt shape has no known options; the error is about its name.
    if shape is None or options:
        check_keys("network.", given, [*own, *options])
    plain = converted(_Network, "network.", {name: each for name, each in given.items() if name in own}, hook)
    return _Network(**plain), {name: each for name, each in given.items() if name in options}


def _routing_options(name: str, value: Any, overlay: Overlay) -> RoutingOptions:
    """The table [routing]; the protocol's name is in [network]."""
    given = table("routing", value)
    if "protocol" in given:
        raise InvalidInput(f"routing.protocol: expected the protocol's name in network.routing, got {given['protocol']!r} here")
    options = read_options("routing", name, given)
    check_options("routing", options, overlay)
    return options


def _brokers(document: Mapping[str, Any]) -> tuple[str, Mapping[str, Any], Any]:
    """The table of all brokers' options, with its name, and the list ``[[broker]]``; a table ``[broker]`` is the former."""
    options, listed = document.get("brokers"), document.get("broker", [])
    if isinstance(listed, Mapping):
        if options is not None:
            raise InvalidInput("broker: expected either the table [broker] or [brokers], got both")
        return "broker", listed, []
    return "brokers", table("brokers", {} if options is None else options), listed


def _listed_brokers(given: Any, common: Mapping[str, Any], hook: Any) -> tuple[list[BrokerTable], dict[str, BrokerOptions]]:
    """The brokers of ``[[broker]]``, and the options that are their own."""
    if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
        raise InvalidInput(f"broker: expected tables [[broker]], got {given!r}")
    listed, options_of = [], {}
    for number, each in enumerate(given):
        path = f"broker[{number}]"
        check_keys(f"{path}.", each, [*fields(BrokerTable), *OVERRIDES])
        own = {name: value for name, value in each.items() if name in OVERRIDES}
        broker = values(BrokerTable, path, {name: value for name, value in each.items() if name not in OVERRIDES}, hook)
        if broker.token is not None and broker.token_file is not None:
            raise InvalidInput(f"{path}.token: expected either this or token_file, got both")
        if own:
            options_of[broker.id] = _checked(BrokerOptions, path, {**common, **own})
        listed.append(broker)
    return listed, options_of


def _checked(type: type[_Table], path: str, value: Any) -> _Table:
    """A table with checked values; errors get its path."""
    try:
        return values(type, path, value)
    except InvalidInput as error:
        text = str(error)
        raise InvalidInput(text if text.startswith(path) else f"{path}.{text}") from None


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        text = getattr(error, "strerror", None) or "bytes that are no text"
        raise InvalidInput(f"broker.token_file: expected a readable file, found {text.lower()}: {file}") from None
    if not token:
        raise InvalidInput(f"broker.token_file: expected a token, found an empty file: {file}")
    return token


def _given_urls(listed: Sequence[BrokerTable]) -> dict[str, tuple[str, str]]:
    """The URLs in ``[[broker]]``, with their fields."""
    given: dict[str, tuple[str, str]] = {}
    for number, broker in enumerate(listed):
        if any(broker.id == other.id for other in listed[:number]):
            raise InvalidInput(f"broker[{number}].id: expected every id once, got {broker.id!r} again")
        if broker.listen is not None:
            given[broker.id] = broker.listen, f"broker[{number}].listen"
    return given
