"""Where rows of publications lie in bytes, and what is read of each of them (see `overweave.batches.raw`)."""

import numpy as np
from numpy.typing import NDArray

from overweave.batches.kernels import HEAD, walk_rows
from overweave.errors import WireError

Bytes = NDArray[np.uint8]


class Layout:
    """Of some rows that fill some bytes; a `WireError` if they do not."""

    __slots__ = ("content_ends", "content_starts", "hops", "new_publisher", "sequences", "starts", "times", "ttl")

    def __init__(self, data: Bytes, count: int) -> None:
        if not 0 < count <= len(data) // HEAD:
            raise WireError(0, f"rows of at least {HEAD} bytes, got {count} in {len(data)} bytes")
        self.starts, *others = np.empty(count + 1, np.int64), *(np.empty(count, np.int64) for _ in range(3))
        self.content_starts, self.content_ends, self.sequences = others
        self.times, self.hops = np.empty(count, np.float64), np.empty(count, np.uint8)
        #: Whether a row has another publisher than the one before, or is of another life of it.
        self.new_publisher = np.empty(count, np.bool_)
        #: The least ttl of a row, or less.
        sound, self.ttl = walk_rows(
            data, count, self.starts, self.content_starts, self.content_ends, self.sequences, self.times.view(np.uint64),
            self.hops, self.new_publisher,
        )  # fmt: skip
        if sound != count:
            raise WireError(int(self.starts[sound - 1]) if sound else 0, f"row {sound} of {count} in its wire form")

    def picked(self, rows: NDArray[np.int64], starts: NDArray[np.int64], grown: NDArray[np.int64] | int) -> "Layout":
        """Of some of the rows, where they begin in other bytes, with the content of each so much farther from there."""
        made = object.__new__(Layout)
        some = slice(None) if len(rows) == len(self.times) else rows
        moved = starts[:-1] - self.starts[:-1][some] + grown
        made.starts, made.ttl = starts, self.ttl
        made.content_starts, made.content_ends = self.content_starts[some] + moved, self.content_ends[some] + moved
        made.sequences, made.times, made.hops = self.sequences[some], self.times[some], self.hops[some]
        runs = np.cumsum(self.new_publisher)[some]
        made.new_publisher = np.concatenate(([True], runs[1:] != runs[:-1]))
        return made
