"""The filters of an index as arrays behind one pointer, and the growth of these arrays (decision 0002)."""

import numpy as np
from numpy.typing import NDArray

from overweave.errors import WireError
from overweave.language.codec import address_of_bytes
from overweave.matching.kernels import state as layout
from overweave.matching.kernels.columns import BOUNDS_SAMPLED, cut_column, sample_bounds
from overweave.matching.kernels.compile import direct
from overweave.matching.kernels.handle import address_of, table_of
from overweave.matching.kernels.insert import DONE, MALFORMED, REBALANCE, due_column, insert_filter, insert_filters
from overweave.matching.kernels.partitions import rebuild_partitions
from overweave.matching.kernels.planes import redraw_column
from overweave.matching.kernels.remove import remove_filter
from overweave.matching.kernels.texts import rebuild_texts


class FilterArrays:
    """Filters by slot in arrays that grow; kernels reach them by ``address``.

    Kernels allocate nothing. Where an array is too short they stop, and it grows here before the kernel continues.
    """

    __slots__ = ("_insert_filter", "_remove_filter", "_table", "address", "state")

    def __init__(self, state: layout.State) -> None:
        self.bind(state)
        self._insert_filter, self._remove_filter = direct(insert_filter), direct(remove_filter)

    def __len__(self) -> int:
        return int(self.state.counters[layout.FILTERS])

    @property
    def slots_used(self) -> int:
        """One more than the highest slot."""
        return int(self.state.counters[layout.SLOTS_USED])

    def insert(self, encoded: bytes, link: int) -> int:
        """The slot of one more filter, given in its wire form."""
        while True:
            slot: int
            slot, why = divmod(self._insert_filter(self.address, *address_of_bytes(encoded), link), 4)
            if why == MALFORMED:
                raise WireError(0, "a filter in its wire form")
            if why == REBALANCE:
                self._rebalance_buckets(slot)
            if why in (DONE, REBALANCE):
                return slot
            self._grow()

    def insert_bulk(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], links: NDArray[np.int32], slots: NDArray[np.int32]
    ) -> None:
        """Insert filters in their wire form, ``data[offsets[i]:offsets[i + 1]]``, and fill in their slots."""
        why, done = insert_filters(self.address, data, offsets, links, slots, 0)
        while why != DONE:
            if why == MALFORMED:
                raise WireError(int(offsets[done]), "a filter in its wire form")
            if why == REBALANCE:
                self._rebalance_buckets(int(slots[done - 1]))
            else:
                self._grow()
            why, done = insert_filters(self.address, data, offsets, links, slots, done)

    def remove(self, slot: int) -> int:
        """Remove the filter in a slot; the number of its link."""
        link: int = self._remove_filter(self.address, slot)
        return link

    def grow_links(self, count: int) -> None:
        """Make room for ``count`` links."""
        if count > len(self.state.link_hits):
            layout.make_room_for_links(self.state, count)
            self.bind(self.state)

    def bind(self, state: layout.State) -> layout.State:
        """Make ``state`` the one that kernels see; the only place where an array of it is replaced."""
        self.state = state
        self._table = table_of(state)
        self.address = address_of(self._table)
        return state

    def copy(self) -> "FilterArrays":
        """Arrays of the same filters."""
        return FilterArrays(layout.State._make(array.copy() for array in self.state))

    def _rebalance_buckets(self, slot: int) -> None:
        """Rebalance the buckets of the filter's columns by the quantiles of their bounds."""
        while (column := due_column(self.address, slot)) != layout.NONE:
            sample = np.empty(BOUNDS_SAMPLED, np.float64)
            sample = np.sort(sample[: sample_bounds(self.address, column, sample)])
            if cut_column(self.address, column, sample):
                redraw_column(self.address, column)

    def _grow(self) -> None:
        """Grow the arrays that are too short. Before, garbage is removed from the dictionary, and hash tables are rebuilt."""
        state, counters, needed = self.state, self.state.counters, self.state.needed
        texts = int(counters[layout.TEXTS_LIVE] + needed[1])
        if 2 * (counters[layout.TEXT_TABLE_USED] + needed[1]) > len(state.text_table) or (
            2 * counters[layout.HEAP_GARBAGE] > len(state.heap)
        ):
            table, heap = _empty_table(texts), np.empty_like(state.heap)
            rebuild_texts(self.address, table, heap)
            state = self.bind(state._replace(text_table=table, heap=heap))
        if 2 * (counters[layout.PARTITION_TABLE_USED] + needed[4]) > len(state.partition_table):
            table = _empty_table(int(counters[layout.PARTITIONS_LIVE] + needed[4]))
            rebuild_partitions(self.address, table)
            state = self.bind(state._replace(partition_table=table))
        try:
            layout.make_room(state)
        finally:  # also when memory ran out half-way: arrays may have moved
            self.bind(state)


def _empty_table(members: int) -> NDArray[np.int32]:
    """An open-addressing table that is at most a quarter full with ``members``."""
    return np.full(1 << max(8, (4 * members).bit_length()), layout.NONE, np.int32)
