"""The same network in the simulator, with real brokers: what `counts` and `congestion` have to agree with."""

from collections.abc import Iterator
from itertools import groupby

import numpy as np

from overweave.broker.modules.tracer import Tracer
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.records import Record
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.experiments.minimal.congestion import CAPACITY, DELAY_TICKS, LINK_TICKS, Congestion
from overweave.experiments.minimal.network import Network, broker_ids
from overweave.experiments.minimal.workload import UNIT_TICKS, Workload
from overweave.language.messages import Advertise, Subscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.pipeline.workloads.boxes import ATTRIBUTES
from overweave.routing import PROTOCOLS

#: The limit on publications in flight from a client: the delays of an overloaded broker must not stop its publishers.
_WINDOW = 1 << 20


def simulate(workload: Workload, network: Network, capacity: int = CAPACITY) -> tuple[dict[str, np.ndarray], Congestion]:
    """Counts per broker, and congestion, as the simulator's traces and stations have them. A tick is a millisecond."""
    ids = broker_ids(network.brokers)
    costs = Costs(link_delay_s=LINK_TICKS / UNIT_TICKS, capacity_hz=float(capacity), overload_delay_s=DELAY_TICKS / UNIT_TICKS)
    simulated = SimulatedNetwork(
        network.overlay(),
        PROTOCOLS["filter"].make,
        costs=costs,
        config=BrokerConfig(SessionConfig(window=_WINDOW)),
        make_modules=lambda at: {"tracer": Tracer(at.broker, "run")},
    )
    boxes = workload.boxes
    publishers = _attach(simulated, "P", network.publisher, ids)
    for id, box in zip(publishers, boxes.advertisements.transpose(2, 0, 1).tolist(), strict=True):
        simulated.say(id, Advertise(id, _filter(box)))
    simulated.run_until_quiescent()
    subscribers = _attach(simulated, "s", network.subscriber, ids)
    for id, box in zip(subscribers, boxes.subscriptions.transpose(2, 0, 1).tolist(), strict=True):
        simulated.say(id, Subscribe(id, _filter(box)))
    simulated.run_until_quiescent()
    # A statement is settled before all brokers know it; here nothing takes longer than a way through the whole network.
    simulated.scheduler.run(simulated.scheduler.now_s + network.brokers * LINK_TICKS / UNIT_TICKS)
    _publish(simulated, workload, publishers)
    return _measured(simulated, ids)


def _attach(simulated: SimulatedNetwork, prefix: str, brokers: np.ndarray, ids: list[str]) -> list[str]:
    clients = [f"{prefix}{number}" for number in range(1, len(brokers) + 1)]
    for client, broker in zip(clients, brokers.tolist(), strict=True):
        simulated.add_client(client, ids[broker])
    return clients


def _filter(box: list[list[float]]) -> Filter:
    sides = (f"[{name},>=,{low}],[{name},<=,{high}]" for name, (low, high) in zip(ATTRIBUTES, box, strict=True))
    return parse_filter(",".join(("[class,eq,'BOX']", *sides)))


def _publish(simulated: SimulatedNetwork, workload: Workload, publishers: list[str]) -> None:
    scheduler, boxes = simulated.scheduler, workload.boxes
    start_s = scheduler.now_s

    def publish(row: int) -> None:
        x, y = boxes.points[:, row].tolist()
        content = {"class": "BOX", **dict(zip(ATTRIBUTES, (x, y), strict=True))}
        simulated.publish(publishers[boxes.publisher[row]], Publication(content))

    for row, ticks in enumerate(workload.at_ticks.tolist()):
        scheduler.at(start_s + ticks / UNIT_TICKS, publish, row)
    scheduler.run(start_s + float(workload.at_ticks.max(initial=0.0)) / UNIT_TICKS)
    simulated.run_until_quiescent()


def _measured(simulated: SimulatedNetwork, ids: list[str]) -> tuple[dict[str, np.ndarray], Congestion]:
    position = {id: number for number, id in enumerate(ids)}
    names = ("arrivals", "hops", "useful_arrivals", "pure_forwards", "deliveries", "delivery_hops")
    counts = {name: np.zeros(len(ids), np.int64) for name in names}
    latency_s, delay_s = 0.0, 0.0
    for rows in _visits(simulated.records):
        at, hops, delivered = position[rows[0].broker], rows[0].hops, rows[0].subscription is not None
        counts["arrivals"][at] += 1
        counts["hops"][at] += hops > 0
        counts["useful_arrivals" if delivered else "pure_forwards"][at] += 1
        if delivered:
            # The way from the publisher to its broker is a link here.
            took_s = rows[0].arrived_at_s - rows[0].published_at_s - LINK_TICKS / UNIT_TICKS
            counts["deliveries"][at] += len(rows)
            counts["delivery_hops"][at] += hops * len(rows)
            latency_s += took_s * len(rows)
            delay_s += (took_s - hops * LINK_TICKS / UNIT_TICKS) * len(rows)
    total = int(counts["deliveries"].sum())
    ticks = UNIT_TICKS / max(total, 1)
    stations = [simulated.station(id) for id in ids]
    peak = [0 if each is None or each.overload is None else each.overload.peak for each in stations]
    return counts, Congestion(latency_s * ticks, delay_s * ticks, total, counts["arrivals"], np.array(peak))


def _visits(records: list[Record]) -> Iterator[list[Record]]:
    """The rows of each arrival of a publication at a broker, which come one after the other."""
    for _, rows in groupby(records, lambda row: (row.publisher, row.sequence, row.broker)):
        yield list(rows)
