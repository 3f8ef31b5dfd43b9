"""Simulated networks for the experiments: protocols as DEST names them, overlays, starting, and waiting until all is quiet."""

import copy
import gc
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

from overweave.contract.config import BrokerConfig
from overweave.contract.modules import Module
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.performers import OnDelivery
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

#: By the name of the protocol: what DEST calls it.
TITLES = {"filter": "FBR", "filter-general": "FBR", "destination": "D-DBR", "merc": "MERC"}
#: The three that DEST compares, where the overlay has cycles.
GENERAL = ("filter-general", "destination", "merc")
#: DEST V-A: 10 of 100 brokers are edge brokers, each of one cluster with nine internal brokers.
_CLUSTER = 10
#: The cluster that all edge brokers are in besides.
TRANSIT = "transit"
#: Links inside a computing facility.
LINK_DELAY_S = 0.0002
_QUIET_STEP_S = 0.25

_Argument = TypeVar("_Argument")
_Result = TypeVar("_Result")


def available(protocols: Iterable[str]) -> list[str]:
    """Those of the protocols that there are."""
    return [protocol for protocol in protocols if protocol in PROTOCOLS]


def overlay_for(protocol: str, brokers: int, degree: float, seed: int) -> Overlay:
    """The general topology of DEST V-A: a random graph, and for MERC clusters."""
    if protocol == "merc":
        return transit_stub(brokers // _CLUSTER, degree, seed)
    return make_overlay("random-graph", brokers=brokers, degree=degree, seed=seed)


def transit_stub(clusters: int, degree: float, seed: int) -> Overlay:
    """Clusters of ten with one edge broker each, which are a cluster themselves: the first is B1, the next B11.

    What the paper's brokers store fits this, and not edge brokers between pairs of clusters, as the shape of that name has them:
    90 brokers with 1,800 subscriptions and 10 with all 3,000 have 1,920 on average, and the paper says 1,945.
    """
    degree_transit = min(degree, clusters - 1)
    links_inside = (clusters * _CLUSTER * degree - clusters * degree_transit) / 2 / clusters
    middle = make_overlay("random-graph", brokers=clusters, degree=degree_transit, seed=seed)
    names = [f"B{number}" for number in range(1, clusters * _CLUSTER + 1)]
    edges = names[::_CLUSTER]
    links = [(edges[middle.position(link.first)], edges[middle.position(link.second)]) for link in middle.links]
    values = []
    for number, first in enumerate(range(0, len(names), _CLUSTER), 1):
        members = names[first : first + _CLUSTER]
        part = make_overlay("random-graph", brokers=_CLUSTER, degree=2 * round(links_inside) / _CLUSTER, seed=seed + number)
        links += [(members[part.position(link.first)], members[part.position(link.second)]) for link in part.links]
        values += [Broker(id, cluster=f"C{number}", other_clusters=(TRANSIT,) if id in edges else ()) for id in members]
    return Overlay(values, links)


def started(
    overlay: Overlay,
    protocol: str,
    costs: Costs | None = None,
    config: BrokerConfig | None = None,
    watcher: Callable[[str], Module] | None = None,
    on_delivery: OnDelivery | None = None,
    own_costs: Mapping[str, Costs] | None = None,
) -> SimulatedNetwork:
    """A network whose brokers know each other; ``watcher`` makes a module that looks on at each."""
    network = SimulatedNetwork(
        overlay,
        PROTOCOLS[protocol].make,
        costs=costs or Costs(link_delay_s=LINK_DELAY_S),
        config=config or BrokerConfig(),
        make_modules=lambda at: {} if watcher is None else {"watcher": watcher(at.broker)},
        on_delivery=on_delivery,
        own_costs=own_costs,
    )
    quieten(network)
    return network


def quieten(network: SimulatedNetwork, within_s: float = 600.0) -> None:
    """Run until no broker waits."""
    end_s = network.scheduler.now_s + within_s
    network.scheduler.run(network.scheduler.now_s + _QUIET_STEP_S)
    while network.unsettled() or any(network.broker(id).statistics().unsettled for id in network.running()):
        if network.scheduler.now_s > end_s:
            raise RuntimeError(f"the network is not quiet after {within_s:g} simulated seconds")
        network.scheduler.run(network.scheduler.now_s + _QUIET_STEP_S)


def copied(network: SimulatedNetwork) -> SimulatedNetwork:
    """Another network with the same past and a future of its own; nothing of it may hold a function that knows the first."""
    limit = sys.getrecursionlimit()
    # From broker to broker, everything hangs together.
    sys.setrecursionlimit(1_000_000)
    try:
        return copy.deepcopy(network)
    finally:
        sys.setrecursionlimit(limit)


def spread(function: Callable[[_Argument], _Result], arguments: Iterable[_Argument], processes: int) -> Iterable[_Result]:
    """The results in order; with several processes, as many at a time."""
    if processes <= 1:
        yield from map(function, arguments)
        return
    with ProcessPoolExecutor(processes, get_context("spawn"), _without_garbage) as pool:
        yield from pool.map(function, arguments)


def _without_garbage() -> None:
    """What a network holds it holds until the end: looking for garbage in it takes a quarter of the time."""
    gc.disable()
