"""The network file: brokers, links and their settings as one value read from TOML (``network.toml``).

Every broker reads the same file and must come to the same network: the seed of a random shape is 1 unless ``network.seed`` is
given. A broker listens at the ``listen`` of its ``[[broker]]``, else on ``port`` + its position from 1. A ``[[link]]`` beside a
shape is an additional link, unless the shape has it. A ``spare`` broker has a position, but is not in the overlay: it can join it
later. Paths are relative to the file's directory.

Options of all brokers are in ``[brokers]``; where no ``[[broker]]`` is listed, ``[broker]`` is the same. All keys are in
docs/guides/network-file.md.
"""

import inspect
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from overweave.drivers.routing_table import check_options, read_options
from overweave.drivers.tcp.broker_options import BrokerOptions
from overweave.drivers.tcp.network_addresses import check_metrics_ports, listen_urls
from overweave.drivers.tcp.network_overlay import LinkTable, network_overlay
from overweave.drivers.tcp.network_tables import broker_tables, checked_table, given_urls, listed_brokers
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
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import SHAPES
from overweave.routing import PROTOCOLS, protocol
from overweave.routing.options import RoutingOptions

METRICS_HOST = "127.0.0.1"
EPOCHS_MAX = 1 << 31


class NetworkFile(msgspec.Struct, frozen=True, kw_only=True):
    """The contents of a network file."""

    overlay: Overlay
    #: Of all brokers in the file, spare ones included, in their order.
    urls: Mapping[str, str]
    #: The brokers that are not in the overlay.
    spares: Mapping[str, Broker] = {}
    #: The epoch of the overlay, the version of its state, and the name of the last change: some only move clients.
    epoch: int = 0
    version: int = 0
    change: str = ""
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
    #: By broker: its bandwidth, if it is given.
    bandwidth_of: Mapping[str, float] = {}

    @property
    def running_urls(self) -> dict[str, str]:
        """The URLs of the brokers of the overlay."""
        return {id: url for id, url in self.urls.items() if id in self.overlay}

    def settings(self, broker_id: str, join: str | None = None, listen: str | None = None) -> BrokerSettings:
        """The settings of one broker. A joining broker (``join``, ``listen``) need not be in the file."""
        if join is None:
            self._check_runs(broker_id)
        else:
            self._check_joins(broker_id)
        url = listen or self.urls.get(broker_id)
        if url is None:
            raise InvalidInput(f"listen: expected a URL for broker {broker_id!r}, which is not in the network file")
        return BrokerSettings(
            id=broker_id,
            listen=url,
            overlay=self.overlay if join is None else Overlay([self._broker(broker_id)]),
            urls={**self.urls, broker_id: url},
            brokers=(*self.overlay.brokers, *self.spares.values()),
            epoch=self.epoch,
            version=self.version,
            join=join,
            routing=self.routing,
            routing_options=self.routing_options,
            modules=self.modules,
            trace=self.trace,
            run=self.run,
            trace_every_s=self.trace_every_s,
            state=None if self.state is None else self.state / broker_id,
            metrics=self._metrics(broker_id),
            security=self._security(broker_id),
            output_bandwidth_bytes_per_s=self.bandwidth_of.get(broker_id),
            **self.options_of.get(broker_id, self.options).settings(self.limits),
        )

    def _check_runs(self, broker_id: str) -> None:
        if broker_id in self.spares:
            raise InvalidInput(f"broker {broker_id!r}: spare in the network file, so it needs the URL of a broker to join at")
        if broker_id not in self.overlay:
            raise InvalidInput(f"broker {broker_id!r}: expected one of the network, {nearest(broker_id, self.overlay.ids)}")

    def _check_joins(self, broker_id: str) -> None:
        """Refuse a broker that the routing protocol has no number or no cluster for."""
        kind = PROTOCOLS[self.routing]
        if kind.brokers_max is None:
            return
        if not kind.knows_overlay:
            raise InvalidInput(f"join: under {self.routing!r} brokers cannot join: clusters are fixed in the network file")
        if broker_id not in self.urls:
            raise InvalidInput(
                f"broker {broker_id!r}: {self.routing!r} numbers brokers, so it has to be in the network file, as a spare one"
            )

    def _broker(self, broker_id: str) -> Broker:
        """A broker that joins; one that is not in the file has the default capacities."""
        if broker_id in self.overlay:
            return self.overlay.broker(broker_id)
        if "/" in broker_id or broker_id in (".", ".."):
            raise InvalidInput(f"broker {broker_id!r}: expected a name without slashes")
        return self.spares.get(broker_id) or Broker(broker_id)

    def _security(self, broker_id: str) -> SecuritySettings:
        token = self.token_of.get(broker_id)
        if token is None:
            return self.security
        return msgspec.structs.replace(self.security, token=_read_token(token) if isinstance(token, Path) else token)

    def _metrics(self, broker_id: str) -> str | None:
        """Where a broker serves metrics; one that is not in the file does not."""
        if self.metrics_port is None or broker_id not in self.urls:
            return None
        return f"{METRICS_HOST}:{self.metrics_port + list(self.urls).index(broker_id) + 1}"


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
    if "network" not in document and {"overlay", "workload"} & set(document):
        raise InvalidInput("expected a network file, found a scenario: use 'overweave simulate'")
    check_keys("", document, _TABLES)

    def in_directory(_: type, value: Any) -> Path:
        if not isinstance(value, str) or not value:
            raise ValueError
        return directory / value

    network, shape_options = _network(document.get("network", {}), in_directory)
    options_at, options, listed_tables = broker_tables(document)
    listed, options_of = listed_brokers(listed_tables, options, in_directory)
    links = rows(LinkTable, "link", document.get("link", []))
    overlay, source, known = network_overlay(network.shape, shape_options, listed, links)
    ids = tuple(each.id for each in known)
    check_suits("network.routing", network.routing, overlay, source)
    most = PROTOCOLS[network.routing].brokers_max
    if most is not None and len(ids) > most:
        raise InvalidInput(f"broker: expected at most {most:,} brokers, spare ones included, got {len(ids):,}")
    routing_options = _routing_options(network.routing, document.get("routing", {}), overlay)
    security = values(SecuritySettings, "security", document.get("security", {}), in_directory)
    check_security(security)
    found = modules("modules", document.get("modules", {}))
    check_modules("modules", found, network.routing)
    made = NetworkFile(
        overlay=overlay,
        urls=listen_urls(ids, given_urls(listed), (network.host, network.port, network.tls), security),
        spares={each.id: each for each in known if each.id not in overlay},
        epoch=network.epoch,
        version=max(network.version, network.epoch),
        change=network.change,
        routing=network.routing,
        routing_options=routing_options,
        modules=found,
        trace=network.trace,
        run=network.run,
        trace_every_s=network.trace_every_s,
        state=network.state,
        metrics_port=network.metrics_port,
        security=security,
        limits=checked_table(LimitSettings, "limits", document.get("limits", {})),
        options=checked_table(BrokerOptions, options_at, options),
        options_of=options_of,
        token_of={each.id: token for each in listed if (token := each.token or each.token_file) is not None},
        bandwidth_of={each.id: given for each in listed if (given := each.output_bandwidth_bytes_per_s) is not None},
    )
    check_metrics_ports(made.metrics_port, made.urls)
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
    epoch: int = 0
    version: int = 0
    change: str = ""

    def __post_init__(self) -> None:
        if not 0.1 <= self.trace_every_s < float("inf"):
            raise InvalidInput(f"network.trace_every_s: expected a time of at least 0.1 s, got {self.trace_every_s:g}")
        for name in ("epoch", "version"):
            if not 0 <= getattr(self, name) < EPOCHS_MAX:
                text = f"expected an integer from 0 to {EPOCHS_MAX - 1:,}, got {getattr(self, name):,}"
                raise InvalidInput(f"network.{name}: {text}")
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
        _check_misplaced(given, [*own, *options])
        check_keys("network.", given, [*own, *options])
    plain = converted(_Network, "network.", {name: each for name, each in given.items() if name in own}, hook)
    return _Network(**plain), {name: each for name, each in given.items() if name in options}


def _check_misplaced(given: Mapping[str, Any], known: Sequence[str]) -> None:
    """Options of the protocol belong into another table."""
    name = given.get("routing", "filter")
    options = fields(protocol(name, "network.routing").options) if isinstance(name, str) else []
    for key in given:
        if key in options and key not in known:
            raise InvalidInput(f"network.{key}: an option of {name!r}, expected in [routing]")


def _routing_options(name: str, value: Any, overlay: Overlay) -> RoutingOptions:
    """The table [routing]; the protocol's name is in [network]."""
    given = table("routing", value)
    if "protocol" in given:
        raise InvalidInput(f"routing.protocol: expected the protocol's name in network.routing, got {given['protocol']!r} here")
    options = read_options("routing", name, given)
    check_options("routing", options, overlay)
    return options


def _read_token(file: Path) -> str:
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        text = getattr(error, "strerror", None) or "bytes that are no text"
        raise InvalidInput(f"broker.token_file: expected a readable file, found {text.lower()}: {file}") from None
    if not token:
        raise InvalidInput(f"broker.token_file: expected a token, found an empty file: {file}")
    return token
