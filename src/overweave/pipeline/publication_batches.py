"""Arrow batches of publications inside workers: decoding, errors with names, and slots of an index; shared by steps that match.

Publications are text (column ``publication``) or in the wire form (column ``wire``). An unreadable publication is an
`InvalidInput`, or is left out with ``skip_bad``.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from overweave.errors import InvalidInput, WireError
from overweave.language.values import excerpt
from overweave.matching.index import Index
from overweave.matching.search import PublicationView
from overweave.pipeline.encode_texts import Wires, wires_of_column, wires_of_texts

#: Publications per call of the matching kernel: their matches stay in the processor's cache.
CHUNK = 1024

Batches = Iterator[pa.RecordBatch]


def map_publications(publications: DataFrame, step: Callable[[Batches], Batches], schema: StructType, *more: str) -> DataFrame:
    """The result of a step over batches of publications, which gets their key, content and the columns ``more``."""
    content = "wire" if "wire" in publications.columns else "publication"
    return publications.select("publisher", "sequence", content, *more).mapInArrow(step, schema)


def read_wires(batches: Batches, skip_bad: bool) -> Iterator[tuple[pa.RecordBatch, Wires]]:
    """Batches of publications with their wire forms."""
    for batch in batches:
        if "wire" in batch.schema.names:
            wires = wires_of_column(batch.column("wire"))
        else:
            wires = wires_of_texts(batch.column("publication"))
        if wires.bad and not skip_bad:
            row = min(wires.bad)
            raise InvalidInput(f"{_name(batch, row)}: {wires.bad[row]}")
        yield batch, wires


def readable_rows(wires: Wires) -> NDArray[np.int64]:
    """The rows with a valid publication."""
    return np.delete(np.arange(len(wires.starts)), list(wires.bad)) if wires.bad else np.arange(len(wires.starts))


def matched_slots(
    index: Index, batch: pa.RecordBatch, wires: Wires
) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32], NDArray[np.int64]]]:
    """Chunks of rows, the slots that they match, row after row, and the end of each row's slots."""
    readable = readable_rows(wires)
    for at in range(0, len(readable), CHUNK):
        rows = readable[at : at + CHUNK]
        with named_errors(batch, wires, rows):
            yield rows, *index.slots(PublicationView(wires.data, wires.starts[rows], wires.ends[rows]))


@contextmanager
def named_errors(batch: pa.RecordBatch, wires: Wires, rows: NDArray[np.int64]) -> Iterator[None]:
    """Errors of the index with the name of the publication instead of its offset."""
    try:
        yield
    except WireError as error:
        row = int(rows[int((wires.starts[rows] == error.offset).argmax())])
        raise InvalidInput(f"{_name(batch, row)}: expected a publication in its wire form") from None


def _name(batch: pa.RecordBatch, row: int) -> str:
    publisher, sequence = (batch.column(name)[row].as_py() for name in ("publisher", "sequence"))
    return f"publication {sequence} of {excerpt(publisher)}"
