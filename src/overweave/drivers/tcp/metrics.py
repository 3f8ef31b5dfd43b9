"""A snapshot of a live broker, and its metric families for Prometheus."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from overweave.broker.counters import Statistics

#: Peers with a line of their own in the metrics; the rest share one, because clients choose their names.
PEERS_MAX = 20
_PREFIX = "overweave"
_COUNTERS = {
    "publications_in": "Publications that arrived.",
    "publications_out": "Publications that went on to other brokers.",
    "publications_to_clients": "Publications that went to clients, once for each client.",
    "duplicates": "Publications that had arrived before.",
    "unadvertised": "Publications that no advertisement of their client covers; they reach nobody.",
    "control_in": "Control messages that arrived.",
    "control_out": "Control messages that went to other brokers.",
    "control_dropped": "Publications of modules that were not kept for a broker that was down.",
    "forged": "Publications of clients that a module had subscribed to, and ignored.",
    "migrations_completed": "Migrations of clients to other brokers.",
    "migrations_failed": "Migrations whose client stayed, rejected orders included.",
}
_GAUGES = {
    "uptime_s": "Seconds since the broker has started.",
    "migrations": "Clients that are moving to other brokers.",
    "connections": "Open connections, authenticated or not.",
    "connections_max": "The most connections that the broker accepts.",
    "connected_clients": "Clients that are connected.",
    "connected_neighbours": "Neighbours that are connected.",
    "input_hz": "Publications that arrive per second.",
    "output_bytes_per_s": "Bytes that go to neighbours and clients per second.",
    "matching_delay_s": "Seconds to match a publication, on average.",
    "journal_pending_records": "Records of the journal that are not on disk yet.",
    "trace_rows_dropped": "Rows of traces that were dropped because they could not be written.",
    "certificate_expires_at_s": "Earliest expiry in the certificate file, in seconds since 1970.",
    "authorities_expires_at_s": "Earliest expiry in the file of authorities, in seconds since 1970.",
}
#: Former names of counters, exported for one more release.
_FORMER_NAMES = {"deliveries": "publications_to_clients"}


class Snapshot(msgspec.Struct, frozen=True):
    """One broker at one moment. An infinite gauge, which JSON cannot express, is None."""

    broker: str
    healthy: bool
    uptime_s: float
    statistics: Statistics
    gauges: dict[str, float | None]
    #: Why it is unhealthy or degraded.
    reason: str | None = None
    #: Counters of exceeded limits, by key in ``[limits]``.
    limits_exceeded: dict[str, int] = {}
    #: Whether it works, but with traffic routed around a missing neighbour, or with a neighbour that has no session.
    degraded: bool = False
    #: The state of each module, by name.
    modules: dict[str, dict[str, Any]] = {}
    #: The clients that are moving away, and where to.
    migrations: dict[str, str] = {}


class SnapshotCollector(Collector):
    """The metric families of a broker, from a snapshot per scrape."""

    def __init__(self, snapshot: Callable[[], Snapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """The metric families of a scrape."""
        now = self._snapshot()
        for name, text in _COUNTERS.items():
            yield _counter(name, text, now.broker, getattr(now.statistics, name))
        for former, name in _FORMER_NAMES.items():
            yield _counter(former, f"Deprecated: the former name of {_PREFIX}_{name}.", now.broker, getattr(now.statistics, name))
        exceeded = CounterMetricFamily(f"{_PREFIX}_limit_exceeded", "Times a limit was exceeded.", labels=["broker", "limit"])
        for limit, count in now.limits_exceeded.items():
            exceeded.add_metric([now.broker, limit], count)
        yield exceeded
        yield from _module_traffic(now)
        yield _by("table", "table_entries", "Entries of routing tables.", now.broker, now.statistics.tables)
        yield _by("peer", "unsettled", "Messages that a peer has not settled.", now.broker, _largest(now.statistics.unsettled))
        gauges = {"uptime_s": now.uptime_s, "migrations": len(now.migrations), **now.gauges}
        for name, value in gauges.items():
            text = _GAUGES.get(name, f"Gauge {name}.")
            gauge = GaugeMetricFamily(f"{_PREFIX}_{re.sub('[^A-Za-z0-9_]', '_', name)}", text, labels=["broker"])
            gauge.add_metric([now.broker], float("nan") if value is None else value)
            yield gauge


def _counter(name: str, text: str, broker: str, value: float) -> CounterMetricFamily:
    counter = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=["broker"])
    counter.add_metric([broker], value)
    return counter


def _module_traffic(now: Snapshot) -> Iterator[Metric]:
    for name, text in {"received": "arrived from", "sent": "went to"}.items():
        labels = ["broker", "module", "kind"]
        counter = CounterMetricFamily(
            f"{_PREFIX}_module_messages_{name}", f"Control of modules that {text} brokers.", labels=labels
        )
        for each in now.statistics.module_traffic:
            counter.add_metric([now.broker, each.module, each.kind], getattr(each, name))
        yield counter


def _by(label: str, name: str, text: str, broker: str, values: Mapping[str, int]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=["broker", label])
    for key, value in values.items():
        family.add_metric([broker, key], value)
    return family


def _largest(unsettled: Mapping[str, int]) -> dict[str, int]:
    ordered = sorted(unsettled.items(), key=lambda entry: (-entry[1], entry[0]))
    largest, others = dict(ordered[:PEERS_MAX]), ordered[PEERS_MAX:]
    if others:
        largest["others"] = largest.get("others", 0) + sum(count for _, count in others)
    return largest
