"""MINIMAL's client-broker allocation (5.1) as an allocator of the planner, on measured profiles.

Publishers that are nobody's side are clients too and get a place. The capacity of a broker is what the planner knows of it,
less headroom: messages per second where that is given, tested by eq 5 as in the text, and beside it output and matching as for
every allocator. Of all three only the share LCF is used.
"""

import numpy as np

from overweave.planning.allocate.base import Allocation, Allocator
from overweave.planning.broker_cost import deployment_order, message_capacity
from overweave.planning.filling import Filling
from overweave.planning.minimal import MinimalOptions, Offer, allocate_clients
from overweave.planning.model import Bins, Items, Model, shrunk, whole_window
from overweave.planning.model_similarity import similarity_of
from overweave.planning.problem import Whole


def minimal(options: MinimalOptions) -> Allocator:
    """The allocator with some options."""

    def allocate(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
        assert items is model.items, "clients are allocated, not layers of brokers"
        similarity, free = similarity_of(model), np.flatnonzero(model.host < 0)
        clients = _with_publishers(model, items, free)
        ids = (*model.item_ids, *(model.problem.publishers.ids[p] for p in free.tolist()))
        usable = shrunk(bins, np.full(len(bins), options.lcf))
        filling = Filling(model, usable, clients)

        def admit(client: int, bin: int) -> bool:
            return filling.put(int(clients.profile[client]), int(clients.output[client]), int(clients.entries[client]), bin)

        offer = _offer(model, bins, options.by_cost)
        found = allocate_clients(similarity, ids, offer, options, draw, fixed=_fixed_bins(clients, bins), admit=admit)
        bin = found.broker[found.home] if len(found.home) else found.home
        publisher = np.full(len(model.host), -1, np.int64)
        publisher[free] = bin[len(items) :]
        return Allocation(bin[: len(items)], len(items), publisher)

    return allocate


def _offer(model: Model, bins: Bins, by_cost: bool) -> Offer:
    """Bins in their order, by bandwidth, descending; or by cost."""
    pool, order = model.problem.pool.take(bins.broker), np.arange(len(bins))
    if by_cost and pool.cost is not None:
        order = deployment_order(message_capacity(pool), pool.cost)
    return Offer(pool.ids, bins.input_max * model.tick_hz, order, pool.cost)


def _with_publishers(model: Model, items: Items, free: Whole) -> Items:
    """Items, and free publishers as items: one brings all its publications in and sends each on once."""
    table, publishers = model.table, model.problem.publishers
    profile = [table.add(np.array([p], np.int64), whole_window(model.problem, p)[None, :]) for p in free.tolist()]
    output = np.rint(publishers.bytes_per_s[free] / model.tick_bytes_per_s).astype(np.int64)
    none = np.zeros(len(free), np.int64)
    columns = (
        (items.profile, np.array(profile, np.int64)),
        (items.output, output),
        (items.entries, none),
        (items.fixed, none - 1),
    )
    return Items(*(np.concatenate(column) for column in columns))


def _fixed_bins(items: Items, bins: Bins) -> Whole:
    where = {broker: bin for bin, broker in enumerate(bins.broker.tolist())}
    return np.array([where[broker] if broker >= 0 else -1 for broker in items.fixed.tolist()], np.int64)
