"""The messages between ``overweave demo`` and the process of its clients, as lines of JSON."""

import msgspec


class MarketConfig(msgspec.Struct, frozen=True):
    """The clients: how many filters, at which brokers, and how often each publisher publishes."""

    urls: tuple[str, ...]
    filters: int
    seed: int
    rate_hz: float


class Begin(msgspec.Struct, frozen=True, tag="begin"):
    """Begin a span of time: publications from now on belong to it."""

    span: str


class Stop(msgspec.Struct, frozen=True, tag="stop"):
    """Publish nothing more, wait for all deliveries, and count."""


class Status(msgspec.Struct, frozen=True, tag="status"):
    """The progress so far."""

    clients: int
    publications: int
    deliveries: int


class Opened(msgspec.Struct, frozen=True, tag="opened"):
    """All clients are connected, and what they said is in force."""


class Begun(msgspec.Struct, frozen=True, tag="begun"):
    """A span has begun; the end of the span before, with its publications and the expected deliveries of them."""

    begin_s: float = 0.0
    end_s: float = 0.0
    publications: int = 0
    expected: int = 0


class Span(msgspec.Struct, frozen=True):
    """The publications of a span of time, the expected deliveries by matching without a network, and the deliveries."""

    name: str
    begin_s: float
    end_s: float
    publications: int
    expected: int
    delivered: int
    lost: int
    duplicated: int
    #: Deliveries to filters that do not match.
    unexpected: int


class Spans(msgspec.Struct, frozen=True, tag="spans"):
    """All spans, after the end of the traffic."""

    spans: tuple[Span, ...]


Request = Begin | Stop
Reply = Status | Opened | Begun | Spans
