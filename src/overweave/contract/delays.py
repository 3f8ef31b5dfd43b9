"""Delays of deliveries as histograms: counts by logarithmic bucket, which add up over brokers."""

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

#: The upper bound of the first bucket, the buckets of a factor of two, and the last bucket (over a quarter of an hour).
_LEAST_S, _PER_OCTAVE, _LAST = 0.001, 4, 80


def buckets_of(delays_s: NDArray[np.float64]) -> NDArray[np.int64]:
    """The bucket of each delay.

    >>> buckets_of(np.array([-1.0, 0.001, 0.0011, 0.002, 1e9])).tolist()
    [0, 0, 1, 4, 80]
    """
    octaves = np.log2(np.maximum(delays_s, _LEAST_S) / _LEAST_S)
    buckets: NDArray[np.int64] = np.minimum(np.ceil(octaves * _PER_OCTAVE), _LAST).astype(np.int64)
    return buckets


def bucket_of(delay_s: float) -> int:
    """The bucket of one delay, faster."""
    return 0 if delay_s <= _LEAST_S else min(math.ceil(math.log2(delay_s / _LEAST_S) * _PER_OCTAVE), _LAST)


def percentile_s(counts: Mapping[int, int], share: float) -> float | None:
    """The delay that a share of deliveries does not exceed, as the upper bound of its bucket; None without deliveries.

    >>> percentile_s({0: 98, 40: 2}, 0.98), percentile_s({0: 98, 40: 2}, 0.99), percentile_s({}, 0.99)
    (0.001, 1.024, None)
    """
    left = share * sum(counts.values())
    for bucket, count in sorted(counts.items()):
        left -= count
        if left <= 0 < count:
            return float(_LEAST_S * 2 ** (bucket / _PER_OCTAVE))
    return None
