"""Time series of a simulation: one row of measures per broker and interval."""

from array import array
from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np

from overweave.broker.counters import Statistics
from overweave.contract.records import Record
from overweave.contract.stimuli import LoadMeasured
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.utilisation import offered_work

#: Counters of `Statistics` whose growth is a measure.
_COUNTERS = (
    "publications_in", "publications_out", "publications_to_clients", "control_in", "control_out", "duplicates",
    "undeliverable", "unadvertised", "control_dropped", "forged", "migrations_completed", "migrations_failed",
)  # fmt: skip
#: Values of `LoadMeasured` that are not its fields.
_RATIOS = ("input_ratio", "output_ratio", "cpu_ratio")


class Sample(msgspec.Struct, frozen=True, kw_only=True):
    """The measures of one broker in one interval. Counts are those of the interval, lengths and sizes those at its end."""

    #: The end of the interval, from the start of publishing.
    time_s: float
    broker: str
    #: Whether the broker runs; one that has crashed has no other measures.
    running: bool
    #: Offered load of the engine and the uplink; None without costs.
    input_utilisation: float | None = None
    output_utilisation: float | None = None
    #: Frames that wait for the engine and for the uplink.
    queue_length: int | None = None
    output_queue_length: int | None = None
    #: Contents that peers have not settled.
    unsettled: int | None = None
    publications_in: int | None = None
    publications_out: int | None = None
    publications_to_clients: int | None = None
    control_in: int | None = None
    control_out: int | None = None
    duplicates: int | None = None
    undeliverable: int | None = None
    unadvertised: int | None = None
    control_dropped: int | None = None
    forged: int | None = None
    migrations_completed: int | None = None
    migrations_failed: int | None = None
    #: Deliveries to subscriptions of its clients, and their delays; None without deliveries.
    deliveries: int | None = None
    delay_s_mean: float | None = None
    delay_s_p99: float | None = None
    #: Connected clients, and subscriptions of clients.
    clients: int | None = None
    subscriptions: int | None = None
    #: Entries of routing tables, in all and by table.
    table_entries: int | None = None
    tables: dict[str, int] = {}
    #: Control of modules, by module and direction.
    modules: dict[str, int] = {}
    #: The last measurement of the load; empty before the first.
    load: dict[str, float] = {}


class SeriesSampler:
    """Samples all brokers of a network."""

    def __init__(self, network: SimulatedNetwork, on_sample: Callable[[Sample], None]) -> None:
        self._network, self._on_sample = network, on_sample
        self._start_s = self._since_s = network.scheduler.now_s
        self._statistics: dict[str, Statistics] = {id: network.broker(id).statistics() for id in network.running()}
        self._work = offered_work(network)
        self._delays_s: dict[str, array[float]] = {}

    def add(self, record: Record) -> None:
        """Count a row of the trace."""
        if record.subscription is not None:
            self._delays_s.setdefault(record.broker, array("d")).append(record.arrived_at_s - record.published_at_s)

    def sample(self) -> None:
        """Sample all brokers; nothing if no time has passed."""
        network, now_s = self._network, self._network.scheduler.now_s
        if now_s <= self._since_s:
            return
        work = offered_work(network)
        shares = work.since(self._work, now_s - self._since_s)
        statistics = {id: network.broker(id).statistics() for id in network.running()}
        for id in network.overlay.ids:
            if id in statistics:
                found = {"input_utilisation": shares.input.get(id), **self._measures(id, statistics[id])}
                station = network.station(id)
                if station is not None and station.uplink is not None:
                    found |= {"output_utilisation": shares.uplink[id], "output_queue_length": len(station.uplink)}
                self._on_sample(Sample(time_s=now_s - self._start_s, broker=id, running=True, **found))
            else:
                self._on_sample(Sample(time_s=now_s - self._start_s, broker=id, running=False))
        self._since_s, self._work, self._statistics = now_s, work, statistics
        self._delays_s.clear()

    def _measures(self, id: str, now: Statistics) -> dict[str, Any]:
        before, station = self._statistics.get(id), self._network.station(id)
        delays_s = np.array(self._delays_s.get(id, ()))
        has_delays = len(delays_s) > 0
        core, meter = self._network.broker(id), self._network.nodes[id].meter
        modules, modules_before = _by_module(now), {} if before is None else _by_module(before)
        return {
            "modules": {name: _growth(count, modules_before.get(name)) for name, count in modules.items()},
            "load": {} if meter is None or not meter.measured.window_s else _load_values(meter.measured),
            **{name: _growth(getattr(now, name), None if before is None else getattr(before, name)) for name in _COUNTERS},
            "queue_length": None if station is None else station.queue_length(),
            "unsettled": sum(now.unsettled.values()),
            "deliveries": len(delays_s),
            "delay_s_mean": float(delays_s.mean()) if has_delays else None,
            "delay_s_p99": float(np.percentile(delays_s, 99)) if has_delays else None,
            "clients": sum(peer not in self._network.overlay for peer in self._network.nodes[id].channels),
            "subscriptions": core.registration_count("subscription"),
            "table_entries": sum(now.tables.values()),
            "tables": now.tables,
        }


def _by_module(statistics: Statistics) -> dict[str, int]:
    counts: Counter[str] = Counter()
    for each in statistics.module_traffic:
        counts[f"{each.module}_in"] += each.received
        counts[f"{each.module}_out"] += each.sent
    return dict(counts)


def _load_values(load: LoadMeasured) -> dict[str, float]:
    """The known numbers of a measurement, with the delay of each output."""
    values = {name: getattr(load, name) for name in (*load.__struct_fields__, *_RATIOS)}
    outputs = values.pop("output_delays_s")
    values |= {f"output_delay_s_{peer or 'clients'}": delay_s for peer, delay_s in outputs.items()}
    return {name: float(value) for name, value in values.items() if value is not None}


def _growth(now: int, before: int | None) -> int:
    """The growth of a counter; one below its earlier value belongs to a broker that has restarted."""
    return now if before is None or now < before else now - before
