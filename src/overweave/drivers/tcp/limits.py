"""Limits of one broker: checks, and a counter for each exceeded limit.

A request above a limit gets `Refused` with the key of the limit, its value and the requested value. Code ``connection-limit``:
the broker is full, and may have room later. Code ``limit-exceeded``: a client has too many subscriptions or advertisements.
"""

import resource
import time

from overweave.broker.core import BrokerCore
from overweave.contract.frames import ControlFrame
from overweave.drivers.tcp.logs import Log
from overweave.drivers.tcp.settings import LimitSettings
from overweave.errors import Refused
from overweave.language.codec import encode_filter
from overweave.language.messages import Advertise, Subscribe

CONNECTION_LIMIT, LIMIT_EXCEEDED = "connection-limit", "limit-exceeded"
#: A counter without a key: the operating system's file descriptors.
FILE_DESCRIPTORS = "file_descriptors"
#: Unauthenticated connections above the limit: they may be neighbours, which are always admitted.
SPARE = 16
#: File descriptors for all but peers: HTTP requests, files, pipes, and spare connections.
_RESERVE = 160
#: The interval between two log entries of a full broker.
_LOG_EVERY_S = 60.0


class Limits:
    """The limits of one broker."""

    def __init__(self, settings: LimitSettings, log: Log) -> None:
        self.settings = settings
        self._log = log
        self.connections_max = min(settings.connections_max, _connections_possible())
        #: Counters of exceeded limits, by key.
        self.exceeded = dict.fromkeys((*settings.__struct_fields__, FILE_DESCRIPTORS), 0)
        self._buckets: dict[str, TokenBucket] = {}
        self._logged_s = -_LOG_EVERY_S
        if self.connections_max < settings.connections_max:
            log.info("connections-max-lowered", connections_max=self.connections_max, text="by the limit on file descriptors")

    # ---- connections and clients

    def has_room(self, connections: int) -> bool:
        """Whether one more unauthenticated connection is accepted."""
        return connections < self.connections_max + SPARE

    def full(self, connections: int) -> Refused:
        """The error of a full broker."""
        refused = self._refused(CONNECTION_LIMIT, "connections_max", self.connections_max, "connections", connections)
        self._log_rarely(refused)
        return refused

    def check_connection(self, connections: int) -> None:
        """Raise `Refused` if this number of connections is too many."""
        if connections > self.connections_max:
            raise self.full(connections)

    def check_client(self, clients: int) -> None:
        """Raise `Refused` if another client is too many."""
        if clients >= self.settings.clients_max:
            refused = self._refused(CONNECTION_LIMIT, "clients_max", self.settings.clients_max, "clients", clients + 1)
            self._log_rarely(refused)
            raise refused

    # ---- control messages and publications of clients

    def check_control(self, frame: ControlFrame, client: str, core: BrokerCore) -> None:
        """Raise `Refused` if a client advertises or subscribes too much."""
        message, settings = frame.message, self.settings
        if not isinstance(message, Advertise | Subscribe):
            return
        size = len(encode_filter(message.filter))
        if size > settings.filter_bytes_max:
            raise self._refused(LIMIT_EXCEEDED, "filter_bytes_max", settings.filter_bytes_max, "bytes of a filter", size)
        if core.is_registered(client, message):
            return
        if isinstance(message, Advertise):
            self._check(
                "advertisements_per_client_max", "advertisements of a client", core.registration_count("advertisement", client)
            )
            return
        self._check("subscriptions_per_client_max", "subscriptions of a client", core.registration_count("subscription", client))
        self._check("subscriptions_max", "subscriptions of all clients of a broker", core.registration_count("subscription"))

    def publish_pause_s(self, client: str, rows: int) -> float:
        """The time for which nothing is read from a client that has published ``rows`` now."""
        rate_hz = self.settings.publish_rate_hz_max
        if not rate_hz:
            return 0.0
        bucket = self._buckets.get(client)
        if bucket is None:
            bucket = self._buckets[client] = TokenBucket(rate_hz, time.monotonic())
        pause_s = bucket.take(rows, time.monotonic())
        if pause_s:
            self.exceeded["publish_rate_hz_max"] += 1
            if not bucket.warned:
                bucket.warned = True
                self._log.warning("slowed-down", peer=client, text=f"limits.publish_rate_hz_max: more than {rate_hz:g} a second")
        return pause_s

    def count_slow_consumer(self, why: str) -> None:
        """Count a slow consumer that was disconnected because of its pending bytes."""
        if "bytes were pending" in why:
            self.exceeded["pending_bytes_max"] += 1

    def forget(self, client: str) -> None:
        """Forget a client that has left."""
        self._buckets.pop(client, None)

    # ---- helpers

    def _check(self, key: str, what: str, count: int) -> None:
        most = getattr(self.settings, key)
        if count >= most:
            raise self._refused(LIMIT_EXCEEDED, key, most, what, count + 1)

    def _refused(self, code: str, key: str, most: int, what: str, got: int) -> Refused:
        self.exceeded[key] += 1
        return Refused(code, f"limits.{key}: expected at most {most:,} {what}, got {got:,}")

    def _log_rarely(self, refused: Refused) -> None:
        now_s = time.monotonic()
        if now_s - self._logged_s >= _LOG_EVERY_S:
            self._logged_s = now_s
            self._log.warning("full", code=refused.code, text=refused.text)


class TokenBucket:
    """A token bucket for bursts of one second, which may go into debt.

    >>> bucket = TokenBucket(10.0, now_s=0.0)
    >>> bucket.take(10, 0.0), bucket.take(5, 0.0), bucket.take(1, 0.5), bucket.take(1, 100.0)
    (0.0, 0.5, 0.1, 0.0)
    """

    __slots__ = ("_rate_hz", "_since_s", "_tokens", "warned")

    def __init__(self, rate_hz: float, now_s: float) -> None:
        self._rate_hz, self._since_s = rate_hz, now_s
        self._tokens = max(rate_hz, 1.0)
        #: Whether its debt has been logged.
        self.warned = False

    def take(self, count: int, now_s: float) -> float:
        """Remove tokens; the time until the debt is paid."""
        earned = (now_s - self._since_s) * self._rate_hz
        self._since_s = now_s
        self._tokens = min(self._tokens + earned, max(self._rate_hz, 1.0)) - count
        return max(0.0, -self._tokens / self._rate_hz)


def raise_descriptor_limit() -> int:
    """Raise the limit on file descriptors as far as the system allows; the new limit."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return most


def _connections_possible() -> int:
    """The number of connections that leaves a reserve of file descriptors."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY:
        return 1 << 30
    return max(soft - min(_RESERVE, soft // 2), 1)
