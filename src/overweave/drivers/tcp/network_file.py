"""Networks: brokers, links and how they run, as one value read from TOML (``network.toml`` of the interfaces).

Every broker reads the same file and must come to the same network, so nothing is left to chance: the seed of a random shape is 1
unless ``network.seed`` is another. A broker listens where its ``[[broker]]`` says, else on ``port`` + its position from 1. A
``[[link]]`` beside a shape is one more link, unless the shape has it. Paths are relative to the file's directory.

Options of all brokers are in ``[brokers]``; where no ``[[broker]]`` is listed, ``[broker]`` is the same. All keys are in
docs/guides/network-file.md.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from overweave.drivers.capacities import CAPACITIES, with_capacities
from overweave.drivers.routing_table import check_options, read_options
from overweave.drivers.tcp.addresses import PORT_MAX, Address, parse_address
from overweave.drivers.tcp.broker_options import OVERRIDES, BrokerOptions
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
    shaped,
    table,
    unknown,
    values,
)
from overweave.drivers.tracing.names import run_name
from overweave.errors import InvalidInput, OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import SHAPES
from overweave.routing import protocol
from overweave.routing.options import RoutingOptions

METRICS_HOST = "127.0.0.1"
_SEED = 1
_Table = TypeVar("_Table", bound=msgspec.Struct)


class NetworkFile(msgspec.Struct, frozen=True, kw_only=True):
    """A network whose file was read."""

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
    #: Of brokers that differ: their options, and what they show to their neighbours, which may stand in a file.
    options_of: Mapping[str, BrokerOptions] = {}
    token_of: Mapping[str, str | Path] = {}

    def settings(self, broker_id: str) -> BrokerSettings:
        """What one broker of the network needs to know."""
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
    """The network of a document that was read from a file in ``directory``.

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
    overlay = _overlay(network, shape_options, listed, rows(_Link, "link", document.get("link", [])))
    routing_options = _routing_options(network.routing, document.get("routing", {}), overlay)
    security = values(SecuritySettings, "security", document.get("security", {}), in_directory)
    check_security(security)
    found = modules("modules", document.get("modules", {}))
    check_modules("modules", found, network.routing)
    made = NetworkFile(
        overlay=overlay,
        urls=_urls(network, listed, overlay, security),
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
    _check_ports(made)
    return made


def check_listen(settings: BrokerSettings) -> None:
    """Refuse to listen where others can reach a broker to which nobody has to prove anything."""
    check_security(settings.security)
    _check_address("listen", parse_address(settings.listen, "listen"), settings.security)


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


class _Broker(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    listen: str | None = None
    clusters: tuple[str, ...] = ()
    #: What it shows to its neighbours instead of ``security.token``, here or in a file.
    token: str | None = None
    token_file: Path | None = None
    #: What it can carry, for plans; what is not given is as `Broker` has it.
    output_bandwidth_bytes_per_s: float | None = None
    matching_delay_base_s: float | None = None
    matching_delay_per_subscription_s: float | None = None
    capacity_hz: float | None = None

    def capacities(self) -> dict[str, float]:
        """Those that are given."""
        return {name: value for name in CAPACITIES if (value := getattr(self, name)) is not None}


class _Link(msgspec.Struct, frozen=True, kw_only=True):
    between: tuple[str, str]


def _network(value: Any, hook: Any) -> tuple[_Network, dict[str, Any]]:
    """The table [network], and apart from it the options of its shape."""
    given = table("network", value)
    shape = given.get("shape")
    options: Sequence[str] = []
    if isinstance(shape, str) and shape in SHAPES:
        options = list(inspect.signature(SHAPES[shape]).parameters)
    elif shape is None and "brokers" in given:
        raise InvalidInput(f"network.shape: expected one of {', '.join(SHAPES)} beside network.brokers, which is missing")
    own = fields(_Network)
    # Of a misspelt shape the options cannot be told; its name is the better error.
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


def _listed_brokers(given: Any, common: Mapping[str, Any], hook: Any) -> tuple[list[_Broker], dict[str, BrokerOptions]]:
    """The brokers of ``[[broker]]``, and the options of those that have their own."""
    if not isinstance(given, list) or not all(isinstance(each, Mapping) for each in given):
        raise InvalidInput(f"broker: expected tables [[broker]], got {given!r}")
    listed, options_of = [], {}
    for number, each in enumerate(given):
        path = f"broker[{number}]"
        check_keys(f"{path}.", each, [*fields(_Broker), *OVERRIDES])
        own = {name: value for name, value in each.items() if name in OVERRIDES}
        broker = values(_Broker, path, {name: value for name, value in each.items() if name not in OVERRIDES}, hook)
        if broker.token is not None and broker.token_file is not None:
            raise InvalidInput(f"{path}.token: expected either this or token_file, got both")
        if own:
            options_of[broker.id] = _checked(BrokerOptions, path, {**common, **own})
        listed.append(broker)
    return listed, options_of


def _checked(type: type[_Table], path: str, value: Any) -> _Table:
    """A table whose values know what they must be, and not where they stand."""
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


def _overlay(network: _Network, options: Mapping[str, Any], brokers: Sequence[_Broker], links: Sequence[_Link]) -> Overlay:
    if network.shape is not None:
        overlay, source = shaped("network", network.shape, options, _SEED), f"network.shape {network.shape!r}"
        for number, broker in enumerate(brokers):
            if broker.id not in overlay:
                raise InvalidInput(unknown(f"broker[{number}].id", broker.id, overlay.ids))
            if broker.clusters or broker.capacities():
                overlay = overlay.replace_broker(_made(number, broker))
    elif brokers:
        overlay, source = _listed(brokers), "the overlay"
    else:
        raise InvalidInput(f"network.shape: expected one of {', '.join(SHAPES)}, or brokers in [[broker]], got neither")
    shape = overlay
    for number, link in enumerate(links):
        try:
            if not shape.has_link(*link.between):
                overlay, source = overlay.with_link(link.between), "the overlay"
        except OverlayError as error:
            raise InvalidInput(f"link[{number}].between: {error}") from None
    if not overlay.is_connected():
        raise InvalidInput("link: expected links between all brokers, got some that no path joins")
    check_suits("network.routing", network.routing, overlay, source)
    return overlay


def _listed(brokers: Sequence[_Broker]) -> Overlay:
    overlay = Overlay(())
    for number, broker in enumerate(brokers):
        try:
            overlay = overlay.with_broker(_made(number, broker))
        except OverlayError as error:
            raise InvalidInput(f"broker[{number}].id: expected another id, got: {error}") from None
        # It names a directory of the broker's state.
        if broker.id in (".", "..") or "/" in broker.id or "\\" in broker.id:
            raise InvalidInput(f"broker[{number}].id: expected a name without slashes, got {broker.id!r}")
    return overlay


def _made(number: int, broker: _Broker) -> Broker:
    if len(set(broker.clusters) - {""}) < len(broker.clusters):
        raise InvalidInput(f"broker[{number}].clusters: expected different names, got {list(broker.clusters)!r}")
    made = Broker(broker.id, cluster=next(iter(broker.clusters), None), other_clusters=broker.clusters[1:])
    return with_capacities(f"broker[{number}]", made, broker.capacities())


def _urls(network: _Network, listed: Sequence[_Broker], overlay: Overlay, security: SecuritySettings) -> dict[str, str]:
    """Where every broker listens; no two at one place, and nobody where the security does not suffice."""
    given: dict[str, tuple[str, str]] = {}
    for number, broker in enumerate(listed):
        if any(broker.id == other.id for other in listed[:number]):
            raise InvalidInput(f"broker[{number}].id: expected every id once, got {broker.id!r} again")
        if broker.listen is not None:
            given[broker.id] = broker.listen, f"broker[{number}].listen"
    if len(given) < len(overlay):
        _check_base("port", network.port, overlay)
    users: dict[tuple[str, int], str] = {}
    urls = {}
    for position, broker_id in enumerate(overlay.ids, 1):
        if broker_id in given:
            url, field = given[broker_id]
            address = parse_address(url, field)
        else:
            address = Address(network.host, (network.port or 0) + position, network.tls)
            field = "network.host"
            parse_address(str(address), field)
        _check_address(field, address, security)
        place = address.host, address.port
        if place in users:
            raise InvalidInput(
                f"{field}: expected an address of its own for {broker_id!r}, got that of {users[place]!r}: {address}"
            )
        users[place] = broker_id
        urls[broker_id] = str(address)
    return urls


def _check_address(field: str, address: Address, security: SecuritySettings) -> None:
    """Refuse an address, which ``field`` names, that needs more than ``security`` has."""
    if address.tls and security.certificate is None:
        raise InvalidInput(f"security.certificate: expected a PEM file, which {field} needs for {address}")
    if security.mutual and not address.tls:
        raise InvalidInput(f"{field}: expected tls://, as security.mutual asks for certificates, got {address}")
    proven = address.tls and (security.mutual or security.tokens is not None)
    if not (address.is_loopback or proven or security.insecure):
        raise InvalidInput(
            f"{field}: expected a loopback address, got {address}: others can reach it, which needs tls:// with security.mutual "
            "or security.tokens, or else security.insecure = true"
        )


def _check_base(field: str, port: int | None, overlay: Overlay) -> None:
    """Whether there are as many ports above this one as there are brokers."""
    last = PORT_MAX - len(overlay)
    if port is None or not 0 < port <= last:
        raise InvalidInput(f"network.{field}: expected an integer from 1 to {last}, got {'none' if port is None else port}")


def _check_ports(network: NetworkFile) -> None:
    """Metrics are served where nobody listens."""
    if network.metrics_port is None:
        return
    _check_base("metrics_port", network.metrics_port, network.overlay)
    ports = range(network.metrics_port + 1, network.metrics_port + len(network.overlay) + 1)
    for broker_id, url in network.urls.items():
        if parse_address(url).port in ports:
            raise InvalidInput(
                f"network.metrics_port: expected {len(ports)} ports above it on which no broker listens, got "
                f"{network.metrics_port}, and {broker_id!r} listens on {url}"
            )
