"""Replay: what each broker of a tree would carry, from matches alone, without simulating anything.

On a tree there is one path between two brokers, so where a publication goes follows from where it is wanted. Under filter-based
routing (THESIS 3.1) it visits exactly the union of the paths from its publisher's broker to the brokers of matching
subscriptions; under flooding (STOCH 4.2), all brokers. A kernel marks that union for each publication, walking from each broker
towards the publisher's until it meets a marked one, so a publication costs what it matches and where it goes, and only counts
per broker leave a worker. Faults, queues and publications that no advertisement covers are the simulator's matter.
"""

import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import LongType, StringType, StructField, StructType

from overweave.errors import InvalidInput
from overweave.language.values import excerpt
from overweave.matching.kernels.compile import kernel
from overweave.overlay.graph import Overlay
from overweave.overlay.paths import next_hops
from overweave.pipeline.index_file import SLOTS, open_index
from overweave.pipeline.locations import Location
from overweave.pipeline.publication_batches import map_publications, matched_slots, read_wires
from overweave.pipeline.spark_errors import translate_errors

#: Protocols that can be replayed, and whether a publication goes everywhere or only where it is wanted.
REPLAYED = {"flooding": True, "filter": False, "simple": False}

#: Per broker, by SPEC 1: arrivals of publications, from publishers too; of these, arrivals from another broker (hops), those with
#: a local match (useful) and those without (pure forwards). Then what it sends on to other brokers, what its subscriptions
#: get, one for each (deliveries), and over how many links that came in all.
COLUMNS = ("arrivals", "hops", "useful_arrivals", "pure_forwards", "forwards", "deliveries", "delivery_hops")
LOADS = StructType([StructField("broker", StringType(), False), *(StructField(name, LongType(), False) for name in COLUMNS)])
_ARRIVALS, _HOPS, _USEFUL_ARRIVALS, _PURE_FORWARDS, _FORWARDS, _DELIVERIES, _DELIVERY_HOPS = range(len(COLUMNS))


def replayed_load(
    publications: DataFrame,
    index_directory: Path | str,
    overlay: Overlay,
    publishers: DataFrame,
    subscriptions: DataFrame,
    protocol: str = "filter",
    *,
    skip_bad: bool = False,
) -> DataFrame:
    """What each broker of ``overlay`` carries (`LOADS`), brokers without traffic too.

    The index holds the subscriptions; ``publishers`` (publisher, broker) and ``subscriptions`` (subscription, broker) say where
    everybody is, so one index serves any number of placements and overlays.
    """
    if protocol not in REPLAYED:
        raise InvalidInput(f"protocol: expected one of {', '.join(REPLAYED)}, found {excerpt(protocol)}")
    if not overlay.is_tree():
        raise InvalidInput(f"overlay: expected a tree, found {overlay!r}")
    everywhere, ids = REPLAYED[protocol], overlay.ids
    # A table of 1,000 x 1,000 takes 4 MB, which Spark sends to each executor once.
    hops = next_hops(overlay)
    towards, distances = np.ascontiguousarray(hops.table.T), np.ascontiguousarray(hops.distances)
    placement_file = placement(subscriptions, index_directory, overlay)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index, _ = open_index(index_directory)
        # Not in the closure, which every task would unpack.
        placed = np.asarray(np.load(placement_file, mmap_mode="c"))
        counts, scratch = np.zeros((len(ids), len(COLUMNS)), np.int64), np.zeros((3, len(ids) + 1), np.int64)
        number = 0
        for batch, wires in read_wires(batches, skip_bad):
            sources = _sources(batch, ids)
            for rows, slots, ends in matched_slots(index, batch, wires):
                walk(sources[rows], slots, ends, placed, towards, distances, everywhere, number, scratch, counts)
                number += len(rows)
        counts[:, _PURE_FORWARDS] = counts[:, _ARRIVALS] - counts[:, _USEFUL_ARRIVALS]
        yield pa.RecordBatch.from_arrays([pa.array(ids), *map(pa.array, counts.T)], LOADS.fieldNames())

    # A publisher that is given twice is nowhere: its publications must not be counted twice.
    once = F.when(F.count("*") == 1, F.first("broker")).alias("broker")
    located = publications.join(publishers.groupBy("publisher").agg(once), "publisher", "left")
    # Also where nothing is published, every broker has its row.
    idle = publications.sparkSession.createDataFrame([(id, *[0] * len(COLUMNS)) for id in ids], LOADS)
    counted = idle.union(map_publications(located, replay, LOADS, "broker"))
    return counted.groupBy("broker").agg(*(F.sum(name).alias(name) for name in COLUMNS))


def placement(subscriptions: DataFrame, index_directory: Path | str, overlay: Overlay) -> Path:
    """Where the broker of each slot of an index is in ``overlay``: a file of numbers beside the index, for workers to map.

    A join says it, and one task writes it; the driver sees none of the rows.
    """
    directory = Path(index_directory).absolute()
    spark, file = subscriptions.sparkSession, directory / f"placed-{uuid.uuid4().hex[:12]}.npy"
    slots = spark.read.schema(_SLOTS).parquet(Location.of(directory / SLOTS).pattern)
    placed = slots.join(subscriptions.select("subscription", "broker"), "subscription", "left")
    write = partial(_write_placement, file, len(open_index(directory).names), overlay.ids)
    with translate_errors():
        told = placed.repartition(1).mapInArrow(write, "rows long, slots long").collect()
        rows, found = map(sum, zip(*told, strict=True)) if told else (0, 0)
        if rows != found:
            given = placed.groupBy("subscription").count().where("count > 1").orderBy("subscription")
            raise _no_broker("subscription", given.first().subscription, None)  # type: ignore[union-attr]
    if not told:
        np.save(file, np.empty(0, np.int32))
    return file


def _write_placement(file: Path, count: int, ids: Sequence[str], batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    placed, known, rows = np.full(count, _NOWHERE, np.int32), pa.array(ids), 0
    for batch in batches:
        positions = pc.index_in(batch.column("broker").cast(pa.string()), value_set=known)
        if positions.null_count:
            row = positions.is_null().index(pa.scalar(True)).as_py()
            raise _no_broker("subscription", *(batch.column(name)[row].as_py() for name in ("subscription", "broker")))
        placed[batch.column("slot").to_numpy()] = positions.to_numpy()
        rows += batch.num_rows
    np.save(file, placed)
    yield pa.RecordBatch.from_pydict({"rows": [rows], "slots": [int(np.count_nonzero(placed != _NOWHERE))]})


_SLOTS = "subscription string, slot int"
_NOWHERE = -1


def _sources(batch: pa.RecordBatch, ids: tuple[str, ...]) -> NDArray[np.int64]:
    """The position of the publisher's broker of each row."""
    found = pc.index_in(batch.column("broker"), value_set=pa.array(ids))
    if found.null_count:
        row = found.is_null().index(pa.scalar(True)).as_py()
        raise _no_broker("publisher", batch.column("publisher")[row].as_py(), batch.column("broker")[row].as_py())
    return np.asarray(found.to_numpy(), np.int64)


def _no_broker(kind: str, id: str, broker: str | None) -> InvalidInput:
    found = "none, or several" if broker is None else excerpt(broker)
    return InvalidInput(f"{kind} {excerpt(id)}: expected a broker of the overlay, found {found}")


@kernel
def walk(
    sources: Any, slots: Any, ends: Any, placed: Any, towards: Any, distances: Any, everywhere: bool, number: int, scratch: Any,
    counts: Any,
) -> None:  # fmt: skip
    """Count where publications go: row i from ``sources[i]`` to where the slots up to ``ends[i]`` are placed.

    ``towards[a, b]`` is the next broker on the way from b to a. ``scratch`` has for each broker the last row that came there, by
    a number of its own from ``number`` on, and how often the row at hand is wanted there; and a list of where it is.
    """
    at, (seen, wanted, where) = 0, (scratch[0], scratch[1], scratch[2])
    for row in range(len(sources)):
        source, mark, some = sources[row], number + row + 1, 0
        seen[source] = mark
        counts[source, _ARRIVALS] += 1
        while at < ends[row]:
            # No branch: which broker comes next cannot be foreseen.
            broker = placed[slots[at]]
            where[some] = broker
            some += wanted[broker] == 0
            wanted[broker] += 1
            at += 1
        for i in range(some):
            broker = where[i]
            counts[broker, _USEFUL_ARRIVALS] += 1
            counts[broker, _DELIVERIES] += wanted[broker]
            counts[broker, _DELIVERY_HOPS] += wanted[broker] * distances[source, broker]
            wanted[broker] = 0
            _visit(broker, mark, towards[source], seen, counts)
        if everywhere:
            for broker in range(len(counts)):
                _visit(broker, mark, towards[source], seen, counts)


@kernel
def _visit(broker: int, mark: int, towards: Any, seen: Any, counts: Any) -> None:
    """Count the way to ``broker``, as far as it was not counted yet."""
    while seen[broker] != mark:
        seen[broker] = mark
        counts[broker, _ARRIVALS] += 1
        counts[broker, _HOPS] += 1
        broker = towards[broker]
        counts[broker, _FORWARDS] += 1
