"""Settings of one live broker as one value. Other modules read files and flags."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from overweave.contract.config import CLIENT_WINDOW, SESSION_EXPIRY_S, BrokerConfig, SessionConfig
from overweave.contract.overlay_state import Member, OverlayState, first_state, joining_state
from overweave.drivers.tcp.addresses import parse_address
from overweave.errors import InvalidInput
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.routing.options import RoutingOptions


class SecuritySettings(msgspec.Struct, frozen=True, kw_only=True):
    """Authentication between a broker and its peers. By default there is none, which only loopback addresses allow."""

    #: PEM files of the broker's certificate and key (for ``tls://``), and of the authorities for peers' certificates.
    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None
    #: Peers must present a certificate of those authorities (mutual TLS).
    mutual: bool = False
    #: A TOML file of clients and brokers with their tokens and permissions. None: everything is allowed.
    tokens: Path | None = None
    #: The token of this broker for its neighbours.
    token: str | None = None
    #: Listen on a non-loopback address without authentication.
    insecure: bool = False


class LimitSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one broker. A request above a limit gets an error with the limit's name, and is counted."""

    #: Connections, those of peers that are not authenticated yet included. The limit on file descriptors may lower it.
    connections_max: int = 50_000
    #: Clients, those included whose session has not expired.
    clients_max: int = 50_000
    #: Subscriptions of one client, and of all clients of the broker together.
    subscriptions_per_client_max: int = 200_000
    subscriptions_max: int = 2_000_000
    advertisements_per_client_max: int = 10_000
    #: The encoded size of one filter.
    filter_bytes_max: int = 65_536
    #: Publications per second of one client, with a burst of a second; a client above it is slowed down. 0: unlimited.
    publish_rate_hz_max: float = 0.0
    #: Bytes in flight to one peer, and bytes that the broker buffers for one slow consumer.
    pending_bytes_max: int = 1 << 26

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            least, value = (0 if name == "publish_rate_hz_max" else 1), getattr(self, name)
            if value < least:
                raise InvalidInput(f"{name}: expected a number of at least {least}, got {value:g}")


class BrokerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """One broker of a network that every broker knows the shape of."""

    id: str
    #: ``tcp://HOST:PORT`` or ``tls://HOST:PORT``, here and for all brokers of the network.
    listen: str
    overlay: Overlay
    #: The epoch of the overlay of the network file, and the version of its state.
    epoch: int = 0
    version: int = 0
    #: The URL of the broker at which this one joins the network; None: it is in the overlay.
    join: str | None = None
    #: Of all brokers of the network file, in its order.
    urls: Mapping[str, str]
    #: All brokers of the network file, spare ones included; without them, those of the overlay.
    brokers: tuple[Broker, ...] = ()
    #: A name of `PROTOCOLS`.
    routing: str = "filter"
    #: None: the defaults of the protocol.
    routing_options: RoutingOptions | None = None
    #: By name (of `MODULES`), with their options.
    modules: Mapping[str, msgspec.Struct] = {}
    #: Directory for the trace (None: no trace), the name of the run, and the time until a file is complete for readers.
    trace: Path | None = None
    run: str = "live"
    trace_every_s: float = 5.0
    #: Directory for durable state (None: nothing survives a crash).
    state: Path | None = None
    #: ``HOST:PORT`` where metrics and health are served over HTTP (None: nowhere).
    metrics: str | None = None
    security: SecuritySettings = SecuritySettings()
    config: BrokerConfig = BrokerConfig(
        session=SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005),
        stall_timeout_s=0.5,
        slow_consumer_timeout_s=5.0,
        heartbeat_s=0.5,
        publisher_window=CLIENT_WINDOW,
    )
    limits: LimitSettings = LimitSettings()
    #: None: unknown; then the output is measured by pending bytes.
    output_bandwidth_bytes_per_s: float | None = None
    #: The session of a disconnected client expires after this time.
    session_expiry_s: float = SESSION_EXPIRY_S
    #: The idle time after which a peer is pinged. After three times as long without a message it is disconnected.
    ping_interval_s: float = 5.0
    #: The time limit for publications in flight to settle when the broker stops.
    drain_timeout_s: float = 5.0
    #: The time limit for clients to move to neighbours at SIGTERM. 0: they are not moved.
    drain_clients_s: float = 0.0

    def __post_init__(self) -> None:
        if self.join is not None:
            parse_address(self.join, "join")

    @property
    def overlay_state(self) -> OverlayState:
        """The state of the overlay that this broker starts with, unless its journal has a later one."""
        if self.join is not None:
            return joining_state(self.id)
        state, numbered = first_state(self.overlay, self.urls, self.epoch, self.version), self.numbered_overlay
        members = tuple(Member(each.id, each.url, numbered.position(each.id)) for each in state.members)
        return msgspec.structs.replace(state, members=members)

    @property
    def numbered_overlay(self) -> Overlay:
        """The overlay in which the position of each broker is its number: spare brokers of the network file count."""
        known = {each.id: each for each in (*self.brokers, *self.overlay.brokers)}
        ids = self.urls if set(self.overlay.ids) <= self.urls.keys() else self.overlay.ids
        return Overlay([known.get(id, Broker(id)) for id in ids], self.overlay.links)

    @property
    def announced(self) -> str:
        """The URL of this broker for others."""
        return self.urls.get(self.id) or self.listen
