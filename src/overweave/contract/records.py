"""Records: the rows of traces, with the columns of the tables ``deliveries`` and ``statements``."""

from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray


class Record(msgspec.Struct, frozen=True):
    """A publication that arrived at a broker and matched a local subscription, or none (then it is a pure forward)."""

    run: str
    publisher: str
    sequence: int
    broker: str
    subscription: str | None
    client: str | None
    hops: int
    published_at_s: float
    arrived_at_s: float
    bytes: int
    #: The neighbour that sent it; None: a client of this broker published it.
    previous_hop: str | None = None


class Statement(msgspec.Struct, frozen=True):
    """A client's advertisement or subscription, or the withdrawal of one, at its broker."""

    run: str
    at_s: float
    broker: str
    client: str
    #: subscribe, unsubscribe, advertise, unadvertise.
    kind: str
    id: str
    #: None in a withdrawal.
    filter: str | None
    withdrawn: bool


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
