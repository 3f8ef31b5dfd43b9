"""Matching in bulk: publications against an index that was saved by `overweave.pipeline.index_file`.

Publications come as text (column ``publication``) or in the wire form (column ``wire``), which `encoded` makes once for several
steps. One compiled call matches many; workers on one machine share the index's pages. With ``skip_bad`` what cannot be read is
left out, and `bad_publications` says which that is; otherwise it is an `InvalidInput`, which Spark wraps (see
`overweave.pipeline.problems`).
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from overweave.errors import InvalidInput, WireError
from overweave.language.values import excerpt
from overweave.matching.index import Index
from overweave.matching.search import PublicationView
from overweave.pipeline.index_file import open_index
from overweave.pipeline.schemas import MATCHES
from overweave.pipeline.wire import Wires, wires_of_column, wires_of_texts

_KEY = [StructField("publisher", StringType(), False), StructField("sequence", LongType(), False)]
#: What the steps give beside `MATCHES`.
ENCODED = StructType([*_KEY, StructField("wire", BinaryType(), False)])
COUNTS = StructType([*_KEY, StructField("count", LongType(), False)])
BAD_PUBLICATIONS = StructType([*_KEY, StructField("error", StringType(), False)])
#: So many publications are matched at once: what they match stays in the cache of the processor.
CHUNK = 1024
#: So many matches go into one batch.
_MATCHES_MAX = 1 << 20

_Batches = Iterator[pa.RecordBatch]


def matched(publications: DataFrame, index_directory: Path | str, *, skip_bad: bool = False) -> DataFrame:
    """Which publication goes to which subscription (`MATCHES`)."""

    def match(batches: _Batches) -> _Batches:
        index, names = open_index(index_directory)
        for batch, wires in read_wires(batches, skip_bad):
            for rows, slots, ends in listed(index, batch, wires):
                keys = np.repeat(rows, np.diff(ends, prepend=0))
                for at in range(0, len(slots), _MATCHES_MAX):
                    some = pa.array(slots[at : at + _MATCHES_MAX])
                    yield _with_keys(batch, keys[at : at + _MATCHES_MAX], "subscription", names.take(some).cast(pa.string()))

    return mapped(publications, match, MATCHES)


def match_counts(publications: DataFrame, index_directory: Path | str, *, skip_bad: bool = False) -> DataFrame:
    """How many subscriptions each publication goes to (`COUNTS`); much quicker than to list them."""

    def match(batches: _Batches) -> _Batches:
        index, _ = open_index(index_directory)
        for batch, wires in read_wires(batches, skip_bad):
            rows = good_rows(wires)
            with _named(batch, wires, rows):
                counts = index.counts(PublicationView(wires.data, wires.starts[rows], wires.ends[rows]))
            yield _with_keys(batch, rows, "count", pa.array(counts))

    return mapped(publications, match, COUNTS)


def encoded(publications: DataFrame, *, skip_bad: bool = False) -> DataFrame:
    """Publications in their wire form (`ENCODED`), which the other steps read several times faster than text."""

    def encode(batches: _Batches) -> _Batches:
        for batch, wires in read_wires(batches, skip_bad):
            yield _with_keys(batch, good_rows(wires), "wire", wires.column(good_rows(wires)))

    return mapped(publications, encode, ENCODED)


def bad_publications(publications: DataFrame) -> DataFrame:
    """Which publications cannot be read, and why (`BAD_PUBLICATIONS`)."""

    def check(batches: _Batches) -> _Batches:
        for batch, wires in read_wires(batches, skip_bad=True):
            yield _with_keys(batch, np.array(list(wires.bad), np.int64), "error", pa.array(wires.bad.values(), pa.string()))

    return mapped(publications, check, BAD_PUBLICATIONS)


def read_wires(batches: _Batches, skip_bad: bool) -> Iterator[tuple[pa.RecordBatch, Wires]]:
    """Batches of publications with their wire forms; for steps that match."""
    for batch in batches:
        if "wire" in batch.schema.names:
            wires = wires_of_column(batch.column("wire"))
        else:
            wires = wires_of_texts(batch.column("publication"))
        if wires.bad and not skip_bad:
            row = min(wires.bad)
            raise InvalidInput(f"{_name(batch, row)}: {wires.bad[row]}")
        yield batch, wires


def good_rows(wires: Wires) -> NDArray[np.int64]:
    """The rows that can be matched."""
    return np.delete(np.arange(len(wires.starts)), list(wires.bad)) if wires.bad else np.arange(len(wires.starts))


def listed(
    index: Index, batch: pa.RecordBatch, wires: Wires
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]]:
    """Some rows at a time with the slots that they match, row after row, and where those of each row end."""
    good = good_rows(wires)
    for at in range(0, len(good), CHUNK):
        rows = good[at : at + CHUNK]
        with _named(batch, wires, rows):
            yield rows, *index.slots(PublicationView(wires.data, wires.starts[rows], wires.ends[rows]))


def mapped(publications: DataFrame, step: Callable[[_Batches], _Batches], schema: StructType, *more: str) -> DataFrame:
    """A step over batches of publications, with the columns that it needs and ``more``."""
    content = "wire" if "wire" in publications.columns else "publication"
    return publications.select("publisher", "sequence", content, *more).mapInArrow(step, schema)


@contextmanager
def _named(batch: pa.RecordBatch, wires: Wires, rows: NDArray[np.int64]) -> Iterator[None]:
    """An error of the index with the name of the publication instead of its place in memory."""
    try:
        yield
    except WireError as error:
        row = int(rows[int((wires.starts[rows] == error.offset).argmax())])
        raise InvalidInput(f"{_name(batch, row)}: expected a publication in its wire form") from None


def _name(batch: pa.RecordBatch, row: int) -> str:
    publisher, sequence = (batch.column(name)[row].as_py() for name in ("publisher", "sequence"))
    return f"publication {sequence} of {excerpt(publisher)}"


def _with_keys(batch: pa.RecordBatch, rows: NDArray[np.int64], name: str, column: pa.Array) -> pa.RecordBatch:
    """A column beside the publisher and the sequence number of the rows that it belongs to."""
    taken = pa.array(rows)
    keys = [batch.column("publisher").take(taken), batch.column("sequence").take(taken)]
    return pa.RecordBatch.from_arrays([*keys, column], ["publisher", "sequence", name])
