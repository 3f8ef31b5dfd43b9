"""The matching steps: publications against an index that was saved by `overweave.pipeline.index_file`.

One kernel call matches many publications; workers of one machine share the pages of the index. `encoded_publications` makes the
wire form once for several steps. With ``skip_bad`` an unreadable publication is left out, and `bad_publications` lists it.
"""

from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from overweave.matching.search import PublicationView
from overweave.pipeline.index_file import open_index
from overweave.pipeline.publication_batches import (
    Batches,
    map_publications,
    matched_slots,
    named_errors,
    read_wires,
    readable_rows,
)
from overweave.pipeline.schemas import MATCHES

_KEY = [StructField("publisher", StringType(), False), StructField("sequence", LongType(), False)]
#: Schemas of the steps beside `MATCHES`.
ENCODED = StructType([*_KEY, StructField("wire", BinaryType(), False)])
COUNTS = StructType([*_KEY, StructField("count", LongType(), False)])
BAD_PUBLICATIONS = StructType([*_KEY, StructField("error", StringType(), False)])
#: Matches per output batch.
_MATCHES_MAX = 1 << 20


def subscription_matches(publications: DataFrame, index_directory: Path | str, *, skip_bad: bool = False) -> DataFrame:
    """The pairs of publications and matching subscriptions (`MATCHES`)."""

    def match(batches: Batches) -> Batches:
        index, names = open_index(index_directory)
        for batch, wires in read_wires(batches, skip_bad):
            for rows, slots, ends in matched_slots(index, batch, wires):
                keys = np.repeat(rows, np.diff(ends, prepend=0))
                for at in range(0, len(slots), _MATCHES_MAX):
                    some = pa.array(slots[at : at + _MATCHES_MAX])
                    yield _with_keys(batch, keys[at : at + _MATCHES_MAX], "subscription", names.take(some).cast(pa.string()))

    return map_publications(publications, match, MATCHES)


def match_counts(publications: DataFrame, index_directory: Path | str, *, skip_bad: bool = False) -> DataFrame:
    """The number of matching subscriptions per publication (`COUNTS`); much faster than the pairs."""

    def match(batches: Batches) -> Batches:
        index, _ = open_index(index_directory)
        for batch, wires in read_wires(batches, skip_bad):
            rows = readable_rows(wires)
            with named_errors(batch, wires, rows):
                counts = index.counts(PublicationView(wires.data, wires.starts[rows], wires.ends[rows]))
            yield _with_keys(batch, rows, "count", pa.array(counts))

    return map_publications(publications, match, COUNTS)


def encoded_publications(publications: DataFrame, *, skip_bad: bool = False) -> DataFrame:
    """Publications in their wire form (`ENCODED`), several times faster to read than text."""

    def encode(batches: Batches) -> Batches:
        for batch, wires in read_wires(batches, skip_bad):
            yield _with_keys(batch, readable_rows(wires), "wire", wires.column(readable_rows(wires)))

    return map_publications(publications, encode, ENCODED)


def bad_publications(publications: DataFrame) -> DataFrame:
    """Unreadable publications with their errors (`BAD_PUBLICATIONS`)."""

    def check(batches: Batches) -> Batches:
        for batch, wires in read_wires(batches, skip_bad=True):
            yield _with_keys(batch, np.array(list(wires.bad), np.int64), "error", pa.array(wires.bad.values(), pa.string()))

    return map_publications(publications, check, BAD_PUBLICATIONS)


def _with_keys(batch: pa.RecordBatch, rows: NDArray[np.int64], name: str, column: pa.Array) -> pa.RecordBatch:
    """A column with the keys of its rows: publisher and sequence number."""
    taken = pa.array(rows)
    keys = [batch.column("publisher").take(taken), batch.column("sequence").take(taken)]
    return pa.RecordBatch.from_arrays([*keys, column], ["publisher", "sequence", name])
