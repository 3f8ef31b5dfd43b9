"""Trace fields: the columns that a trace reads from the rows of a batch."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class TraceFields(NamedTuple):
    """What a trace tells of one row."""

    publisher: str
    sequence: int
    hops: int
    published_at_s: float
    bytes: int


class Columns(NamedTuple):
    """Many records of one broker at one moment, by columns; texts are a list of those that occur and codes into it."""

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
