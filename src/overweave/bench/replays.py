"""Replay on Spark at full size: everybody anywhere on 1,000 brokers in a balanced tree, routed by filters.

Each size is a process of its own, from W2's filters to what every broker carries, so that its memory is told too.
"""

import subprocess
import sys
from pathlib import Path
from time import perf_counter

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.bench.base import Progress, Row
from overweave.bench.traces import java_of, peak_mb
from overweave.bench.workloads import Intervals, w2
from overweave.matching.index import Index
from overweave.overlay.shapes import make_overlay
from overweave.pipeline.index_file import save_index
from overweave.pipeline.session import session
from overweave.pipeline.steps.replay import replayed_load

BROKERS = 1_000
#: No more are replayed: each goes to thousands of subscriptions.
PUBLICATIONS_MAX = 100_000
_WARM = 100


class Replay(msgspec.Struct, frozen=True):
    """What a replay took, and what it counted."""

    publications: int
    index_s: float
    replay_s: float
    java_peak_mb: float
    python_peak_mb: float
    deliveries: int


def measure(progress: Progress, wires: Path, sizes: list[int]) -> list[Row]:
    """Replay some publications of ``wires`` with this number of subscriptions."""
    rows = []
    for subscriptions in sizes:
        title = f"{subscriptions:,} subscriptions on {BROKERS:,} brokers"
        progress(f"{title}: replay")
        call = f"from overweave.bench.replays import tell; tell({str(wires)!r}, {subscriptions})"
        said = subprocess.run([sys.executable, "-c", call], capture_output=True, check=True)
        took = msgspec.json.decode(said.stdout, type=Replay)
        us = took.replay_s * 1e6
        rows += [
            Row(f"{title}: index of all subscriptions", "s", took.index_s),
            Row(f"{title}: replay of {took.publications:,} publications", "s", took.replay_s),
            Row(f"{title}: replay", "µs per publication", us / took.publications),
            Row(f"{title}: replay", "ns per delivery", 1000 * us / max(1, took.deliveries)),
            Row(f"{title}: peak of Java", "MB", took.java_peak_mb),
            Row(f"{title}: peak of the driver's Python", "MB", took.python_peak_mb),
        ]
    return rows


def tell(wires: str, subscriptions: int) -> None:
    """Replay, and write to stdout what it took; for a process of its own."""
    index = Path(wires).with_name(f"index{subscriptions}")
    start = perf_counter()
    save_filters(w2(subscriptions), index)
    index_s = perf_counter() - start
    overlay = make_overlay("balanced", brokers=BROKERS, degree=3)
    with session() as spark:
        publications = spark.read.parquet(wires).where(f"sequence < {PUBLICATIONS_MAX}")
        publishers = publications.select("publisher").distinct()
        count = publications.count()
        placed = _placed(publishers, "publisher"), _subscriptions(spark, subscriptions)
        # A few first: workers start, and kernels are compiled or loaded.
        replayed_load(publications.where(f"sequence < {_WARM}"), index, overlay, *placed).collect()
        start = perf_counter()
        carried = replayed_load(publications, index, overlay, *placed)
        (row,) = carried.agg(F.sum("deliveries").alias("deliveries"), F.count("*").alias("brokers")).collect()
        replay_s = perf_counter() - start
        assert row.brokers == BROKERS
        java_mb = peak_mb(java_of(spark).ProcessHandle.current().pid())
    sys.stdout.buffer.write(msgspec.json.encode(Replay(count, index_s, replay_s, java_mb, peak_mb("self"), row.deliveries)))


def save_filters(intervals: Intervals, directory: Path) -> None:
    """An index of filters that are called ``s0``, ``s1`` and so on."""
    index = Index()
    index.add_many((f"s{i}", filter, None) for i, filter in enumerate(intervals.filters()))
    save_index(index, directory)


def _subscriptions(spark: SparkSession, count: int) -> DataFrame:
    named = F.concat(F.lit("s"), F.col("id").cast("string")).alias("subscription")
    return _placed(spark.range(count).select(named), "subscription")


def _placed(named: DataFrame, column: str) -> DataFrame:
    """Each at a broker by its name, so that it is the same in every run."""
    number = F.pmod(F.xxhash64(column), F.lit(BROKERS)) + 1
    return named.select(column, F.concat(F.lit("B"), number.cast("string")).alias("broker"))
