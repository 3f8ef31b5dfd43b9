"""Synthetic profiles of any size for ``bench scale``, made by Spark as workloads are: every row is a function of its number.

The quotes are those of ``workload stock`` and so are the filters of its distribution ``allocation`` (THESIS 7.3.2): 40 % want all
of a symbol, 60 % the quotes with ``low`` below one of them; what a filter would match is computed here instead of matched. There
are as many symbols as make about a quarter of the vectors distinct. With several publishers per filter, a filter is on as many
symbols, drawn at random, so that all publishers hang together; a quarter of the subscriptions bring a filter of their own, the
others share one of these by Zipf's law.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from pyspark.sql import SparkSession
from pyspark.sql.types import StructType

from overweave.pipeline.schemas import BROKERS, PROFILES, PUBLISHER_PROFILES, SUBSCRIPTIONS
from overweave.pipeline.tables import write_tables
from overweave.pipeline.workloads.base import made, numbered
from overweave.pipeline.workloads.brokers import (
    BANDWIDTH_BYTES_PER_S,
    MATCHING_DELAY_BASE_S,
    SIZES,
)
from overweave.pipeline.workloads.counter_rng import CounterRng, Whole, pick_by_share, share_ends, shuffled
from overweave.pipeline.workloads.walks import quotes
from overweave.planning.problem import BitWords, Reals
from overweave.planning.profiles import packed

BITS = 1_280
RATE_HZ, MESSAGE_BYTES = 70 / 60, 220.0
#: With this many subscriptions per symbol about a quarter of the vectors are distinct: there are 1,280 lows, some of them equal.
PER_PUBLISHER = 2_500
#: A broker above others sends each of them what it wants, in the end all there is: it must be larger than all publishers
#: together, and those of 43 kB/s are not where a million subscribe to 222 of them.
BANDWIDTH = 10 * BANDWIDTH_BYTES_PER_S
#: What the compiled index takes for each of 100,000 filters (``bench matching``). With the 10^-7 s of other workloads a broker
#: that sees a million filters would match ten publications per second, and no tree could carry hundreds.
MATCHING_DELAY_PER_SUBSCRIPTION_S = 1e-9
#: Deliveries take about so much of all brokers together.
FILLED = 0.44
#: Mean share of its publishers' quotes that a filter matches: 0.4 + 0.6 / 2.
_MATCHED = 0.7


@dataclass(frozen=True)
class Shape:
    """How large a case is, and of what kind."""

    subscriptions: int
    #: Symbols in each filter.
    per_filter: int = 1
    #: Brokers of three sizes (THESIS 7.3.2) instead of one.
    sizes: bool = False
    seed: int = 1

    @property
    def publishers(self) -> int:
        """How many there are."""
        return max(8, round(self.subscriptions / PER_PUBLISHER))

    @property
    def bandwidths(self) -> Reals:
        """Of the brokers on offer, the large ones first: what deliveries need, divided by `FILLED`."""
        needed = self.subscriptions * self.per_filter * _MATCHED * RATE_HZ * MESSAGE_BYTES / FILLED
        if not self.sizes:
            return np.full(max(8, round(needed / BANDWIDTH)), BANDWIDTH)
        # The smallest are as large as those of equal pools: a smaller broker could serve no client.
        kinds = np.array([share for _, share in SIZES]) / min(share for _, share in SIZES)
        part = np.array([count for count, _ in SIZES]) / sum(count for count, _ in SIZES)
        count = max(8, round(needed / BANDWIDTH / float(part @ kinds)))
        return np.asarray(BANDWIDTH * kinds[pick_by_share(share_ends(part), (np.arange(count) + 0.5) / count)])


def filters_of(shape: Shape, rows: Whole) -> tuple[Whole, Whole]:
    """Publishers and days (-1: all quotes) of the filters of some subscriptions, one column per symbol."""
    if shape.per_filter == 1:
        at = (shuffled(rows, shape.subscriptions) + 0.5) / shape.subscriptions
        publisher = pick_by_share(share_ends(np.ones(shape.publishers)), at)[:, None]
        number = rows
    else:
        own = max(1, shape.subscriptions // 4)
        shared = np.floor(own ** CounterRng(shape.seed, "filter").uniform(rows)).astype(np.int64) - 1
        number = np.where(rows < own, rows, np.clip(shared, 0, own - 1))
        publisher = _some_publishers(shape, number)
    columns = np.arange(shape.per_filter)
    counters = np.repeat(number, shape.per_filter), np.tile(columns, len(number))
    day = CounterRng(shape.seed, "example").below(BITS, *counters).reshape(publisher.shape)
    whole = CounterRng(shape.seed, "template").uniform(number) < 0.4
    return publisher, np.where(whole[:, None], -1, day)


def _some_publishers(shape: Shape, number: Whole) -> Whole:
    """Distinct publishers, each drawn from the remaining ones (Floyd)."""
    found = np.empty((len(number), shape.per_filter), np.int64)
    for column in range(shape.per_filter):
        most = shape.publishers - shape.per_filter + column
        drawn = CounterRng(shape.seed, f"publisher {column}").below(most + 1, number)
        taken = (found[:, :column] == drawn[:, None]).any(axis=1)
        found[:, column] = np.where(taken, most, drawn)
    return found


def vectors_of(shape: Shape, publisher: Whole, day: Whole) -> BitWords:
    """What filters match of a publisher's quotes: all of them, or those with ``low`` below that of a day."""
    words = np.empty((len(publisher), BITS // 64), np.uint64)
    days = np.arange(BITS)
    for each in np.unique(publisher).tolist():
        low = quotes(shape.seed, BITS, np.full(BITS, each), days).low
        chosen = np.flatnonzero(publisher == each)
        limit = np.where(day[chosen] < 0, np.inf, low[day[chosen]])
        words[chosen] = packed((low[None, :] < limit[:, None]).astype(np.uint8))
    return words


def profile_rows(shape: Shape, rows: Whole) -> Mapping[str, object]:
    """The table `PROFILES` of some subscriptions; a filter that matches nothing has no row."""
    publisher, day = filters_of(shape, rows)
    owner, publisher = np.repeat(rows, shape.per_filter), publisher.ravel()
    words = vectors_of(shape, publisher, day.ravel())
    count = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    kept = np.flatnonzero(count)
    return {
        "subscription": numbered("s", owner[kept]),
        "publisher": numbered("P", publisher[kept]),
        "first_sequence": np.zeros(len(kept), np.int64),
        "last_sequence": np.full(len(kept), BITS - 1),
        "words": list(words[kept].view(np.int64)),
        "count": count[kept],
        "window_publications": np.full(len(kept), BITS),
    }


def subscription_rows(shape: Shape, rows: Whole) -> Mapping[str, object]:
    """The table `SUBSCRIPTIONS`, a client each, anywhere."""
    return {
        "subscription": numbered("s", rows),
        "client": numbered("c", rows),
        "broker": numbered("B", CounterRng(shape.seed, "subscriber's broker").below(len(shape.bandwidths), rows)),
        "filter": [""] * len(rows),
    }


def publisher_rows(shape: Shape, rows: Whole) -> Mapping[str, object]:
    """The table `PUBLISHER_PROFILES`."""
    count = len(rows)
    return {
        "publisher": numbered("P", rows),
        "broker": numbered("B", CounterRng(shape.seed, "publisher's broker").below(len(shape.bandwidths), rows)),
        "first_sequence": np.zeros(count, np.int64),
        "last_sequence": np.full(count, BITS - 1),
        "window_publications": np.full(count, BITS),
        "publications": np.full(count, BITS),
        "rate_hz": np.full(count, RATE_HZ),
        "bytes_per_s": np.full(count, RATE_HZ * MESSAGE_BYTES),
        "message_bytes": np.full(count, MESSAGE_BYTES),
    }


def broker_rows(shape: Shape, rows: Whole) -> Mapping[str, object]:
    """The table `BROKERS`."""
    count = len(rows)
    return {
        "broker": numbered("B", rows),
        "output_bandwidth_bytes_per_s": shape.bandwidths[rows],
        "matching_delay_base_s": np.full(count, MATCHING_DELAY_BASE_S),
        "matching_delay_per_subscription_s": np.full(count, MATCHING_DELAY_PER_SUBSCRIPTION_S),
        "capacity_hz": [None] * count,
        "url": [None] * count,
    }


def write_case(spark: SparkSession, shape: Shape, out: Path) -> None:
    """Write a case as a directory of profiles."""
    count = shape.subscriptions
    tables: list[tuple[str, int, StructType, Callable[[Shape, Whole], Mapping[str, object]]]] = [
        ("profiles", count, PROFILES, profile_rows),
        ("subscription_lifetimes", count, SUBSCRIPTIONS, subscription_rows),
        ("publisher_profiles", shape.publishers, PUBLISHER_PROFILES, publisher_rows),
        ("brokers", len(shape.bandwidths), BROKERS, broker_rows),
    ]
    frames = {out / name: made(spark, schema, many, partial(make, shape), 50_000) for name, many, schema, make in tables}
    write_tables(frames)
