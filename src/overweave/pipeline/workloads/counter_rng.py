"""Randomness by counting: a draw is a function of the seed, of what it is for, and of the row's number, and of nothing else.

So a table does not depend on how many tasks make it, and any row can be made again alone. The generator is SplitMix64 (Steele,
Lea, Flood, OOPSLA 2014), restarted for every counter.
"""

import math
import zlib
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Whole = NDArray[np.int64]
Real = NDArray[np.float64]
_Bits = NDArray[np.uint64]

_STEP, _FIRST, _SECOND = (np.uint64(word) for word in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_WORD = (1 << 64) - 1


class CounterRng(NamedTuple):
    """Draws for one purpose; ``counters`` are arrays of the same length, a row of them is a draw.

    >>> draws = CounterRng(1, "price")
    >>> rows = np.arange(1000)
    >>> bool(np.all(draws.uniform(rows)[::-1] == draws.uniform(rows[::-1])))
    True
    >>> bool(np.all(draws.uniform(rows) == CounterRng(1, "volume").uniform(rows)))
    False
    """

    seed: int
    purpose: str

    def bits(self, *counters: Whole) -> _Bits:
        """64 of them per draw."""
        start = (self.seed * 0xD1342543DE82EF95 + zlib.crc32(self.purpose.encode())) & _WORD
        state = _mixed(np.full(1, start, np.uint64))
        for counter in counters:
            state = _mixed(state + (counter.astype(np.uint64) + np.uint64(1)) * _STEP)
        return state

    def uniform(self, *counters: Whole) -> Real:
        """From 0 to just below 1."""
        return np.asarray((self.bits(*counters) >> np.uint64(11)) * 2.0**-53, np.float64)

    def below(self, count: int, *counters: Whole) -> Whole:
        """Whole numbers from 0 to ``count`` - 1."""
        return (self.uniform(*counters) * count).astype(np.int64)

    def normal(self, *counters: Whole) -> Real:
        """From the standard normal distribution (Box and Muller), both halves of the bits for one draw."""
        bits = self.bits(*counters)
        radius = np.sqrt(-2.0 * np.log(((bits >> np.uint64(32)) + np.uint64(1)) * 2.0**-32))
        return np.asarray(radius * np.cos(2 * math.pi * 2.0**-32 * (bits & np.uint64(0xFFFFFFFF))))


def shuffled(rows: Whole, count: int) -> Whole:
    """A permutation of 0 … ``count`` - 1 that separates neighbours, so that quotas are not in order.

    >>> shuffled(np.arange(8), 8).tolist()
    [0, 5, 2, 7, 4, 1, 6, 3]
    """
    stride = max(1, round(count * 0.618))
    while math.gcd(stride, count) > 1:
        stride += 1
    return rows % count * stride % count


def share_ends(weights: Real) -> Real:
    """Where the share of each weight ends, from 0 to 1: what `pick_by_share` deals by."""
    ends = np.cumsum(weights)
    return np.asarray(ends / ends[-1])


def pick_by_share(ends: Real, at: Real) -> Whole:
    """Which share each position from 0 to 1 falls into.

    >>> pick_by_share(share_ends(np.array([1.0, 3.0])), np.array([0.1, 0.3, 0.9])).tolist()
    [0, 1, 1]
    """
    return np.minimum(np.searchsorted(ends, at, side="right"), len(ends) - 1)


def zipf(count: int, exponent: float) -> Real:
    """The weights of ranks 1 … ``count`` by Zipf's law; exponent 0 makes all alike, and -1 weighs a rank by itself."""
    return np.arange(1, count + 1, dtype=np.float64) ** -exponent


def _mixed(state: _Bits) -> _Bits:
    state = (state ^ (state >> np.uint64(30))) * _FIRST
    state = (state ^ (state >> np.uint64(27))) * _SECOND
    return np.asarray(state ^ (state >> np.uint64(31)))
