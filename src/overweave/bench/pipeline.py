"""``overweave bench pipeline``: profiles, matching in bulk and replay on Spark, against one process with numpy and pandas.

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

from overweave.bench import replays, traces
from overweave.bench.base import Progress, Row
from overweave.bench.workloads import Intervals, brute_force_by_columns, w2, w2_values
from overweave.language.codec import encode_publication
from overweave.language.syntax import parse_publication
from overweave.pipeline.session import session
from overweave.pipeline.steps.match import encoded_publications, match_counts
from overweave.pipeline.task_progress import OnTasks, report_progress

#: Publications per file, so that several cores have work; larger tables repeat the same quotes.
PER_FILE = 125_000
DISTINCT = 1_000_000
#: The number done by the baselines.
SAMPLE = 200
PUBLISHERS = 100
_UNIT = "µs per publication"
_FROM_TEXT, _FROM_WIRE = "counts from text, numpy", "counts from wire, numpy"


def run(
    progress: Progress,
    subscriptions: Sequence[int] = (100_000,),
    publications: Sequence[int] = (1_000_000, 10_000_000),
    deliveries: Sequence[int] = (2_000_000, 20_000_000),
    replayed: Sequence[int] = (100_000, 1_000_000),
    on_tasks: OnTasks | None = None,
) -> list[Row]:
    """Measure all sizes: of filters and publications to match, of traces to profile, and of subscriptions to replay."""
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        tables = {count: directory / f"quotes{count}" for count in publications}
        runs = {count: directory / f"trace{count}" for count in deliveries}
        with session() as spark, report_progress(spark, on_tasks):
            for count, place in runs.items():
                rows += traces.measure_time(spark, progress, place, count)
            rows += _matching(spark, progress, directory, subscriptions, tables)
        # What follows has a process of its own for each size.
        rows += traces.measure_memory(progress, runs)
        rows += replays.measure(progress, _wires(tables[min(tables)]), list(replayed))
    return rows


def _matching(
    spark: SparkSession, progress: Progress, directory: Path, subscriptions: Sequence[int], tables: dict[int, Path]
) -> list[Row]:
    """Every table of publications against every number of filters, and how the time grows with publications."""
    rows = []
    values = quotes(min(DISTINCT, max(tables)))
    texts = texts_of(values)
    for count, table in tables.items():
        progress(f"{count:,} publications: writing")
        _write(table, texts, count)
    for filters in subscriptions:
        intervals, index = w2(filters), directory / f"index{filters}"
        progress(f"{filters:,} filters: loading")
        replays.save_filters(intervals, index)
        baselines = _Baselines(intervals, values[:SAMPLE])
        measured = {
            count: _measure(spark, progress, table, index, count, filters, baselines) for count, table in sorted(tables.items())
        }
        rows += [row for some in measured.values() for row in some]
        rows += _growth(filters, measured)
    return rows


def _growth(filters: int, measured: dict[int, list[Row]]) -> list[Row]:
    """How many times as long the most publications take as the fewest, against how many times as many they are."""
    least, most = min(measured), max(measured)
    few, many = ({row.name.partition(": ")[2]: row.ours for row in measured[count]} for count in (least, most))
    title = f"{most:,} instead of {least:,} publications, {filters:,} filters"
    growth = most / least
    return [
        Row(f"{title}: {name}", "times the time", many[name] / few[name] * growth, growth)
        for name in (_FROM_TEXT, _FROM_WIRE)
        if most > least
    ]


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
    wires = _wires(table)
    start = perf_counter()
    encoded_publications(texts).write.mode("overwrite").parquet(str(wires))
    encode_us = (perf_counter() - start) * 1e6 / count
    progress(f"{title}: from the wire form")
    wire_us = _us(match_counts(spark.read.parquet(str(wires)), index), "count", count)
    return [
        Row(f"{title}: text to wire, against the parser", _UNIT, encode_us, baselines.texts_us),
        Row(f"{title}: {_FROM_TEXT}", _UNIT, text_us, baselines.numpy_us),
        Row(f"{title}: counts from text, pandas", _UNIT, text_us, baselines.pandas_us),
        Row(f"{title}: {_FROM_WIRE}", _UNIT, wire_us, baselines.numpy_us),
        Row(f"{title}: counts from wire, pandas", _UNIT, wire_us, baselines.pandas_us),
        Row(f"{title}: counts from wire", "publications per second", 1e6 / wire_us),
    ]


def _wires(table: Path) -> Path:
    return Path(f"{table}.wires")


def _us(step: DataFrame, column: str, count: int) -> float:
    """Run a step, down to one number, and return the time per publication; the better of two runs unless they are long."""
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
    """A merge on the symbol, and a comparison of all bounds on the rest."""
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
