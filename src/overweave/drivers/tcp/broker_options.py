"""Options of brokers in a network file: the table ``[brokers]``, and the settings that follow from it."""

from typing import Any

import msgspec

from overweave.contract.config import CLIENT_WINDOW, SESSION_EXPIRY_S, BrokerConfig, SessionConfig
from overweave.drivers.tcp.settings import LimitSettings
from overweave.errors import InvalidInput

WINDOW_MAX = 65_536
#: Options that one broker may override in its ``[[broker]]``; the others must be the same everywhere.
OVERRIDES = (
    "stall_timeout_s",
    "slow_consumer_timeout_s",
    "pending_max",
    "session_expiry_s",
    "drain_timeout_s",
    "drain_clients_s",
)
#: Options whose 0 means never, or none.
_NEVER = ("stall_timeout_s", "slow_consumer_timeout_s", "drain_clients_s", "story_length")


class BrokerOptions(msgspec.Struct, frozen=True, kw_only=True):
    """Windows, heartbeats, timeouts and the slow-consumer policy of brokers."""

    #: Publications in flight to a peer, and from a client, without an acknowledgement.
    window: int = 16_384
    #: An acknowledgement is sent after this number of settled publications, or after this delay.
    acknowledge_every: int = 256
    acknowledge_delay_s: float = 0.005
    #: Failure detection between brokers, for protocols that reroute: the heartbeat, and the silence after which a link is down.
    heartbeat_s: float = 0.5
    link_timeout_s: float = 2.0
    #: Publications for an unreachable broker are buffered for this time.
    undeliverable_timeout_s: float = 10.0
    #: Any connection: the idle time after which a peer is pinged. After three times as long without an answer it is closed.
    ping_interval_s: float = 5.0
    #: Slow consumers: how long a client may acknowledge nothing before it no longer blocks its publishers, and before it is
    #: disconnected. 0: never.
    stall_timeout_s: float = 0.5
    slow_consumer_timeout_s: float = 5.0
    #: Messages that may wait for one client before it is disconnected.
    pending_max: int = 100_000
    #: The session of a disconnected client expires after this time.
    session_expiry_s: float = SESSION_EXPIRY_S
    #: The time limit for publications in flight to settle when the broker stops.
    drain_timeout_s: float = 5.0
    #: At SIGTERM clients are moved to neighbours for this time at most. 0: never.
    drain_clients_s: float = 0.0
    #: The number of steps of each kind that are kept for the page ``/story``, with the publications in them.
    story_length: int = 0

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if value < 0 or (value == 0 and name not in _NEVER):
                least = "0 or more" if name in _NEVER else "above 0"
                raise InvalidInput(f"{name}: expected a number {least}, got {value:g}")
        if self.window > WINDOW_MAX:
            raise InvalidInput(f"window: expected an integer from 1 to {WINDOW_MAX:,}, got {self.window:,}")
        self._check_order("heartbeat_s", "link_timeout_s")
        if self.stall_timeout_s and self.slow_consumer_timeout_s:
            self._check_order("stall_timeout_s", "slow_consumer_timeout_s", strictly=False)

    def settings(self, limits: LimitSettings) -> dict[str, Any]:
        """The fields of `BrokerSettings` that these options and the limits determine."""
        session = SessionConfig(
            window=self.window,
            window_bytes=limits.pending_bytes_max,
            acknowledge_every=min(self.acknowledge_every, (self.window + 1) // 2),  # else a full window would wait for the delay
            acknowledge_delay_s=self.acknowledge_delay_s,
        )
        config = BrokerConfig(
            session=session,
            stall_timeout_s=self.stall_timeout_s or None,
            slow_consumer_timeout_s=self.slow_consumer_timeout_s or None,
            pending_max=self.pending_max,
            pending_bytes_max=limits.pending_bytes_max,
            heartbeat_s=self.heartbeat_s,
            link_timeout_s=self.link_timeout_s,
            undeliverable_timeout_s=self.undeliverable_timeout_s,
            publisher_window=CLIENT_WINDOW,
            story_length=self.story_length,
        )
        return {
            "config": config,
            "limits": limits,
            "session_expiry_s": self.session_expiry_s,
            "ping_interval_s": self.ping_interval_s,
            "drain_timeout_s": self.drain_timeout_s,
            "drain_clients_s": self.drain_clients_s,
        }

    def _check_order(self, lower: str, higher: str, strictly: bool = True) -> None:
        low, high = getattr(self, lower), getattr(self, higher)
        if high < low or (strictly and high == low):
            than = "more than" if strictly else "at least"
            raise InvalidInput(f"{higher}: expected {than} {lower}, which is {low:g}, got {high:g}")
