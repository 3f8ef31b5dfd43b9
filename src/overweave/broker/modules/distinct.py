"""The number of distinct pairs of texts, in constant memory (linear counting, Whang et al. 1990)."""

import math
import zlib

#: The error is below 1% up to a million pairs, and mostly 0 up to a thousand.
_BITS = 1 << 20


class DistinctPairs:
    """Pairs that were added, each counted once.

    >>> pairs = DistinctPairs()
    >>> for each in (("a", "b"), ("a", "b"), ("b", "a")):
    ...     pairs.add(*each)
    >>> pairs.count()
    2
    """

    __slots__ = ("_bits", "_set")

    def __init__(self) -> None:
        self._bits: bytearray | None = None
        self._set = 0

    def add(self, one: str, other: str) -> None:
        """Add a pair."""
        if self._bits is None:
            self._bits = bytearray(_BITS // 8)
        at, bit = divmod(zlib.crc32(other.encode(), zlib.crc32(one.encode() + b"\0")) % _BITS, 8)
        if not self._bits[at] & 1 << bit:
            self._bits[at] |= 1 << bit
            self._set += 1

    def count(self) -> int:
        """The number of distinct pairs: pairs that share a bit are expected."""
        return round(-_BITS * math.log(max(1.0 - self._set / _BITS, 0.5 / _BITS)))
