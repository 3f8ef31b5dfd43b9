"""Quotes on geometric random walks, any day of any publisher alone.

The walk is Lévy's construction: the logarithm of the price is known at both ends of an interval, its middle is their mean plus
a normal draw, and so on down to single days. A day takes log2(days) draws, and none of the days before it. High, low
and volume follow the day's move: the range goes beyond open and close by exponential amounts (one day in ten by none), and
volumes are lognormal around a level of the symbol's own, larger on days with larger moves.

Departure from a plain walk: it is reflected at PRICES, because after the 100,000 days that a large workload
has, most prices would have left the range of prices.
"""

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from overweave.pipeline.workloads.counter_rng import CounterRng, Real, Whole

#: Daily moves of a price are about this large.
VOLATILITY = 0.02
#: Prices stay between these.
PRICES = 1.0, 1000.0
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class Quotes(NamedTuple):
    """Columns of daily quotes, with the derived attributes of THESIS 7.1.1."""

    open: Real
    high: Real
    low: Real
    close: Real
    volume: Whole

    def at(self, chosen: Whole) -> "Quotes":
        """Those of some rows."""
        return Quotes(self.open[chosen], self.high[chosen], self.low[chosen], self.close[chosen], self.volume[chosen])

    @property
    def open_close_diff(self) -> Real:
        """``openClose%Diff``, to three places."""
        return np.round(np.abs(self.open - self.close) / self.open, 3)

    @property
    def high_low_diff(self) -> Real:
        """``highLow%Diff``, to three places."""
        return np.round((self.high - self.low) / self.high, 3)


def quotes(seed: int, days: int, publisher: Whole, day: Whole) -> Quotes:
    """The quotes of publishers on days 0 … ``days`` - 1; cheapest when days follow one another.

    >>> some = quotes(1, 100, np.zeros(100, np.int64), np.arange(100))
    >>> bool(np.all((some.low <= some.close) & (some.close <= some.high)))
    True
    """
    before, after = _walk(seed, days, publisher, day)
    opened = before * np.exp(VOLATILITY / 4 * CounterRng(seed, "gap").normal(publisher, day))
    high = np.maximum(opened, after) * np.exp(_beyond(CounterRng(seed, "high"), publisher, day))
    low = np.minimum(opened, after) * np.exp(-_beyond(CounterRng(seed, "low"), publisher, day))
    move = np.minimum(np.abs(np.log(after / opened)) / VOLATILITY, 4.0)
    noise = 0.45 * CounterRng(seed, "volume").normal(publisher, day) + 0.25 * move
    volume = np.maximum(np.rint(np.exp(noise) * volume_level(seed, publisher) / 100), 1).astype(np.int64) * 100
    return Quotes(np.round(opened, 2), np.round(high, 2), np.round(low, 2), np.round(after, 2), volume)


def volume_level(seed: int, publisher: Whole) -> Real:
    """The volume around which a publisher's volumes lie: symbols differ by orders of magnitude."""
    return np.asarray(np.exp(12.5 + 1.2 * CounterRng(seed, "volume level").normal(publisher)))


def texts(publisher: Whole, day: Whole, quoted: Quotes) -> list[str]:
    """Quotes as publications in the text syntax."""
    dates = calendar()
    columns = (
        (publisher + 1).tolist(),
        quoted.open.tolist(),
        quoted.high.tolist(),
        quoted.low.tolist(),
        quoted.close.tolist(),
        quoted.volume.tolist(),
        (day % len(dates)).tolist(),
        quoted.open_close_diff.tolist(),
        quoted.high_low_diff.tolist(),
    )
    return [
        f"[class,'STOCK'],[symbol,'S{symbol}'],[open,{opened}],[high,{high}],[low,{low}],[close,{close}],[volume,{volume}],"
        f"[date,'{dates[date]}'],[openClose%Diff,{open_close}],[highLow%Diff,{high_low}],"
        f"[closeEqualsLow,'{'true' if close == low else 'false'}'],[closeEqualsHigh,'{'true' if close == high else 'false'}']"
        for symbol, opened, high, low, close, volume, date, open_close, high_low in zip(*columns, strict=True)
    ]


@lru_cache(maxsize=1)
def calendar() -> list[str]:
    """Working days as the thesis writes dates; years have two digits, so it begins again after a hundred of them.

    >>> calendar()[:2], len(calendar())
    (['1-Jan-70', '2-Jan-70'], 26089)
    """
    days = np.arange("1970-01-01", "2070-01-01", dtype="datetime64[D]")
    parts = (str(day).split("-") for day in days[np.is_busday(days)])
    return [f"{int(day)}-{_MONTHS[int(month) - 1]}-{year[2:]}" for year, month, day in parts]


def _walk(seed: int, days: int, publisher: Whole, day: Whole) -> tuple[Real, Real]:
    """The price before and after each day."""
    dice, depth = CounterRng(seed, "walk"), max(1, math.ceil(math.log2(max(days, 2))))
    # Node 0 is the whole walk, node 1 its middle, nodes 2 and 3 the middles of its halves, as in a heap.
    left = np.zeros(len(day))
    right = VOLATILITY * 2 ** (depth / 2) * _drawn(dice, publisher, np.zeros_like(day))
    for level in range(depth):
        height = depth - level
        middle = (left + right) / 2 + VOLATILITY / 2 * 2 ** (height / 2) * _drawn(dice, publisher, (1 << level) + (day >> height))
        later = (day >> (height - 1)) & 1 == 1
        left, right = np.where(later, middle, left), np.where(later, right, middle)
    start = CounterRng(seed, "price").uniform(publisher) * 3 + 2
    return _reflected(start + left), _reflected(start + right)


def _drawn(dice: CounterRng, publisher: Whole, node: Whole) -> Real:
    """A normal draw per row; days that follow one another share most of their nodes, which are then drawn once."""
    new = np.empty(len(node), np.bool_)
    new[:1] = True
    new[1:] = (node[1:] != node[:-1]) | (publisher[1:] != publisher[:-1])
    starts = np.flatnonzero(new)
    return np.repeat(dice.normal(publisher[starts], node[starts]), np.diff(starts, append=len(node)))


def _reflected(logarithm: Real) -> Real:
    least, most = (math.log(price) for price in PRICES)
    width = most - least
    return np.asarray(np.exp(most - np.abs(width - np.mod(logarithm - least, 2 * width))))


def _beyond(dice: CounterRng, publisher: Whole, day: Whole) -> Real:
    """How far the day's range goes beyond open and close."""
    draw = np.clip((dice.uniform(publisher, day) - 0.1) / 0.9, 0.0, 1 - 1e-12)
    return np.asarray(-VOLATILITY / 3 * np.log1p(-draw))
