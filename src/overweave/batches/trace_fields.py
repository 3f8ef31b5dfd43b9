"""Trace fields: the columns that a trace reads from the rows of a batch."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.batches.raw import RawRows
from overweave.language.codec import encode_publication


class TraceFields(NamedTuple):
    """The fields of one row in a trace."""

    publisher: str
    sequence: int
    hops: int
    published_at_s: float
    bytes: int


class Columns(NamedTuple):
    """Many records of one broker at one moment, by columns; texts are a list of distinct ones and codes into it."""

    publishers: list[str]
    publisher: NDArray[np.int32]
    sequence: NDArray[np.int64]
    subscriptions: list[str]
    #: -1: a pure forward, without a subscription and a client.
    subscription: NDArray[np.int32]
    clients: list[str]
    client: NDArray[np.int32]
    hops: NDArray[np.int32]
    published_at_s: NDArray[np.float64]
    arrived_at_s: float
    bytes: NDArray[np.int64]
    #: The neighbour that sent all of them; None: clients of this broker published them.
    previous_hop: str | None = None


class Receivers(NamedTuple):
    """Subscriptions and their clients, by code, and the code of each row; -1: a pure forward."""

    subscriptions: list[str]
    clients: list[str]
    codes: NDArray[np.int32]


def trace_fields(batch: Batch) -> Iterator[TraceFields]:
    """The trace fields of each row."""
    for publish in batch.publishes():
        header, size = publish.header, len(encode_publication(publish.publication)) + len(publish.payload)
        yield TraceFields(header.publisher, header.sequence, header.hops, header.published_at_s, size)


def trace_columns(
    batch: RawRows, rows: NDArray[np.int64] | slice, receivers: Receivers, now_s: float, peer: str
) -> Columns:  # fmt: skip
    """The trace of a selection of rows that ``peer`` sent, by columns."""
    encoded = batch.rows
    publisher = np.zeros(batch.count, np.int32)
    for code, (_, _, begin, _) in enumerate(encoded.runs[1:], start=1):
        publisher[begin:] = code
    hops = np.minimum(encoded.layout.hops.astype(np.int32) + batch.head.hops_added, 255)
    texts, clients, codes = receivers
    return Columns(
        [name for name, _, _, _ in encoded.runs], publisher[rows], encoded.layout.sequences[rows], texts, codes, clients, codes,
        hops[rows], encoded.layout.times[rows], now_s, encoded.sizes()[rows], peer if hops[0] else None,
    )  # fmt: skip
