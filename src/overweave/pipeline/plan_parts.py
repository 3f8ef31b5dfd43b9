"""Parts of a clustering in tasks of Spark: a group of rows for each, and the clusters of all of them back on the driver."""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from overweave.planning.allocate.cram.parts import Part, RunParts, Work, cluster_part
from overweave.planning.problem import Whole

_PART_ROW = pa.schema(
    [
        ("part", pa.int64()),
        ("publisher", pa.list_(pa.int64())),
        ("words", pa.list_(pa.int64())),
        ("items", pa.list_(pa.int64())),
        ("output", pa.list_(pa.int64())),
        ("entries", pa.list_(pa.int64())),
    ]
)
_CLUSTER_ROW = pa.schema([("part", pa.int64()), ("cluster", pa.int64()), ("items", pa.list_(pa.int64()))])


def run_on(spark: SparkSession, show: Callable[[str], None] = lambda _: None) -> RunParts:
    """Clusters parts in tasks of Spark, a group of rows for each."""

    def run(parts: Sequence[Part], work: Work) -> Iterable[list[Whole]]:
        groups = sum(len(part) for part in parts)
        show(f"clustering {groups:,} groups in {len(parts):,} parts")
        rows = spark.createDataFrame(pa.concat_tables([_table(number, part) for number, part in enumerate(parts)]))

        # Spark looks at the arguments of the function, and cannot with a partial one.
        def cluster(table: pa.Table) -> pa.Table:
            return _cluster(work, table)

        done = rows.groupBy("part").applyInArrow(cluster, from_arrow_schema(_CLUSTER_ROW)).toArrow()
        return _clusters(done, len(parts))

    return run


def _table(number: int, part: Part) -> pa.Table:
    """A part as rows, one per profile."""
    width = part.words.shape[1]
    items = pa.array(part.item_start, pa.int32())
    columns = [
        pa.array(np.full(len(part), number), pa.int64()),
        pa.ListArray.from_arrays(pa.array(part.row_start, pa.int32()), pa.array(part.publisher)),
        pa.ListArray.from_arrays(pa.array(part.row_start * width, pa.int32()), pa.array(part.words.ravel().view(np.int64))),
        *(pa.ListArray.from_arrays(items, pa.array(column)) for column in (part.items, part.output, part.entries)),
    ]
    return pa.Table.from_arrays(columns, schema=_PART_ROW)


def _cluster(work: Work, table: pa.Table) -> pa.Table:
    part = _part(table)
    clusters = cluster_part(part, work)
    lengths = np.array([len(each) for each in clusters], np.int64)
    starts = pa.array(np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]), pa.int32())
    columns = [
        pa.array(np.full(len(clusters), table["part"][0].as_py()), pa.int64()),
        pa.array(np.arange(len(clusters))),
        pa.ListArray.from_arrays(starts, pa.array(np.concatenate(clusters))),
    ]
    return pa.Table.from_arrays(columns, schema=_CLUSTER_ROW)


def _part(table: pa.Table) -> Part:
    """A part of its rows, in whatever order they come: items have numbers."""
    publisher, words, items, output, entries = (table[name].combine_chunks() for name in _PART_ROW.names[1:])
    row_start, item_start = _starts(publisher), _starts(items)
    flat = words.flatten().to_numpy()
    width = len(flat) // max(int(row_start[-1]), 1) or 1
    return Part(
        row_start,
        publisher.flatten().to_numpy(),
        flat.view(np.uint64).reshape(-1, width),
        item_start,
        *(column.flatten().to_numpy() for column in (items, output, entries)),
    )


def _starts(lists: pa.ListArray) -> Whole:
    lengths = pc.list_value_length(lists).to_numpy()
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths, dtype=np.int64)])


def _clusters(table: pa.Table, parts: int) -> list[list[Whole]]:
    table = table.sort_by([("part", "ascending"), ("cluster", "ascending")])
    found: list[list[Whole]] = [[] for _ in range(parts)]
    items = table["items"].combine_chunks()
    starts, flat = _starts(items), items.flatten().to_numpy()
    for row, part in enumerate(table["part"].to_pylist()):
        found[part].append(flat[starts[row] : starts[row + 1]])
    return found
