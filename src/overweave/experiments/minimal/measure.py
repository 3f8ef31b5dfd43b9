"""Networks of MINIMAL's evaluation as tables: one row per workload, load compensation factor and design.

Counts are replayed, congestion is run event by event; both are checked against the simulator on a small workload.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec
import numpy as np
import pandas as pd

from overweave.experiments.minimal.congestion import CAPACITY, congest
from overweave.experiments.minimal.counts import count
from overweave.experiments.minimal.designs import CROSSED, DESIGNS, PAPER, RANKINGS, networks
from overweave.experiments.minimal.network import Network
from overweave.experiments.minimal.simulation import simulate
from overweave.experiments.minimal.workload import GENERATORS, Generator, Workload, make_workload
from overweave.planning.minimal import LCF

Progress = Callable[[str], None]

#: The number of clients of figure 8.
LCF_CLIENTS = 2_400
LCFS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.9, 1.0)
#: The clients in the simulator, and brokers with the capacity for a fifth as many messages, which some of them exceed.
CHECK_CLIENTS, CHECK_SHARE = 200, 0.2


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large everything is; the defaults are the paper's."""

    clients: tuple[int, ...] = (800, 1_600, 2_400, 3_200, 4_000)
    seeds: tuple[int, ...] = (1, 2, 3, 4, 5)
    generators: tuple[Generator, ...] = GENERATORS
    #: At the largest number of clients also the designs that are not the paper's.
    crossed: tuple[str, ...] = tuple(CROSSED)
    lcf_clients: int = LCF_CLIENTS
    lcfs: tuple[float, ...] = LCFS
    lcf_designs: tuple[str, ...] = (*RANKINGS, "Baseline")
    check_clients: int = CHECK_CLIENTS


def sizes(full: bool) -> Sizes:
    """Full: the paper's, in a quarter of an hour. Quick: one seed, fewer sizes and factors."""
    if full:
        return Sizes()
    return Sizes(
        clients=(800, 1_600, 2_400, 4_000),
        seeds=(1,),
        crossed=("Baseline, commonality tree",),
        lcfs=(0.3, 0.5, 0.75, 1.0),
        lcf_designs=RANKINGS,
    )


def growing(of: Sizes, generator: Generator, seed: int, say: Progress) -> pd.DataFrame:
    """Figures 5 to 7: all numbers of clients, with the default factor."""
    rows = []
    for clients in of.clients:
        say(f"{generator}, seed {seed}: {clients:,} clients")
        names = [*PAPER, *(of.crossed if clients == max(of.clients) else ())]
        rows += measured(make_workload(clients, generator, seed), names, LCF)
    return pd.DataFrame(rows)


def compensated(of: Sizes, generator: Generator, seed: int, say: Progress) -> pd.DataFrame:
    """Figure 8: all load compensation factors."""
    workload = make_workload(of.lcf_clients, generator, seed)
    rows = []
    for lcf in of.lcfs:
        say(f"{generator}, seed {seed}: LCF {lcf:g}")
        rows += measured(workload, of.lcf_designs, lcf)
    return pd.DataFrame(rows)


def measured(workload: Workload, names: Sequence[str], lcf: float) -> list[dict[str, Any]]:
    """The rows of some designs for one workload, in their order; kernels let other threads run."""

    def row(found: tuple[str, Network]) -> dict[str, Any]:
        name, network = found
        return {
            "generator": workload.options.boxes,
            "seed": workload.seed,
            "clients": len(network.publisher) + len(network.subscriber),
            "lcf": lcf,
            "design": name,
            **measure(workload, network),
        }

    with ThreadPoolExecutor(os.cpu_count()) as threads:
        rows = list(threads.map(row, networks(workload, names, lcf)))
    order = {name: place for place, name in enumerate(DESIGNS)}
    return sorted(rows, key=lambda each: order[each["design"]])


def measure(workload: Workload, network: Network) -> dict[str, float]:
    """The measures of 6.1. A message is a publication that one broker sends to another, load is what arrives at a broker."""
    counts = count(workload, network)
    congestion = congest(workload, network, counts)
    arrivals, forwards = counts["arrivals"], counts["pure_forwards"]
    busy = arrivals > 0
    return {
        "brokers": network.brokers,
        "publications": workload.publications,
        "messages": counts["hops"].sum() / workload.publications,
        "latency_ticks": congestion.latency_ticks,
        "processing_delay_ticks": congestion.delay_ticks,
        "hops": counts["delivery_hops"].sum() / max(congestion.deliveries, 1),
        "pure_forwarding": float((forwards[busy] / arrivals[busy]).mean()),
        "peak_load_mean": float(congestion.peak.mean()),
        "peak_load_max": float(congestion.peak.max()),
        "overloaded": float((congestion.peak > CAPACITY).mean()),
    }


def compared(of: Sizes, say: Progress) -> pd.DataFrame:
    """A small workload of each generator by replay and kernel, and in the simulator."""
    return pd.DataFrame([row for generator in of.generators for row in _compared(generator, of.check_clients, say)])


def _compared(generator: Generator, clients: int, say: Progress) -> Iterator[dict[str, Any]]:
    workload, capacity = make_workload(clients, generator, 1), round(CHECK_SHARE * clients)
    for name, network in networks(workload, ["GIg", "Baseline"], LCF * capacity / CAPACITY):
        say(f"{generator}, {name}: {clients} clients in the simulator")
        counts = count(workload, network)
        ours = congest(workload, network, counts, capacity)
        seen, theirs = simulate(workload, network, capacity)
        yield {
            "generator": generator,
            "design": name,
            "clients": clients,
            "brokers": network.brokers,
            "counts_differ": sum(int((counts[name] != each).sum()) for name, each in seen.items()),
            "peaks_differ": int((ours.peak != theirs.peak).sum()),
            "latency_ticks": ours.latency_ticks,
            "latency_ticks_simulated": theirs.latency_ticks,
            "processing_delay_ticks": ours.delay_ticks,
            "processing_delay_ticks_simulated": theirs.delay_ticks,
            "overloaded": float(np.mean(ours.peak > capacity)),
        }
