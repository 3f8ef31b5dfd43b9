"""Records: the rows of traces, with the columns of the tables ``deliveries``, ``statements`` and ``decisions``."""

from collections.abc import Mapping

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


class Decision(msgspec.Struct, frozen=True):
    """A decision of a module at a broker, with its reason and the figures behind it."""

    at_s: float
    broker: str
    module: str
    #: The decision, such as ``open-link``, and its subject: the id of a broker, client or message.
    what: str
    about: str
    reason: str
    figures: Mapping[str, float] = {}
