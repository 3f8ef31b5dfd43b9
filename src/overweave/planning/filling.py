"""Bins being filled: first fit and single puts, with the capacity test of THESIS 6.2.1 on both input and output."""

import numpy as np

from overweave.errors import DoesNotFit, GoalNotMet
from overweave.planning.kernels.packing import pack_items, plant, put
from overweave.planning.model import Bins, Items, Model
from overweave.planning.problem import Whole


class Filling:
    """Bins and their contents. Unions of input are kept only if input could be the bottleneck."""

    def __init__(self, model: Model, bins: Bins, items: Items) -> None:
        self.model, self.bins = model, bins
        self.binding = model.may_bind(bins, int(items.entries.sum()))
        self.rooms = bins.room.copy()
        self.inputs = np.zeros(len(bins), np.int64)
        self.entries = np.zeros(len(bins), np.int64)
        publishers = len(model.problem.publishers) if self.binding else 1
        rows = int(model.table.count[items.profile].sum()) if self.binding and len(items) else 0
        self._slots = np.full((len(bins), max(publishers, 1)), -1, np.int64)
        self._unions = np.zeros((rows + 1, model.table.words.shape[1]), np.uint64)
        self._used = np.zeros(1, np.int64)
        self._none = model.table.add(np.zeros(0, np.int64), model.table.words[:0])
        self._limits = bins.base_s, bins.slope_s, bins.busy_max, bins.input_max

    def put(self, profile: int, output: int, entries: int, bin: int) -> bool:
        """Put one item into a bin if it holds it."""
        table, weight = self.model.table, self.model.input_weight
        shown = profile if self.binding else self._none
        done = put(
            shown, output, entries, bin, table.start, table.count, table.publisher, table.words, weight, self.rooms,
            *self._limits, self.inputs, self.entries, self._slots, self._unions, self._used,
        )  # fmt: skip
        return bool(done)

    def first_fit(self, items: Items, order: Whole, placed: Whole) -> int:
        """Put items into the first bin that holds them; the first item that none holds, or -1."""
        table, weight, tree = self.model.table, self.model.input_weight, tree_of(self.rooms)
        shown = items.profile if self.binding else np.full(len(items), self._none, np.int64)
        failed = pack_items(
            order, shown, items.output, items.entries, table.start, table.count, table.publisher, table.words, weight, self.rooms,
            *self._limits, self.inputs, self.entries, self._slots, self._unions, self._used, tree, placed,
        )  # fmt: skip
        return int(failed)

    def pin(self, items: Items) -> Whole:
        """Put pinned items into their bins; returns the bin of each item, -1 for free ones."""
        placed = np.full(len(items), -1, np.int64)
        where = {broker: bin for bin, broker in enumerate(self.bins.broker.tolist())}
        for item in np.flatnonzero(items.fixed >= 0).tolist():
            bin = where[int(items.fixed[item])]
            if not self.put(int(items.profile[item]), int(items.output[item]), int(items.entries[item]), bin):
                id = self.model.problem.pool.ids[int(items.fixed[item])]
                raise GoalNotMet("pins", f"broker {id!r} has no room for all that is pinned to it")
            placed[item] = bin
        return placed


def descending(items: Items) -> Whole:
    """Items by output, the largest first; equal ones in their order (THESIS 6.2.2)."""
    return np.lexsort((np.arange(len(items)), -items.output))


def pack(model: Model, items: Items, bins: Bins, order: Whole) -> Whole:
    """First fit of all items in an order, pinned ones first; the bin of each."""
    filling = Filling(model, bins, items)
    placed = filling.pin(items)
    failed = filling.first_fit(items, order, placed)
    if failed >= 0:
        raise does_not_fit(model, items, bins, failed)
    return placed


def does_not_fit(model: Model, items: Items, bins: Bins, item: int) -> DoesNotFit:
    """The error that names an item; items of upper layers are brokers, named by the builder of the layer."""
    bytes_per_s = float(items.output[item]) * model.tick_bytes_per_s
    id = model.item_ids[item] if items is model.items else None
    who = "a broker of the layer below" if id is None else f"client {id!r}"
    return DoesNotFit(id, f"{who}: no broker of {len(bins)} has room for its {bytes_per_s:.6g} bytes/s", item)


def tree_of(rooms: Whole) -> Whole:
    """Rooms as the tree that kernels search."""
    size = 1
    while size < len(rooms):
        size *= 2
    tree = np.empty(2 * size, np.int64)
    plant(rooms, tree)
    return tree
