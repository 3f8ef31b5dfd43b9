"""Records: the rows of traces, with the columns of the tables ``deliveries`` and ``statements``."""

import msgspec


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
