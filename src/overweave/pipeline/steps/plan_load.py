"""What every broker of a plan carries when publications are replayed on it: rates and bytes, by publisher and by client.

The same walk as `overweave.pipeline.steps.replay`, for plans: a publication is weighted by its publisher's rate, its
bytes are the publisher's, and a client gets it once, however many of its subscriptions match. Only sums leave a worker.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from overweave.errors import InvalidInput
from overweave.language.values import excerpt
from overweave.matching.kernels.compile import kernel
from overweave.overlay.graph import Overlay
from overweave.overlay.paths import next_hops
from overweave.pipeline.index_file import open_index
from overweave.pipeline.publication_batches import map_publications, matched_slots, read_wires

#: Per broker: arrivals of publications, messages that it sends to other brokers and to clients, and both as rates.
PLAN_LOAD = StructType(
    [
        StructField("broker", StringType(), False),
        StructField("arrivals", LongType(), False),
        StructField("messages", LongType(), False),
        StructField("input_hz", DoubleType(), False),
        StructField("output_bytes_per_s", DoubleType(), False),
    ]
)


@dataclass(frozen=True, eq=False)
class Placed:
    """Where everybody is, as positions of the overlay's brokers, and what a publication of each publisher counts."""

    publishers: tuple[str, ...]
    home: NDArray[np.int64]
    hz: NDArray[np.float64]
    bytes_per_s: NDArray[np.float64]
    #: The subscriptions with their clients, and the clients with their brokers.
    subscriptions: tuple[str, ...]
    client: NDArray[np.int64]
    broker: NDArray[np.int64]


def plan_load(publications: DataFrame, index_directory: Path | str, overlay: Overlay, placed: Placed) -> DataFrame:
    """The load of each broker of a tree (`PLAN_LOAD`), brokers without traffic too."""
    ids, towards = overlay.ids, np.ascontiguousarray(next_hops(overlay).table.T)
    publishers = pa.array(placed.publishers, pa.string())
    client = _client_of_slots(index_directory, placed)

    def replay(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        index, _ = open_index(index_directory)
        counts, sums = np.zeros((2, len(ids)), np.int64), np.zeros((2, len(ids)))
        seen, got, number = np.zeros(len(ids), np.int64), np.zeros(len(placed.broker), np.int64), 0
        for batch, wires in read_wires(batches, False):
            source = _publishers(batch, publishers)
            for rows, slots, ends in matched_slots(index, batch, wires):
                walk(
                    source[rows], slots, ends, client, placed.broker, placed.home, placed.hz, placed.bytes_per_s, towards, number,
                    seen, got, *counts, *sums,
                )  # fmt: skip
                number += len(rows)
        yield pa.RecordBatch.from_arrays([pa.array(ids), *map(pa.array, (*counts, *sums))], PLAN_LOAD.fieldNames())

    # Also where nothing is published, every broker has its row.
    idle = publications.sparkSession.createDataFrame([(id, 0, 0, 0.0, 0.0) for id in ids], PLAN_LOAD)
    found = idle.union(map_publications(publications, replay, PLAN_LOAD))
    return found.groupBy("broker").agg(*(F.sum(name).alias(name) for name in PLAN_LOAD.fieldNames()[1:]))


def _client_of_slots(index_directory: Path | str, placed: Placed) -> NDArray[np.int64]:
    """The client of each slot of an index; -1 for subscriptions that the plan does not place, as they were withdrawn."""
    names = open_index(index_directory).names
    found = pc.fill_null(pc.index_in(names, value_set=pa.array(placed.subscriptions, pa.large_string())), -1)
    clients: NDArray[np.int64] = np.append(placed.client, -1)[found.to_numpy(zero_copy_only=False)]
    return clients


def _publishers(batch: pa.RecordBatch, known: pa.Array) -> NDArray[np.int64]:
    found = pc.index_in(batch.column("publisher"), value_set=known)
    if found.null_count:
        id = batch.column("publisher")[found.is_null().index(pa.scalar(True)).as_py()].as_py()
        raise InvalidInput(f"publisher {excerpt(id)}: expected one that the plan places")
    return np.asarray(found.to_numpy(), np.int64)


@kernel
def walk(
    publisher: Any, slots: Any, ends: Any, client: Any, broker: Any, home: Any, hz: Any, size: Any, towards: Any, number: int,
    seen: Any, got: Any, arrivals: Any, messages: Any, inputs: Any, outputs: Any,
) -> None:  # fmt: skip
    """Add up where publications go: row i of ``publisher[i]`` to the clients of the slots up to ``ends[i]``.

    ``towards[a, b]`` is the next broker on the way from b to a; ``seen`` and ``got`` have the last row of each broker and client.
    """
    at = 0
    for row in range(len(publisher)):
        p, mark = publisher[row], number + row + 1
        source = home[p]
        seen[source] = mark
        arrivals[source] += 1
        inputs[source] += hz[p]
        while at < ends[row]:
            who = client[slots[at]]
            at += 1
            if who < 0 or got[who] == mark:
                continue
            got[who] = mark
            here = broker[who]
            messages[here] += 1
            outputs[here] += size[p]
            while seen[here] != mark:
                seen[here] = mark
                arrivals[here] += 1
                inputs[here] += hz[p]
                here = towards[source, here]
                messages[here] += 1
                outputs[here] += size[p]
