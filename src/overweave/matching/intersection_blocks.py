"""Blocks of filters that lie close to each other, so that a query with ranges skips all blocks outside them.

They are packed by sort-tile-recursive, as R-trees are in bulk (Leutenegger, Lopez and Edgington 1997), on the two columns that
tell most pairs of filters apart: sorted by one, cut into strips, each sorted by the other and cut into blocks.
"""

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

BLOCK = 64
#: A column that tells fewer of the pairs apart does not help.
_APART_MIN = 0.1

Floats = NDArray[np.float64]


class Constraints(NamedTuple):
    """Constraints one by one: the place of their filter, their column and their interval."""

    places: NDArray[np.int64]
    columns: NDArray[np.int32]
    lows: Floats
    highs: Floats


class Blocks:
    """Some of ``count`` slots in blocks; ``following`` chains the slots of each."""

    def __init__(self, slots: NDArray[np.int64], count: int, constraints: Constraints) -> None:
        self._columns = _selective_columns(len(slots), constraints)
        intervals = [_intervals(len(slots), column, constraints) for column in self._columns]
        self.following = np.full(count, -1, np.int32)
        if not self._columns:
            return
        order = _tiled([_middles(*interval) for interval in intervals])
        starts = np.arange(0, len(order), BLOCK)
        self._lows = [np.minimum.reduceat(low[order], starts) for low, _ in intervals]
        self._highs = [np.maximum.reduceat(high[order], starts) for _, high in intervals]
        chained = slots[order]
        self.following[chained[1:]] = chained[:-1]
        self.following[chained[starts]] = -1
        self._last = chained[np.minimum(starts + BLOCK, len(order)) - 1].astype(np.int32)

    @property
    def useful(self) -> bool:
        """Whether any column tells filters apart."""
        return bool(self._columns)

    def heads(self, asked: dict[Any, Any]) -> NDArray[np.int32]:
        """The first slots of the chains of all blocks that meet a query, given its bounds by column."""
        met = np.ones(len(self._last), np.bool_)
        for column, lows, highs in zip(self._columns, self._lows, self._highs, strict=True):
            bound = asked.get(column)
            if bound is not None:
                met &= (lows <= bound.high) & (bound.low <= highs)
        return np.asarray(self._last[met])


def _selective_columns(count: int, constraints: Constraints) -> list[int]:
    """The columns, two at most, that tell the most of some pairs of filters apart."""
    apart = {}
    for column in np.unique(constraints.columns).tolist():
        low, high = _intervals(count, column, constraints)
        other_low, other_high = np.roll(low, count // 2), np.roll(high, count // 2)
        apart[column] = float(np.mean((low > other_high) | (other_low > high)))
    best = sorted(apart, key=lambda column: -apart[column])[:2]
    return [column for column in best if apart[column] >= _APART_MIN]


def _intervals(count: int, column: int, constraints: Constraints) -> tuple[Floats, Floats]:
    """What every filter says of a column; all that there is, if nothing."""
    low, high = np.full(count, -np.inf), np.full(count, np.inf)
    chosen = constraints.columns == column
    places = constraints.places[chosen]
    low[places], high[places] = constraints.lows[chosen], constraints.highs[chosen]
    return low, high


def _middles(low: Floats, high: Floats) -> Floats:
    """Where intervals are; those without an end are together, behind all others."""
    bounded = np.isfinite(low) & np.isfinite(high)
    return np.where(bounded, np.where(bounded, low, 0) / 2 + np.where(bounded, high, 0) / 2, np.inf)


def _tiled(middles: list[Floats]) -> NDArray[np.int64]:
    order = np.argsort(middles[0], kind="stable")
    if len(middles) == 1:
        return order
    strip = max(BLOCK * math.isqrt(len(order) // BLOCK), BLOCK)
    return order[np.lexsort((middles[1][order], np.arange(len(order)) // strip))]
