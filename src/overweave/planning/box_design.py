"""An overlay for clients whose filters are boxes: MINIMAL from workload to brokers, places and links.

How to call it::

    clients = BoxClients(ids, Boxes(ad_lo, ad_hi, ad_client), rate_hz, Boxes(sub_lo, sub_hi, sub_client))  # arrays, or
    clients = box_clients(publishers, subscriptions)   # of filters: `overweave.planning.box_tables`
    design = design_boxes(clients, ranking="gig", tree="commonality", lcf=0.75, seed=1)  # lcf=None: by iteration
    design.brokers    # ids of the brokers in use: position i is broker number i below
    design.home       # the number of every client's broker, in the order of clients.ids
    design.links      # pairs of broker numbers
    design.load_hz    # the load of each broker by eq 5, without forwarding

Rankings are those of `rank.RANKINGS` (gli, gi, gig, random), trees those of `TREES` (commonality, baldoni, random). The paper's
baseline is ``ranking="random", tree="random"``, its DT-Baldoni ``ranking="random", tree="baldoni"``.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.box_similarity import BoxClients, BoxSimilarity
from overweave.planning.box_traffic import box_input_hz
from overweave.planning.build.baldoni import rewired
from overweave.planning.build.iterated import in_turn
from overweave.planning.build.random import random_parents
from overweave.planning.build.spanning_tree import maximum_tree
from overweave.planning.minimal import LCF, Deployment, MinimalOptions, Offer, Oversize, allocate_clients
from overweave.planning.problem import Reals, Whole
from overweave.planning.rank import RANKINGS
from overweave.planning.similarity import Similarity

#: MINIMAL table 1: messages per time unit.
CAPACITY_HZ = 1000.0

#: The parents of a tree over brokers, from similarity, the broker of every client, and the number of brokers.
Joining = Callable[[Similarity, Whole, int, np.random.Generator], Whole]
#: How brokers are joined, by name.
TREES: Mapping[str, Joining] = {
    "commonality": lambda similarity, home, brokers, draw: maximum_tree(brokers, similarity.commonality(home, brokers)),  # noqa: ARG005
    "baldoni": lambda similarity, home, brokers, draw: rewired(brokers, similarity.zones(home, brokers), draw),
    "random": lambda similarity, home, brokers, draw: random_parents(brokers, draw),  # noqa: ARG005
}


@dataclass(frozen=True, eq=False)
class BoxDesign:
    """Brokers in use, the number of every client's broker among them, and links as pairs of such numbers."""

    brokers: tuple[str, ...]
    home: Whole
    links: Whole
    load_hz: Reals


def design_boxes(
    clients: BoxClients,
    *,
    ranking: str = "gig",
    tree: str = "commonality",
    lcf: float | None = LCF,
    seed: int = 0,
    oversize: Oversize = "deploy",
    capacity_hz: Reals | float = CAPACITY_HZ,
    ids: tuple[str, ...] | None = None,
    cost: Reals | None = None,
) -> BoxDesign:
    """The design. One capacity is that of as many brokers as there are clients; ``ids`` and ``cost`` are those of an array.

    Without an ``lcf`` allocation and overlay are repeated until forwarding overloads nobody (see `build.iterated`).
    """
    for name, value, known in (("ranking", ranking, RANKINGS), ("tree", tree, TREES)):
        if value not in known:
            raise PlanningError(f"{name}: expected one of {', '.join(known)}, found {value!r}")
    clients.validate()
    ordered, order = clients.ordered()
    capacity = np.full(len(clients), float(capacity_hz)) if np.ndim(capacity_hz) == 0 else np.asarray(capacity_hz, np.float64)
    offer = Offer.by_capacity(ids or tuple(f"B{i + 1}" for i in range(len(capacity))), capacity, cost)
    options = MinimalOptions(ranking=ranking, lcf=1.0 if lcf is None else lcf, oversize=oversize)
    task = _Task(ordered, BoxSimilarity(ordered), options, TREES[tree], seed)
    found, parents = task.design(offer) if lcf is not None else _iterated(task, offer)
    home = np.empty(len(clients), np.int64)
    home[order] = found.home
    children = np.flatnonzero(parents >= 0)
    links = np.stack([children, parents[children]], axis=1)
    return BoxDesign(tuple(offer.ids[i] for i in found.broker.tolist()), home, links, found.load_hz)


@dataclass(frozen=True, eq=False)
class _Task:
    """What a design is made of, apart from the brokers on offer."""

    clients: BoxClients
    similarity: Similarity
    options: MinimalOptions
    join: Joining
    seed: int

    def design(self, offer: Offer) -> tuple[Deployment, Whole]:
        draw = np.random.default_rng(self.seed)
        found = allocate_clients(self.similarity, self.clients.ids, offer, self.options, draw)
        return found, self.join(self.similarity, found.home, len(found.broker), draw)


def _iterated(task: _Task, offer: Offer) -> tuple[Deployment, Whole]:
    def attempt(share: Reals) -> tuple[tuple[Deployment, Whole], int, Reals]:
        found, parents = task.design(replace(offer, capacity_hz=offer.capacity_hz * share))
        input_hz = box_input_hz(task.clients, found.home, parents, np.random.default_rng(task.seed))
        over = np.zeros(len(share))
        over[found.broker] = np.maximum(input_hz / offer.capacity_hz[found.broker] - 1, 0.0)
        return (found, parents), len(found.broker), over

    return in_turn(attempt, len(offer.ids))
