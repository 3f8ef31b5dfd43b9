"""The load feed: counters of a live broker's connections, as the load meter gets them before a measurement."""

from collections.abc import Collection
from typing import Protocol

from overweave.drivers.load_meter import CLIENTS, LoadMeter


class Outputs(Protocol):
    """The connections of a broker."""

    @property
    def bytes_out(self) -> int:
        """The bytes sent since the start, over all connections that were ever open."""

    def pending_by_peer(self) -> dict[str, int]:
        """The bytes that the operating system has not accepted, by peer."""

    def sent_by_peer(self) -> dict[str, int]:
        """The bytes sent over the open connection of each peer."""


class LoadFeed:
    """Feeds the output of one broker to its meter. Bytes in buffers of the operating system count as sent.

    The output is busy for as long as its bandwidth needs for the bytes sent. Without a known bandwidth it is busy throughout
    the window if bytes were pending at both of its ends, for half of it if at one, else not at all.
    """

    def __init__(self, meter: LoadMeter, outputs: Outputs, output_bandwidth_bytes_per_s: float | None, now_s: float) -> None:
        self._meter, self._outputs = meter, outputs
        self._bandwidth = output_bandwidth_bytes_per_s
        self._since_s = now_s
        self._put_bytes = 0
        self._pending: dict[str, int] = {}
        self._sent: dict[str, int] = {}

    def feed(self, now_s: float, neighbours: Collection[str]) -> None:
        """Count the output since the last call."""
        window_s = now_s - self._since_s
        put_bytes, pending, sent = self._outputs.bytes_out, self._outputs.pending_by_peer(), self._outputs.sent_by_peer()
        put = put_bytes - self._put_bytes
        growth = sum(pending.values()) - sum(self._pending.values())
        self._meter.put(put)
        self._meter.sent(max(put - growth, 0), self._busy_s(max(put - growth, 0), window_s, pending))
        for peer, total in sent.items():
            before = self._sent.get(peer, 0)
            mean = (pending.get(peer, 0) + self._pending.get(peer, 0)) / 2
            left = max((total if total < before else total - before) - pending.get(peer, 0) + self._pending.get(peer, 0), 0)
            self._meter.queued(peer if peer in neighbours else CLIENTS, left, mean * window_s)
        self._since_s, self._put_bytes, self._pending, self._sent = now_s, put_bytes, pending, sent

    def _busy_s(self, sent_bytes: int, window_s: float, pending: dict[str, int]) -> float:
        if self._bandwidth is not None:
            return sent_bytes / self._bandwidth
        return window_s * (any(pending.values()) + any(self._pending.values())) / 2
