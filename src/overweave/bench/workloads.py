"""The two workloads on which matchers are compared, as filters and publications and as dense columns for a brute force."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication

SYMBOLS = 500


class Intervals(NamedTuple):
    """Filters as a table: filter i asks for ``low[i, a] <= value <= high[i, a]`` of attribute a; infinite: it asks nothing."""

    names: list[str]
    low: NDArray[np.float64]
    high: NDArray[np.float64]

    def filters(self) -> Iterator[Filter]:
        """The same filters in the language; an attribute called ``symbol`` is text."""
        for low, high in zip(self.low, self.high, strict=True):
            yield Filter(
                tuple(
                    predicate
                    for name, least, most in zip(self.names, low.tolist(), high.tolist(), strict=True)
                    for predicate in _predicates(name, least, most)
                )
            )


def w1(count: int, seed: int = 7) -> Intervals:
    """Ten numeric attributes; a filter bounds three to five of them to a range of half the domain 0..1."""
    random = np.random.default_rng(seed)
    low, high = np.full((count, 10), -np.inf), np.full((count, 10), np.inf)
    chosen = random.random((count, 10)).argsort(axis=1) < random.integers(3, 6, (count, 1))
    start = random.random((count, 10)) / 2
    low[chosen], high[chosen] = start[chosen], start[chosen] + 0.5
    return Intervals([f"a{i}" for i in range(10)], low, high)


def w1_values(count: int, seed: int = 8) -> NDArray[np.float64]:
    """Publications for `w1`: uniform values of all attributes, a row each."""
    return np.random.default_rng(seed).random((count, 10))


def w2(count: int, seed: int = 7) -> Intervals:
    """Equality on one of 500 symbols with Zipf popularity; six in ten filters also bound one of five prices on one side."""
    random = np.random.default_rng(seed)
    names = ["symbol", "open", "high", "low", "close", "volume"]
    low, high = np.full((count, 6), -np.inf), np.full((count, 6), np.inf)
    low[:, 0] = high[:, 0] = _zipf(random, count)
    bounded = np.flatnonzero(random.random(count) < 0.6)
    attribute, above = random.integers(1, 6, len(bounded)), random.random(len(bounded)) < 0.5
    bound = np.where(attribute == 5, random.uniform(1e3, 1e6, len(bounded)), random.uniform(1, 100, len(bounded)))
    low[bounded[above], attribute[above]] = bound[above]
    high[bounded[~above], attribute[~above]] = bound[~above]
    return Intervals(names, low, high)


def w2_values(count: int, seed: int = 8) -> NDArray[np.float64]:
    """Publications for `w2`: a popular symbol's quote, a row each."""
    random = np.random.default_rng(seed)
    close = random.uniform(1, 100, count)
    return np.stack(
        [_zipf(random, count), close * 1.01, close * 1.05, close * 0.95, close, random.uniform(1e3, 1e6, count)], axis=1
    )


def publications(intervals: Intervals, values: NDArray[np.float64]) -> list[Publication]:
    """Rows of values as publications."""
    return [
        Publication(
            {name: _symbol(value) if name == "symbol" else value for name, value in zip(intervals.names, row, strict=True)}
        )
        for row in values.tolist()
    ]


def brute_force(intervals: Intervals, values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """Which filters one publication satisfies, as one would write it with numpy."""
    return np.asarray(((intervals.low <= values) & (values <= intervals.high)).all(axis=1))


def brute_force_by_columns(low: NDArray[np.float64], high: NDArray[np.float64], values: NDArray[np.float64]) -> NDArray[np.bool_]:
    """The same over transposed tables, column by column in place: what numpy can do at its best."""
    matching = low[0] <= values[0]
    matching &= values[0] <= high[0]
    for least, most, value in zip(low[1:], high[1:], values[1:], strict=True):
        matching &= least <= value
        matching &= value <= most
    return np.asarray(matching)


def _zipf(random: np.random.Generator, count: int) -> NDArray[np.float64]:
    weights = 1 / np.arange(1, SYMBOLS + 1)
    return random.choice(SYMBOLS, count, p=weights / weights.sum()).astype(np.float64)


def _predicates(name: str, low: float, high: float) -> Iterator[Predicate]:
    if name == "symbol":
        yield Predicate(name, Operator.EQ, _symbol(low))
        return
    if low > -np.inf:
        yield Predicate(name, Operator.GE, low)
    if high < np.inf:
        yield Predicate(name, Operator.LE, high)


def _symbol(number: float) -> str:
    return f"S{int(number):03d}"
