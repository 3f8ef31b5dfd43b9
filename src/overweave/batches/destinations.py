"""Destination lists: sets of broker numbers, as bits and in their wire form, and the split by next hop."""

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from overweave.batches.kernels import BITMAP, HEAD, LIST_BYTES_MAX, LIST_LENGTH, NUMBERS, unite_destinations
from overweave.errors import LanguageError, WireError

#: The numbers of brokers in destination lists are below this, so that a bitmap of them is short enough.
NUMBERS_MAX = 8 * (LIST_BYTES_MAX - 1)


class NextHops:
    """The next hops of one broker: over which neighbour which brokers are reached, as sets of bits by their numbers.

    >>> NextHops([("B2", 0b110), ("B5", 0b1000)]).parts(0b11010)
    [('B2', 2), ('B5', 8), (None, 16)]
    """

    __slots__ = ("known", "reach")

    def __init__(self, reach: Iterable[tuple[str, int]]) -> None:
        self.reach = tuple(reach)
        self.known = 0
        for _, bits in self.reach:
            self.known |= bits

    def parts(self, destinations: int) -> list[tuple[str | None, int]]:
        """A destination list by next hop."""
        parts: list[tuple[str | None, int]] = [(hop, destinations & bits) for hop, bits in self.reach if destinations & bits]
        lost = destinations & ~self.known
        return [*parts, (None, lost)] if lost else parts


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


def words_of(bits: int, width: int) -> NDArray[np.uint64]:
    """A set of bits as so many words."""
    return np.frombuffer((bits & ((1 << 64 * width) - 1)).to_bytes(8 * width, "little"), np.uint64)


@lru_cache(maxsize=4096)
def encode_list(numbers: tuple[int, ...]) -> bytes:
    """A destination list in its shorter form."""
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
    return int.from_bytes(words.astype("<u8").tobytes(), "little")
