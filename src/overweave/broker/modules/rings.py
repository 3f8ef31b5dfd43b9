"""Rings: bounded bit vectors over sequence numbers (THESIS 6.1.2), many in one array.

The bit of a number stands at its remainder by the number of bits. The thesis shifts a vector when its window moves; a ring only
clears the places of the numbers that the window passes. Rings over the same numbers can be compared without alignment.
"""

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from overweave.contract.profiles import VECTORS_BYTES_MAX
from overweave.matching.kernels.compile import kernel

WORD = 64
#: Stands for a ring that there was no room for.
NO_RING = -1
Rows = NDArray[np.int64]


class Rings:
    """Rings of ``bits`` places by number, at most `VECTORS_BYTES_MAX` bytes; a ring that was freed is used again."""

    def __init__(self, bits: int) -> None:
        self.bits = bits
        self._count_max = VECTORS_BYTES_MAX * 8 // bits
        self._words = np.zeros((16, bits // WORD), np.uint64)
        #: The last number of each ring; -1: it is empty.
        self._ends = np.full(16, -1, np.int64)
        self._used = 0
        self._free: list[int] = []

    @property
    def count(self) -> int:
        """The number of rings in use."""
        return self._used - len(self._free)

    def new(self) -> int:
        """An empty ring; `NO_RING` if there is no room."""
        if self._free:
            return self._free.pop()
        if self._used >= self._count_max:
            return NO_RING
        if self._used == len(self._ends):
            more = min(self._used, self._count_max - self._used)
            self._words = np.concatenate((self._words, np.zeros((more, self._words.shape[1]), np.uint64)))
            self._ends = np.concatenate((self._ends, np.full(more, -1, np.int64)))
        self._used += 1
        return self._used - 1

    def free(self, rings: Iterable[int]) -> None:
        """Clear rings that are no longer used."""
        for ring in rings:
            self._words[ring] = 0
            self._ends[ring] = -1
            self._free.append(ring)

    def mark_all(self, rings: Rows, sequences: Rows) -> None:
        """Set the bits of all numbers in all these rings."""
        if len(sequences) > self.bits:  # the first ones would only be cleared again
            sequences = sequences[sequences > sequences.max() - self.bits]
        _mark_all(self._words, self._ends, rings, sequences, self.bits)

    def mark_groups(self, groups: Rows, sequences: Rows, starts: Rows, rings: Rows) -> None:
        """Set the bit of each number in all rings of the group beside it: those of group i are from ``starts[i]`` on."""
        _mark_groups(self._words, self._ends, groups, sequences, starts, rings, self.bits)

    def end(self, ring: int) -> int:
        """The last number of a ring; -1: it is empty."""
        return int(self._ends[ring])

    def vector(self, ring: int) -> bytes:
        """The words of a ring, the least significant byte first."""
        return bytes(self._words[ring].astype("<u8").data)


@kernel
def _mark_all(words, ends, rings, sequences, bits):  # type: ignore[no-untyped-def]
    for i in range(len(rings)):
        for j in range(len(sequences)):
            _mark(words, ends, rings[i], sequences[j], bits)


@kernel
def _mark_groups(words, ends, groups, sequences, starts, rings, bits):  # type: ignore[no-untyped-def]
    for i in range(len(groups)):
        for j in range(starts[groups[i]], starts[groups[i] + 1]):
            _mark(words, ends, rings[j], sequences[i], bits)


@kernel
def _mark(words, ends, ring, sequence, bits):  # type: ignore[no-untyped-def]
    end = ends[ring]
    if sequence <= end:
        if sequence <= end - bits:
            return
        place = sequence % bits
    else:
        if end < 0 or sequence - end >= bits:
            for word in range(words.shape[1]):
                words[ring, word] = 0
            place = sequence % bits
        else:
            place = (end + 1) % bits
            for _ in range(sequence - end - 1):
                words[ring, place >> 6] &= ~(np.uint64(1) << np.uint64(place & 63))
                place += 1
                if place == bits:
                    place = 0
        ends[ring] = sequence
    words[ring, place >> 6] |= np.uint64(1) << np.uint64(place & 63)
