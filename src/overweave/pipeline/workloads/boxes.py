"""Boxes in a space of two attributes (MINIMAL 6.1, table 1): advertisements and subscriptions are boxes, publications points.

The paper does not say how boxes are drawn. Its numbers of brokers come out with either reading:

=============== ========================================= ==================================
``boxes``       sides                                     rates P(k), k = 1 … 10 per time unit
=============== ========================================= ==================================
``corners``     between two uniform points                in proportion to 1/k²
``widths``      up to half the domain from a uniform one  in proportion to 1/k
=============== ========================================= ==================================

A publisher publishes uniformly inside its box, ``duration`` time units long. A time unit counts as a second.
"""

from functools import lru_cache, partial
from typing import Literal, NamedTuple

import numpy as np
from pyspark.sql import DataFrame

from overweave.pipeline.workloads.base import Count, Options, Some, Source, numbered, wire_bytes
from overweave.pipeline.workloads.brokers import brokers
from overweave.pipeline.workloads.counter_rng import CounterRng, Real, Whole, pick_by_share, share_ends, zipf

#: Attributes have values from 0 to this.
DOMAIN = 1000.0
ATTRIBUTES = ("x", "y")
RATE_MAX = 10
CAPACITY_HZ = 1000.0
#: Values are rounded, so that filters can be read.
_PLACES = 3
#: So a value is this wide.
EPSILON = 10.0**-_PLACES


class BoxesOptions(Options, frozen=True, kw_only=True):
    """Defaults are those of MINIMAL table 1, at 2,400 clients."""

    publishers: Some = 600
    #: Three times the advertisements unless given.
    subscriptions: Count | None = None
    brokers: Some = 1_000
    duration: Count = 10
    boxes: Literal["corners", "widths"] = "corners"


def make(source: Source, options: BoxesOptions) -> dict[str, DataFrame]:
    """All tables. Clients have no broker yet: to place them is what the paper is about."""
    arguments = options, source.seed
    count = 3 * options.publishers if options.subscriptions is None else options.subscriptions
    publications = int(_ends(*arguments)[-1])
    return {
        "brokers": brokers(source, options.brokers, capacity_hz=CAPACITY_HZ),
        "publishers": source.table("publishers", options.publishers, partial(_publishers, *arguments)),
        "subscriptions": source.table("subscriptions", count, partial(_subscriptions, *arguments)),
        "publications": source.table("publications", publications, partial(_publications, *arguments)),
    }


class Boxes(NamedTuple):
    """A workload as arrays, without texts."""

    #: Lower and upper ends, ``[axis, end, row]``.
    advertisements: Real
    subscriptions: Real
    #: Publications of each publisher per time unit.
    rates: Whole
    #: Of every publication: its publisher, its number among those, and its coordinates ``[axis, row]``.
    publisher: Whole
    sequence: Whole
    points: Real


def make_boxes(options: BoxesOptions, seed: int) -> Boxes:
    """The workload of these options and this seed in memory, row by row that of the tables."""
    publishers = np.arange(options.publishers)
    count = 3 * options.publishers if options.subscriptions is None else options.subscriptions
    rows = np.arange(int(_ends(options, seed)[-1]))
    publisher, sequence, points = _points(options, seed, rows)
    return Boxes(
        np.array(_sides(options, seed, "advertisement", publishers)),
        np.array(_sides(options, seed, "subscription", np.arange(count))),
        _rates(options, seed, publishers),
        publisher,
        sequence,
        np.array(points),
    )


def _publishers(options: BoxesOptions, seed: int, rows: Whole) -> dict[str, object]:
    return {
        "publisher": numbered("P", rows),
        "broker": [None] * len(rows),
        "advertisement": _filters(_sides(options, seed, "advertisement", rows)),
        "rate_hz": _rates(options, seed, rows).astype(np.float64),
        "message_bytes": np.full(len(rows), wire_bytes("[class,'BOX'],[x,1.5],[y,1.5]")),
    }


def _subscriptions(options: BoxesOptions, seed: int, rows: Whole) -> dict[str, object]:
    return {
        "subscription": numbered("s", rows),
        "client": numbered("c", rows),
        "broker": [None] * len(rows),
        "filter": _filters(_sides(options, seed, "subscription", rows)),
    }


def _publications(options: BoxesOptions, seed: int, rows: Whole) -> dict[str, object]:
    publisher, sequence, points = _points(options, seed, rows)
    return {
        "publisher": numbered("P", publisher),
        "sequence": sequence,
        "publication": [f"[class,'BOX'],[x,{x}],[y,{y}]" for x, y in zip(*(column.tolist() for column in points), strict=True)],
    }


def _points(options: BoxesOptions, seed: int, rows: Whole) -> tuple[Whole, Whole, list[Real]]:
    """The publisher of each publication, its number among that one's, and its coordinate per attribute."""
    ends = _ends(options, seed)
    publisher = np.searchsorted(ends, rows, side="right")
    points = []
    for name, (low, high) in zip(ATTRIBUTES, _sides(options, seed, "advertisement", publisher), strict=True):
        points.append(np.round(low + (high - low) * CounterRng(seed, f"point {name}").uniform(rows), _PLACES))
    return publisher, rows - np.concatenate([[0], ends])[publisher], points


def _sides(options: BoxesOptions, seed: int, of: str, rows: Whole) -> list[tuple[Real, Real]]:
    """From where to where each box goes, per attribute."""
    sides = []
    for name in ATTRIBUTES:
        first, second = (CounterRng(seed, f"{of} {name} {end}").uniform(rows) for end in ("first", "second"))
        # A width starts where it fits, so that no box is cut off at the domain's end.
        low = np.minimum(first, second) if options.boxes == "corners" else first * (1 - second / 2)
        high = np.maximum(first, second) if options.boxes == "corners" else low + second / 2
        sides.append((np.round(DOMAIN * low, _PLACES), np.round(DOMAIN * high, _PLACES)))
    return sides


def _filters(sides: list[tuple[Real, Real]]) -> list[str]:
    columns = [column.tolist() for side in sides for column in side]
    return [
        f"[class,eq,'BOX'],[x,>=,{left}],[x,<=,{right}],[y,>=,{bottom}],[y,<=,{top}]"
        for left, right, bottom, top in zip(*columns, strict=True)
    ]


def _rates(options: BoxesOptions, seed: int, rows: Whole) -> Whole:
    exponent = 2.0 if options.boxes == "corners" else 1.0
    return 1 + pick_by_share(share_ends(zipf(RATE_MAX, exponent)), CounterRng(seed, "rate").uniform(rows))


@lru_cache(maxsize=4)
def _ends(options: BoxesOptions, seed: int) -> Whole:
    """Where the publications of each publisher end, one publisher after the other."""
    return np.cumsum(_rates(options, seed, np.arange(options.publishers)) * options.duration)
