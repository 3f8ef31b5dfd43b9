"""Counts of a network by replay: what each broker carries, by the kernel of `overweave.pipeline.steps.replay`."""

import numpy as np
from numpy.typing import NDArray

from overweave.experiments.minimal.network import Network
from overweave.experiments.minimal.workload import Workload
from overweave.overlay.paths import next_hops
from overweave.pipeline.steps.replay import COLUMNS, walk

Counts = NDArray[np.int64]


def count(workload: Workload, network: Network) -> dict[str, Counts]:
    """Per broker, under filter-based routing: the columns of `overweave.pipeline.steps.replay.LOADS`."""
    hops = next_hops(network.overlay())
    towards, distances = np.ascontiguousarray(hops.table.T), np.ascontiguousarray(hops.distances)
    counts, scratch = np.zeros((network.brokers, len(COLUMNS)), np.int64), np.zeros((3, network.brokers + 1), np.int64)
    sources = network.publisher[workload.boxes.publisher]
    placed = network.subscriber.astype(np.int32)
    walk(sources, workload.matches, workload.ends, placed, towards, distances, False, 0, scratch, counts)
    found = dict(zip(COLUMNS, counts.T, strict=True))
    found["pure_forwards"] = found["arrivals"] - found["useful_arrivals"]
    return found
