"""Batches: publications on their way, some rows at a time.

A batch is a value with two backings: objects, here, for the simulator and for whatever comes alone; and the bytes that came off a
socket (`overweave.contract.raw`). Cores and routing protocols see only what both can do.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple, Protocol

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.contract.row_kernels import mark_seen
from overweave.language.codec import encode_publication, place_of_publication
from overweave.language.headers import Priority
from overweave.language.messages import Publish
from overweave.matching.base import Id, Link
from overweave.matching.index import Index

_NO_ROWS = np.empty(0, np.int64)


class Arrival(NamedTuple):
    """What a trace tells of one row."""

    publisher: str
    sequence: int
    hops: int
    published_at_s: float
    bytes: int


class SeenRows(Protocol):
    """What a peer has seen, by publisher and sequence number (`overweave.broker.seen`)."""

    def add(self, publisher: str, sequence: int) -> bool:
        """Whether a publication is new; it is not from now on."""

    def marks(self, publisher: str, sequence: int) -> tuple[list[int], bytearray]:
        """The highest number of a publisher and the ring of bits up to it, for the caller to go on from ``sequence``."""


class Batch(Protocol):
    """Rows of publications; a frozen value."""

    #: How many rows.
    count: int
    #: So many hops are left to every row, at least.
    ttl: int

    def publishes(self) -> Sequence[Publish]:
        """The rows as objects."""

    def identities(self) -> Iterable[tuple[str, int]]:
        """The publisher and sequence number of each row."""

    def new(self, seen: SeenRows) -> NDArray[np.int64] | None:
        """Which rows are new; None when all are."""

    def take(self, rows: NDArray[np.int64]) -> "Batch":
        """Some of the rows."""

    def hopped(self) -> "Batch":
        """All rows after one more hop."""

    def alive(self) -> "Batch | None":
        """The rows that may hop once more."""

    def spread(self, index: Index, exclude: Link = None) -> "Iterable[tuple[Link, Batch]]":
        """Which rows match on which link of an index."""

    def ids(self, index: Index) -> Iterable[list[Id]]:
        """The ids of all filters in an index that each row matches."""

    def arrivals(self) -> Iterable[Arrival]:
        """What a trace tells of each row."""

    def size_bytes(self) -> int:
        """The content and payload of all rows."""

    def priority(self) -> Priority:
        """Who goes first in a queue."""


class Rows:
    """A batch of objects, mostly of one; ``hops`` were taken since their headers were written.

    >>> from overweave.language.headers import Header
    >>> from overweave.language.publications import Publication
    >>> batch = Rows((Publish(Publication({"x": 1}), Header("p", 7)),)).hopped()
    >>> batch.publishes()[0].header.hops, list(batch.identities())
    (1, [('p', 7)])
    """

    __slots__ = ("_base", "_given", "_hops", "_lanes", "_picks", "count", "ttl")

    def __init__(self, rows: tuple[Publish, ...], hops: int = 0) -> None:
        #: The rows, or where they were taken from and which they are there: few look at what they pass on.
        self._given: tuple[Publish, ...] | None = rows
        self._base: Rows | None = None
        self._picks: NDArray[np.int64] | None = None
        self._hops = hops
        #: What kernels read of several rows, made when they first do.
        self._lanes: _Lanes | None = None
        self.count = len(rows)
        self.ttl = (rows[0] if len(rows) == 1 else min(rows, key=_ttl)).header.ttl - hops

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.publishes() == other.publishes()

    def __hash__(self) -> int:
        return hash(self._rows())

    def __repr__(self) -> str:
        return f"Rows({self.publishes()!r})"

    def publishes(self) -> Sequence[Publish]:
        """See `Batch.publishes`."""
        if self._hops == 0:
            return self._rows()
        return tuple(msgspec.structs.replace(publish, header=publish.header.hopped(self._hops)) for publish in self._rows())

    def identities(self) -> Iterator[tuple[str, int]]:
        """See `Batch.identities`."""
        for publish in self._rows():
            yield publish.header.publisher, publish.header.sequence

    def new(self, seen: SeenRows) -> NDArray[np.int64] | None:
        """See `Batch.new`."""
        if self.count == 1:
            header = (self._given or self._rows())[0].header
            return None if seen.add(header.publisher, header.sequence) else _NO_ROWS
        lanes = self._kernels_read()
        if lanes.publisher is None:
            news = [seen.add(publisher, sequence) for publisher, sequence in self.identities()]
            return None if all(news) else np.flatnonzero(news)
        fresh = np.empty(self.count, np.bool_)
        highest, ring = seen.marks(lanes.publisher, int(lanes.sequences[0]))
        bits = np.frombuffer(ring, np.uint8)
        new, highest[0] = mark_seen(bits, len(ring) * 8 - 1, highest[0], lanes.sequences, fresh)
        return None if new == self.count else np.flatnonzero(fresh)

    def take(self, rows: NDArray[np.int64]) -> "Rows":
        """See `Batch.take`."""
        if len(rows) == self.count:
            return self
        made = object.__new__(Rows)
        made._given, made._lanes, made._hops = None, None, self._hops
        made._base, made._picks = (self, rows) if self._picks is None else (self._base, self._picks[rows])
        made.count, made.ttl = len(rows), self.ttl
        return made

    def hopped(self) -> "Rows":
        """See `Batch.hopped`."""
        made = object.__new__(Rows)
        made._given, made._lanes, made._hops = self._given, self._lanes, self._hops + 1
        made._base, made._picks = self._base, self._picks
        made.count, made.ttl = self.count, self.ttl - 1
        return made

    def alive(self) -> "Rows | None":
        """See `Batch.alive`."""
        if self.ttl > 0:
            return self
        rows = tuple(publish for publish in self._rows() if publish.header.ttl > self._hops)
        return Rows(rows, self._hops) if rows else None

    def spread(self, index: Index, exclude: Link = None) -> "Iterable[tuple[Link, Rows]]":
        """See `Batch.spread`."""
        if self.count == 1:
            found: list[tuple[Link, Rows]] = []
            for link in index.links((self._given or self._rows())[0].publication, exclude):
                found.append((link, self))  # noqa: PERF401 (a comprehension is a call, and takes twice as long for so few)
            return found
        return [(link, self.take(rows)) for link, rows in index.links_of_places(self._kernels_read().places, exclude)]

    def ids(self, index: Index) -> Iterator[list[Id]]:
        """See `Batch.ids`."""
        for publish in self._rows():
            yield index.ids(publish.publication)

    def arrivals(self) -> Iterator[Arrival]:
        """See `Batch.arrivals`."""
        for publish in self._rows():
            header = publish.header
            hops = header.hops + self._hops
            yield Arrival(header.publisher, header.sequence, hops, header.published_at_s, _size_bytes(publish))

    def size_bytes(self) -> int:
        """See `Batch.size_bytes`."""
        return sum(map(_size_bytes, self._rows()))

    def priority(self) -> Priority:
        """See `Batch.priority`."""
        return self._rows()[0].header.priority

    def _rows(self) -> tuple[Publish, ...]:
        """The rows as they were published."""
        if self._given is None:
            assert self._base is not None
            assert self._picks is not None
            rows = self._base._rows()
            self._given = tuple([rows[pick] for pick in self._picks.tolist()])
        return self._given

    def _kernels_read(self) -> "_Lanes":
        if self._lanes is not None:
            return self._lanes
        if self._base is not None:
            base = self._base._kernels_read()
            self._lanes = _Lanes(base.places[self._picks], base.sequences[self._picks], base.publisher)
            return self._lanes
        rows = self._rows()
        headers = [publish.header for publish in rows]
        self._lanes = _Lanes(
            np.array([place_of_publication(publish.publication) for publish in rows], np.int64),
            np.array([header.sequence for header in headers], np.int64),
            headers[0].publisher if len({header.publisher for header in headers}) == 1 else None,
        )
        return self._lanes


class _Lanes(NamedTuple):
    """Where the contents of rows lie, their sequence numbers, and the publisher if all have the same."""

    places: NDArray[np.int64]
    sequences: NDArray[np.int64]
    publisher: str | None


def _ttl(publish: Publish) -> int:
    return publish.header.ttl


def _size_bytes(publish: Publish) -> int:
    return len(encode_publication(publish.publication)) + len(publish.payload)
