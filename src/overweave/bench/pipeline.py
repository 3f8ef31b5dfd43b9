"""``overweave bench pipeline``: matching in bulk on Spark, against one process with numpy and with pandas.

Publications are quotes in the text syntax, in Parquet files, and are counted against W2's filters with the whole pipeline in the
time: reading files, Arrow, workers. A small run before it warms the workers. Baselines do a sample, and say the same of it.
"""

import tempfile
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.bench.base import Progress, Row
from overweave.bench.workloads import Intervals, brute_force_by_columns, w2, w2_values
from overweave.language.codec import encode_publication
from overweave.language.syntax import parse_publication
from overweave.matching.index import Index
from overweave.overlay.shapes import make_overlay
from overweave.pipeline.index_file import save_index
from overweave.pipeline.session import session
from overweave.pipeline.steps.match import encoded, match_counts
from overweave.pipeline.steps.replay import replayed

#: Files have so many publications, so that there is work for several cores; larger tables are the same quotes again.
PER_FILE = 125_000
DISTINCT = 1_000_000
#: So many are done by the baselines.
SAMPLE = 200
PUBLISHERS, BROKERS = 100, 1_000
#: No more are replayed: each goes to thousands of subscriptions.
REPLAYED = 500_000
_UNIT = "µs per publication"


def run(progress: Progress, subscriptions: Sequence[int] = (100_000,), publications: Sequence[int] = (1_000_000,)) -> list[Row]:
    """Measure all sizes; one session for all."""
    rows: list[Row] = []
    values = quotes(min(DISTINCT, max(publications)))
    texts = texts_of(values)
    with tempfile.TemporaryDirectory() as name, session() as spark:
        for filters in subscriptions:
            intervals, index = w2(filters), Path(name, f"index{filters}")
            progress(f"{filters:,} filters: loading")
            _save(intervals, index)
            baselines = _Baselines(intervals, values[:SAMPLE])
            for count in publications:
                table = Path(name, f"quotes{count}")
                progress(f"{count:,} publications: writing")
                _write(table, texts, count)
                rows += _measure(spark, progress, table, index, count, filters, baselines)
    return rows


class _Baselines:
    """What one process takes for one publication, and what it found for the sample."""

    def __init__(self, intervals: Intervals, sample: NDArray[np.float64]) -> None:
        self.texts_us = _parsed_us(texts_of(sample).to_pylist())
        self.numpy_us, self.counts = _by_numpy(intervals, sample)
        self.pandas_us, counts = _by_pandas(intervals, sample)
        assert np.array_equal(self.counts, counts)


def _measure(
    spark: SparkSession, progress: Progress, table: Path, index: Path, count: int, filters: int, baselines: _Baselines
) -> list[Row]:
    """The rows of one size, each checked against the sample."""
    title = f"{count:,} publications, {filters:,} filters"
    texts = spark.read.parquet(str(table))
    # From every file a few, so that all workers are warm.
    few = match_counts(texts.where(f"sequence < {SAMPLE} or sequence % 1000 = 0"), index)
    found = {row.sequence: row["count"] for row in few.collect()}
    assert [found[i] for i in range(SAMPLE)] == baselines.counts.tolist()
    progress(f"{title}: from text")
    text_us = _us(match_counts(texts, index), "count", count)
    progress(f"{title}: to the wire form")
    wires = Path(f"{table}.wires")
    start = perf_counter()
    encoded(texts).write.mode("overwrite").parquet(str(wires))
    encode_us = (perf_counter() - start) * 1e6 / count
    progress(f"{title}: from the wire form")
    wire_us = _us(match_counts(spark.read.parquet(str(wires)), index), "count", count)
    progress(f"{title}: replay")
    return [
        Row(f"{title}: text to wire, against the parser", _UNIT, encode_us, baselines.texts_us),
        Row(f"{title}: counts from text, numpy", _UNIT, text_us, baselines.numpy_us),
        Row(f"{title}: counts from text, pandas", _UNIT, text_us, baselines.pandas_us),
        Row(f"{title}: counts from wire, numpy", _UNIT, wire_us, baselines.numpy_us),
        Row(f"{title}: counts from wire, pandas", _UNIT, wire_us, baselines.pandas_us),
        Row(f"{title}: replay on {BROKERS:,} brokers", _UNIT, _replay_us(spark, wires, index, count, filters)),
    ]


def _replay_us(spark: SparkSession, wires: Path, index: Path, count: int, filters: int) -> float:
    """Filter-based routing on a balanced tree with everybody anywhere."""
    overlay = make_overlay("balanced", brokers=BROKERS, degree=3)
    at = np.random.default_rng(3).integers(BROKERS, size=filters)
    names = pa.array([f"s{i}" for i in range(filters)])
    placed = spark.createDataFrame(pa.table({"subscription": names, "broker": pa.array(overlay.ids).take(pa.array(at))}))
    publishers = spark.createDataFrame(
        [(f"p{i}", overlay.ids[7 * i]) for i in range(PUBLISHERS)], "publisher string, broker string"
    )
    start = perf_counter()
    replayed(spark.read.parquet(str(wires)).where(f"sequence < {REPLAYED}"), index, overlay, publishers, placed).collect()
    return (perf_counter() - start) * 1e6 / min(count, REPLAYED)


def _us(step: DataFrame, column: str, count: int) -> float:
    """Carry a step out, down to one number, and tell what a publication took; the better of two runs unless they are long."""
    taken_s = []
    for _ in range(2 if count <= DISTINCT else 1):
        start = perf_counter()
        step.agg(F.sum(column)).collect()
        taken_s.append(perf_counter() - start)
    return min(taken_s) * 1e6 / count


def quotes(count: int) -> NDArray[np.float64]:
    """W2's publications as exchanges write them: cents, and whole volumes."""
    values = w2_values(count)
    return np.column_stack([values[:, :1], np.round(values[:, 1:5], 2), np.round(values[:, 5:])])


def texts_of(values: NDArray[np.float64]) -> pa.Array:
    """Quotes in the text syntax.

    >>> texts_of(np.array([[7, 1.01, 1.05, 0.95, 1.0, 2000]])).to_pylist()
    ["[symbol,'S007'],[open,1.01],[high,1.05],[low,0.95],[close,1.00],[volume,2000]"]
    """
    form = "[symbol,'S%03d'],[open,%.2f],[high,%.2f],[low,%.2f],[close,%.2f],[volume,%d]"
    return pa.array([form % tuple(row) for row in values.tolist()])


def _write(directory: Path, texts: pa.Array, count: int) -> None:
    directory.mkdir()
    for number, first in enumerate(range(0, count, PER_FILE)):
        sequence = np.arange(first, min(first + PER_FILE, count))
        publisher = pa.array([f"p{i}" for i in range(PUBLISHERS)]).take(pa.array(sequence % PUBLISHERS))
        table = pa.table(
            {"publisher": publisher, "sequence": sequence, "publication": texts.take(pa.array(sequence % len(texts)))}
        )
        pq.write_table(table, directory / f"{number}.parquet", compression="zstd")


def _save(intervals: Intervals, directory: Path) -> None:
    index = Index()
    index.add_many((f"s{i}", filter, None) for i, filter in enumerate(intervals.filters()))
    save_index(index, directory)


def _parsed_us(texts: list[str]) -> float:
    start = perf_counter()
    for text in texts:
        encode_publication(parse_publication(text))
    return (perf_counter() - start) * 1e6 / len(texts)


def _by_numpy(intervals: Intervals, values: NDArray[np.float64]) -> tuple[float, NDArray[np.int64]]:
    """Every publication with every filter, column by column."""
    low, high = np.ascontiguousarray(intervals.low.T), np.ascontiguousarray(intervals.high.T)
    start = perf_counter()
    counts = np.array([np.count_nonzero(brute_force_by_columns(low, high, row)) for row in values])
    return (perf_counter() - start) * 1e6 / len(values), counts


def _by_pandas(intervals: Intervals, values: NDArray[np.float64]) -> tuple[float, NDArray[np.int64]]:
    """A merge on the symbol, and all bounds compared on what is left."""
    names = intervals.names[1:]
    filters = pd.DataFrame({"symbol": intervals.low[:, 0]})
    for column, name in enumerate(names, start=1):
        filters[f"{name}_low"], filters[f"{name}_high"] = intervals.low[:, column], intervals.high[:, column]
    published = pd.DataFrame(values, columns=intervals.names).assign(sequence=range(len(values)))
    start = perf_counter()
    pairs = published.merge(filters, on="symbol")
    good = np.ones(len(pairs), np.bool_)
    for name in names:
        good &= pairs[name].between(pairs[f"{name}_low"], pairs[f"{name}_high"]).to_numpy()
    counts = np.bincount(pairs["sequence"].to_numpy()[good], minlength=len(values))
    return (perf_counter() - start) * 1e6 / len(values), counts
