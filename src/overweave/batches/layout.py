"""The layout of rows of publications in bytes, and the fields read from each of them (see `overweave.batches.raw`)."""

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from overweave.batches.kernels import HEAD, gather_rows, walk_rows
from overweave.batches.row_codec import ROW_HEAD, decode_name
from overweave.errors import WireError

Bytes = NDArray[np.uint8]


class Layout:
    """The offsets and fields of rows that fill some bytes; a `WireError` if they do not."""

    __slots__ = ("content_ends", "content_starts", "has_lists", "hops", "new_publisher", "sequences", "starts", "times", "ttl")

    def __init__(self, data: Bytes, count: int) -> None:
        check_count(data, count)
        self.starts, *others = np.empty(count + 1, np.int64), *(np.empty(count, np.int64) for _ in range(3))
        self.content_starts, self.content_ends, self.sequences = others
        self.times, self.hops = np.empty(count, np.float64), np.empty(count, np.uint8)
        #: Whether a row has another publisher than the one before, or another life of it.
        self.new_publisher = np.empty(count, np.bool_)
        #: The least ttl of a row, or less; and whether any row has a destination list.
        sound, self.ttl, self.has_lists = walk_rows(
            data, count, self.starts, self.content_starts, self.content_ends, self.sequences, self.times.view(np.uint64),
            self.hops, self.new_publisher,
        )  # fmt: skip
        if sound != count:
            raise WireError(int(self.starts[sound - 1]) if sound else 0, f"row {sound} of {count} in its wire form")

    def picked(self, rows: NDArray[np.int64], starts: NDArray[np.int64], grown: NDArray[np.int64] | int) -> "Layout":
        """The layout of a selection of the rows in other bytes, where each head has grown by some bytes."""
        made = object.__new__(Layout)
        some = slice(None) if len(rows) == len(self.times) else rows
        moved = starts[:-1] - self.starts[:-1][some] + grown
        made.starts, made.ttl, made.has_lists = starts, self.ttl, self.has_lists
        made.content_starts, made.content_ends = self.content_starts[some] + moved, self.content_ends[some] + moved
        made.sequences, made.times, made.hops = self.sequences[some], self.times[some], self.hops[some]
        runs = np.cumsum(self.new_publisher)[some]
        made.new_publisher = np.concatenate(([True], runs[1:] != runs[:-1]))
        return made


class RowBuffer:
    """Rows in their wire form, parsed when a field is first read; shared by all batches of the same bytes."""

    __slots__ = ("__dict__", "count", "data", "lists")

    def __init__(self, data: Bytes, count: int) -> None:
        self.data, self.count = data, count
        #: The destination lists as bits, once read (`RawRows.destination_lists`).
        self.lists: NDArray[np.uint64] | None = None

    @cached_property
    def layout(self) -> Layout:
        """The offsets and fields of all rows."""
        return Layout(self.data, self.count)

    @cached_property
    def runs(self) -> list[tuple[str, int, int, int]]:
        """Publisher, life id, first row and end of each run of rows by one publisher."""
        begins = np.flatnonzero(self.layout.new_publisher).tolist()
        return [(*self._publisher(begin), begin, end) for begin, end in zip(begins, [*begins[1:], self.count], strict=True)]

    def sizes(self) -> NDArray[np.int64]:
        """The size of the content and payload of each row."""
        return self.layout.starts[1:] - self.layout.content_starts

    def take(self, rows: NDArray[np.int64]) -> "RowBuffer":
        """A copy of a selection of the rows."""
        layout = self.layout
        starts = np.empty(len(rows) + 1, np.int64)
        data = np.empty(int((layout.starts[rows + 1] - layout.starts[rows]).sum()), np.uint8)
        gather_rows(self.data, layout.starts, rows, data, starts)
        return self.moved(rows, data, starts, 0)

    def moved(
        self, rows: NDArray[np.int64], data: Bytes, starts: NDArray[np.int64], grown: NDArray[np.int64] | int
    ) -> "RowBuffer":
        """A selection of the rows that was copied to other bytes, where each head has grown by some bytes."""
        made = RowBuffer(data, len(rows))
        made.__dict__["layout"] = self.layout.picked(rows, starts, grown)
        return made

    def _publisher(self, row: int) -> tuple[str, int]:
        """The publisher of a row, and its life id."""
        at = int(self.layout.starts[row])
        _, _, life, _, _, _, _, _, length, _, _ = ROW_HEAD.unpack_from(self.data.data, at)
        return decode_name(self.data[at + HEAD : at + HEAD + length].tobytes(), at), life


def check_count(data: Bytes, count: int) -> None:
    """Refuse a count of rows that cannot fit into some bytes."""
    if not 0 < count <= len(data) // HEAD:
        raise WireError(0, f"rows of at least {HEAD} bytes, got {count} in {len(data)} bytes")
