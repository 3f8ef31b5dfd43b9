"""The networks that are compared: an allocation of clients by a ranking, and a tree over its brokers (MINIMAL 5 and 6.1)."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from overweave.experiments.minimal.congestion import CAPACITY
from overweave.experiments.minimal.network import Network
from overweave.experiments.minimal.workload import Workload
from overweave.pipeline.workloads.boxes import EPSILON
from overweave.planning.box_design import TREES
from overweave.planning.box_similarity import BoxClients, Boxes, BoxSimilarity
from overweave.planning.minimal import LCF, MinimalOptions, Offer, allocate_clients


class Design(NamedTuple):
    """Which ranking allocates clients, and which tree joins brokers."""

    ranking: str
    tree: str


#: By the paper's names. "Baseline" and "DT-Baldoni" have the same allocation.
PAPER: Mapping[str, Design] = {
    "GLI": Design("gli", "commonality"),
    "GI": Design("gi", "commonality"),
    "GIg": Design("gig", "commonality"),
    "DT-Baldoni": Design("random", "baldoni"),
    "Baseline": Design("random", "random"),
}
#: The rankings and the baseline on the other's kind of tree: the effect of the allocation alone.
CROSSED: Mapping[str, Design] = {
    "GLI, random tree": Design("gli", "random"),
    "GI, random tree": Design("gi", "random"),
    "GIg, random tree": Design("gig", "random"),
    "Baseline, commonality tree": Design("random", "commonality"),
}
DESIGNS: Mapping[str, Design] = {**PAPER, **CROSSED}
RANKINGS = ("GLI", "GI", "GIg")


def networks(workload: Workload, names: Sequence[str], lcf: float = LCF) -> Iterator[tuple[str, Network]]:
    """The networks of some designs of `DESIGNS` for one workload; designs with the same ranking have the same allocation."""
    ordered, order = _clients(workload).ordered()
    similarity, publishers = BoxSimilarity(ordered), workload.options.publishers
    offer = Offer.by_capacity([f"B{i + 1}" for i in range(len(ordered))], np.full(len(ordered), float(CAPACITY)))
    for ranking in dict.fromkeys(DESIGNS[name].ranking for name in names):
        options = MinimalOptions(ranking=ranking, lcf=lcf, oversize="deploy")
        draw = np.random.default_rng([workload.seed, len(ordered)])
        found = allocate_clients(similarity, ordered.ids, offer, options, draw)
        home, brokers = np.empty(len(ordered), np.int64), len(found.broker)
        home[order] = found.home
        for name in names:
            if DESIGNS[name].ranking == ranking:
                parents = TREES[DESIGNS[name].tree](similarity, found.home, brokers, np.random.default_rng([workload.seed, 1]))
                children = np.flatnonzero(parents >= 0)
                links = np.stack([children, parents[children]], axis=1)
                yield name, Network(brokers, links, home[:publishers], home[publishers:])


def _clients(workload: Workload) -> BoxClients:
    """Publishers and then subscribers, each a client of its own."""
    advertisements, subscriptions = workload.boxes.advertisements, workload.boxes.subscriptions
    publishers, count = advertisements.shape[2], advertisements.shape[2] + subscriptions.shape[2]

    def boxes(sides: np.ndarray, owner: np.ndarray) -> Boxes:
        return Boxes(sides[:, 0].T.copy(), sides[:, 1].T + EPSILON, owner)

    return BoxClients(
        tuple(f"P{i + 1}" if i < publishers else f"s{i - publishers + 1}" for i in range(count)),
        boxes(advertisements, np.arange(publishers)),
        workload.boxes.rates.astype(np.float64),
        boxes(subscriptions, np.arange(publishers, count)),
    )
