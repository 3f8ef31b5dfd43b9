"""Destination lists: sets of broker numbers, as bits and in their wire form, and the operations on the lists of a batch.

A batch has its lists in one of two forms (`BatchHead`). Usually all rows share one list, and only the head is replaced. Rows with
lists of their own are masked by word and written again.
"""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.batches.kernels import BITMAP, HEAD, LIST_BYTES_MAX, LIST_LENGTH, NUMBERS, unite_destinations
from overweave.errors import LanguageError, WireError

#: Broker numbers in destination lists are below this, so that a bitmap of them is short enough.
NUMBERS_MAX = 8 * (LIST_BYTES_MAX - 1)
Lists = NDArray[np.uint64]


class NextHops:
    """The forwarding table of one broker: the brokers that each neighbour leads to, as bits by their numbers.

    >>> NextHops([("B2", 0b110), ("B5", 0b1000)]).split(0b11010)
    [('B2', 2), ('B5', 8), (None, 16)]
    """

    __slots__ = ("by_neighbour", "known")

    def __init__(self, by_neighbour: Iterable[tuple[str, int]]) -> None:
        self.by_neighbour = tuple(by_neighbour)
        self.known = 0
        for _, bits in self.by_neighbour:
            self.known |= bits

    def split(self, destinations: int) -> list[tuple[str | None, int]]:
        """A destination list by next hop; None: unreachable."""
        parts: list[tuple[str | None, int]] = [
            (hop, destinations & bits) for hop, bits in self.by_neighbour if destinations & bits
        ]
        lost = destinations & ~self.known
        return [*parts, (None, lost)] if lost else parts


def destination_counts(batch: Batch) -> Mapping[int, int]:
    """The number of rows for each destination, by broker number."""
    if not batch.head.has_lists:
        return dict.fromkeys(numbers_of(batch.head.destinations), batch.count)
    counts = np.unpackbits(batch.destination_lists().view(np.uint8), axis=1, bitorder="little").sum(axis=0)
    return {number: int(counts[number]) for number in np.flatnonzero(counts).tolist()}


def with_destinations(batch: Batch, found: Iterable[tuple[int, NDArray[np.int64]]]) -> Batch | None:
    """The rows that have destinations, given the rows of each broker number, with their destination lists."""
    several = list(found)
    if not batch.head.has_lists and all(len(rows) == batch.count for _, rows in several):
        return _with_shared(batch, bits_of(number for number, _ in several))
    lists = np.zeros((batch.count, max((number for number, _ in several), default=0) // 64 + 1), np.uint64)
    for number, rows in several:
        lists[rows, number >> 6] |= np.uint64(1 << (number & 63))
    return _with_nonempty(batch, lists)


def split_by_next_hop(batch: Batch, hops: NextHops) -> list[tuple[str | None, Batch]]:
    """The rows by next hop, each with the part of its destination list beyond that hop; None: unreachable."""
    union = batch.head.destinations
    if not batch.head.has_lists:
        shared = [(hop, _with_shared(batch, bits)) for hop, bits in hops.split(union)]
        return [(hop, some) for hop, some in shared if some is not None]
    if union:
        for hop, bits in hops.by_neighbour:
            if not union & ~bits:
                return [(hop, batch)]  # the common case: one next hop for all
    lists = batch.destination_lists()
    width = lists.shape[1]
    masked: list[tuple[str | None, Lists]] = [(hop, lists & words_of(bits, width)) for hop, bits in hops.by_neighbour]
    masked.append((None, lists & ~words_of(hops.known, width)))
    return [(hop, some) for hop, part in masked if part.any() and (some := _with_nonempty(batch, part)) is not None]


def split_local(batch: Batch, number: int) -> tuple[Batch | None, Batch | None]:
    """The rows for one broker, without their lists; and the rows for others, without that broker."""
    head = batch.head
    if (head.destinations or not head.has_lists) and not head.destinations >> number & 1:
        return None, batch
    if not head.has_lists:
        return batch.with_head(head.with_destinations(0, False)), _with_shared(batch, head.destinations & ~(1 << number))
    lists, word, bit = batch.destination_lists(), number >> 6, np.uint64(1 << (number & 63))
    local = np.flatnonzero(lists[:, word] & bit) if word < lists.shape[1] else ()
    if not len(local):
        return None, batch
    others = lists.copy()
    others[:, word] &= ~bit
    return batch.with_lists(np.asarray(local), np.zeros((len(local), 1), np.uint64)), _with_nonempty(batch, others)


def bits_of(numbers: Iterable[int]) -> int:
    """Numbers as a set of bits.

    >>> bin(bits_of((0, 3)))
    '0b1001'
    """
    bits = 0
    for number in numbers:
        bits |= 1 << number
    return bits


def numbers_of(bits: int) -> tuple[int, ...]:
    """The numbers in a set of bits, in order.

    >>> numbers_of(0b1001)
    (0, 3)
    """
    numbers = []
    while bits:
        lowest = bits & -bits
        numbers.append(lowest.bit_length() - 1)
        bits ^= lowest
    return tuple(numbers)


def words_of(bits: int, width: int) -> Lists:
    """A set of bits as ``width`` words of 64 bits."""
    return np.frombuffer((bits & ((1 << 64 * width) - 1)).to_bytes(8 * width, "little"), np.uint64)


def bits_of_words(words: Lists) -> int:
    """Words of 64 bits as a set of bits.

    >>> bits_of_words(words_of(1 << 70, 2)) == 1 << 70
    True
    """
    return int.from_bytes(words.astype("<u8").tobytes(), "little")


@lru_cache(maxsize=4096)
def encode_list(numbers: tuple[int, ...]) -> bytes:
    """A destination list in the shorter of its two wire forms."""
    if not numbers:
        return b""
    bits = bits_of(numbers)
    bitmap = bits.to_bytes(bits.bit_length() + 7 >> 3, "little")
    plain = b"".join(bytes((number,)) if number < 128 else bytes((128 | number & 127, number >> 7)) for number in numbers)
    encoded = bytes((BITMAP,)) + bitmap if len(bitmap) <= len(plain) else bytes((NUMBERS,)) + plain
    if numbers[-1] >= NUMBERS_MAX:
        raise LanguageError(f"destinations: expected numbers below {NUMBERS_MAX:,}, got {numbers[-1]:,}")
    return encoded


@lru_cache(maxsize=4096)
def decode_list(data: bytes) -> int:
    """A destination list as a set of bits.

    >>> bin(decode_list(encode_list((1, 9))))
    '0b1000000010'
    """
    row = np.zeros(HEAD + len(data), np.uint8)
    row[LIST_LENGTH], row[HEAD:] = len(data), np.frombuffer(data, np.uint8)
    words = np.empty(-(-NUMBERS_MAX // 64), np.uint64)
    highest, _ = unite_destinations(row, np.array([0, len(row)]), words)
    if highest < -1:
        raise WireError(0, "a destination list in its wire form")
    return bits_of_words(words)


def _with_shared(batch: Batch, destinations: int) -> Batch | None:
    """All rows with one list, which they share; None without destinations."""
    if destinations == batch.head.destinations:
        return batch if destinations else None
    return batch.with_head(batch.head.with_destinations(destinations, False)) if destinations else None


def _with_nonempty(batch: Batch, lists: Lists) -> Batch | None:
    """The rows whose new lists are not empty."""
    rows = np.flatnonzero(lists.any(axis=1))
    if not len(rows):
        return None
    if len(rows) == batch.count and batch.head.has_lists:
        current = batch.destination_lists()
        if lists.shape == current.shape and np.array_equal(lists, current):
            return batch
    return batch.with_lists(rows, lists[rows])
