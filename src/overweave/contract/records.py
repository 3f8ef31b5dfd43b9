"""Records: the rows of traces, with the columns of the table ``deliveries``."""

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
