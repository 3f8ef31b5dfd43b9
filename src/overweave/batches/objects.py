"""Batches of objects: publications of the simulator, and single ones."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch, Identity, SeenRows
from overweave.batches.destinations import NextHops, bits_of, numbers_of
from overweave.batches.kernels import mark_seen
from overweave.batches.plain_filters import PlainFilters
from overweave.batches.trace_fields import TraceFields
from overweave.language.codec import address_of_publication, encode_publication
from overweave.language.headers import Priority
from overweave.language.messages import Publish
from overweave.matching.base import Id, Link
from overweave.matching.index import Index

_NO_ROWS = np.empty(0, np.int64)
_FIRST_ROW = np.zeros(1, np.int64)


class Rows:
    """A batch of objects, mostly of one; ``hops`` were taken since their headers were written.

    >>> from overweave.language.headers import Header
    >>> from overweave.language.publications import Publication
    >>> batch = Rows((Publish(Publication({"x": 1}), Header("p", 7)),)).next_hop()
    >>> batch.publishes()[0].header.hops, list(batch.identities())
    (1, [('p', 0, 7)])
    """

    __slots__ = ("_base", "_bound", "_given", "_hops", "_lanes", "_picks", "count", "tag", "ttl")

    def __init__(self, rows: tuple[Publish, ...], hops: int = 0) -> None:
        #: The rows, or where they were taken from and which they are there: few look at what they pass on.
        self._given: tuple[Publish, ...] | None = rows
        self._base: Rows | None = None
        self._picks: NDArray[np.int64] | None = None
        self._hops = hops
        #: The destination lists of all rows, as sets of bits; None: those of their headers.
        self._bound: tuple[int, ...] | None = None
        #: What kernels read of several rows, made when they first do.
        self._lanes: _Columns | None = None
        self.count, self.tag = len(rows), 0
        self.ttl = (rows[0] if len(rows) == 1 else min(rows, key=_ttl)).header.ttl - hops

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.publishes() == other.publishes()

    def __hash__(self) -> int:
        return hash(self._rows())

    def __repr__(self) -> str:
        return f"Rows({self.publishes()!r})"

    def validate_layout(self) -> None:
        """See `Batch.validate_layout`: objects are sound."""

    def publishes(self) -> Sequence[Publish]:
        """See `Batch.publishes`."""
        rows = self._rows()
        if self._hops:
            rows = tuple(msgspec.structs.replace(publish, header=publish.header.next_hop(self._hops)) for publish in rows)
        if self._bound is not None:
            rows = tuple(_bound_for(publish, bits) for publish, bits in zip(rows, self._bound, strict=True))
        return rows

    def identities(self) -> Iterator[Identity]:
        """See `Batch.identities`."""
        for publish in self._rows():
            header = publish.header
            yield header.publisher, header.life, header.sequence

    def mark_seen(self, seen: SeenRows) -> NDArray[np.int64] | None:
        """See `Batch.mark_seen`."""
        if self.count == 1:
            header = (self._given or self._rows())[0].header
            return None if seen.add(header.publisher, header.life, header.sequence) else _NO_ROWS
        lanes = self._kernels_read()
        if lanes.publisher is None:
            news = [seen.add(*identity) for identity in self.identities()]
            return None if all(news) else np.flatnonzero(news)
        fresh = np.empty(self.count, np.bool_)
        highest, ring = seen.window_of(*lanes.publisher, int(lanes.sequences[0]))
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
        made._bound = None if self._bound is None else tuple([self._bound[row] for row in rows.tolist()])
        made.count, made.ttl, made.tag = len(rows), self.ttl, self.tag
        return made

    def next_hop(self) -> "Rows":
        """See `Batch.next_hop`."""
        made = object.__new__(Rows)
        made._given, made._lanes, made._hops = self._given, self._lanes, self._hops + 1
        made._base, made._picks, made._bound = self._base, self._picks, self._bound
        made.count, made.ttl, made.tag = self.count, self.ttl - 1, self.tag
        return made

    def with_tag(self, tag: int) -> "Rows":
        """See `Batch.with_tag`."""
        if tag == self.tag:
            return self
        made = self._same()
        made.tag = tag
        return made

    def unexpired(self) -> "Rows | None":
        """See `Batch.unexpired`."""
        if self.ttl > 0:
            return self
        rows = [row for row, publish in enumerate(self._rows()) if publish.header.ttl > self._hops]
        return self.take(np.array(rows, np.int64)) if rows else None

    def has_destinations(self) -> bool:
        """See `Batch.has_destinations`."""
        return bool(self._rows()[0].header.destinations if self._bound is None else self._bound[0])

    def destinations(self) -> Mapping[int, int]:
        """See `Batch.destinations`."""
        return Counter(number for bits in self._lists() for number in numbers_of(bits))

    def match_rows(self, index: Index) -> Iterable[tuple[Link, NDArray[np.int64]]]:
        """See `Batch.match_rows`."""
        if self.count == 1:
            return [(link, _FIRST_ROW) for link in index.links(self._rows()[0].publication, None)]
        return index.links_of_places(self._kernels_read().places, None)

    def not_admitted(self, filters: PlainFilters) -> NDArray[np.int64]:  # noqa: ARG002
        """See `Batch.not_admitted`: of objects that takes as long as to look at them."""
        return np.arange(self.count)

    def attribute_counts(self) -> NDArray[np.int64]:
        """See `Batch.attribute_counts`."""
        return np.array([len(publish.publication) for publish in self._rows()], np.int64)

    def sequences(self) -> NDArray[np.int64]:
        """See `Batch.sequences`."""
        return np.array([publish.header.sequence for publish in self._rows()], np.int64)

    def with_destinations(self, found: Iterable[tuple[int, NDArray[np.int64]]]) -> "Rows | None":
        """See `Batch.with_destinations`."""
        lists = [0] * self.count
        for number, rows in found:
            for row in rows.tolist():
                lists[row] |= 1 << number
        return self._some_bound(lists)

    def split_by_next_hop(self, ways: NextHops) -> "list[tuple[str | None, Batch]]":
        """See `Batch.split_by_next_hop`."""
        lists = self._lists()
        if self.count == 1:
            return [(hop, self._bound_anew((bits,))) for hop, bits in ways.parts(lists[0])]
        parts: dict[str | None, list[int]] = {}
        for row, destinations in enumerate(lists):
            for hop, bits in ways.parts(destinations):
                parts.setdefault(hop, [0] * self.count)[row] = bits
        return [(hop, some) for hop, bits in parts.items() if (some := self._some_bound(bits)) is not None]

    def split_local(self, number: int) -> "tuple[Rows | None, Rows | None]":
        """See `Batch.split_local`."""
        lists, bit = self._lists(), 1 << number
        here = [row for row, destinations in enumerate(lists) if destinations & bit]
        if not here:
            return None, self
        mine = self.take(np.array(here, np.int64))._bound_anew((0,) * len(here))
        return mine, self._some_bound([destinations & ~bit for destinations in lists])

    def split_by_link(self, index: Index, exclude: Link = None) -> "Iterable[tuple[Link, Rows]]":
        """See `Batch.split_by_link`."""
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

    def trace_fields(self) -> Iterator[TraceFields]:
        """See `Batch.trace_fields`."""
        for publish in self._rows():
            header = publish.header
            hops = header.hops + self._hops
            yield TraceFields(header.publisher, header.sequence, hops, header.published_at_s, _size_bytes(publish))

    def size_bytes(self) -> int:
        """See `Batch.size_bytes`."""
        return sum(map(_size_bytes, self._rows()))

    @property
    def wire_bytes(self) -> int:
        """See `Batch.wire_bytes`."""
        return 0

    def priority(self) -> Priority:
        """See `Batch.priority`."""
        return self._rows()[0].header.priority

    def _lists(self) -> Sequence[int]:
        """The destination lists, as sets of bits."""
        if self._bound is None:
            self._bound = tuple(bits_of(publish.header.destinations) for publish in self._rows())
        return self._bound

    def _bound_anew(self, lists: tuple[int, ...]) -> "Rows":
        """The same rows with other destination lists."""
        if lists == self._bound:
            return self
        made = self._same()
        made._bound = lists
        return made

    def _same(self) -> "Rows":
        made = object.__new__(Rows)
        made._given, made._lanes, made._hops = self._given, self._lanes, self._hops
        made._base, made._picks, made._bound = self._base, self._picks, self._bound
        made.count, made.ttl, made.tag = self.count, self.ttl, self.tag
        return made

    def _some_bound(self, lists: list[int]) -> "Rows | None":
        """The rows whose new destination lists are not empty."""
        rows = [row for row, destinations in enumerate(lists) if destinations]
        if len(rows) == self.count:
            return self._bound_anew(tuple(lists))
        return self.take(np.array(rows, np.int64))._bound_anew(tuple([lists[row] for row in rows])) if rows else None

    def _rows(self) -> tuple[Publish, ...]:
        """The rows as they were published."""
        if self._given is None:
            assert self._base is not None
            assert self._picks is not None
            rows = self._base._rows()
            self._given = tuple([rows[pick] for pick in self._picks.tolist()])
        return self._given

    def _kernels_read(self) -> "_Columns":
        if self._lanes is not None:
            return self._lanes
        if self._base is not None:
            base = self._base._kernels_read()
            self._lanes = _Columns(base.places[self._picks], base.sequences[self._picks], base.publisher)
            return self._lanes
        rows = self._rows()
        headers = [publish.header for publish in rows]
        publishers = {(header.publisher, header.life) for header in headers}
        self._lanes = _Columns(
            np.array([address_of_publication(publish.publication) for publish in rows], np.int64),
            np.array([header.sequence for header in headers], np.int64),
            publishers.pop() if len(publishers) == 1 else None,
        )
        return self._lanes


class _Columns(NamedTuple):
    """Where the contents of rows lie, their sequence numbers, and the publisher and its life if all have the same."""

    places: NDArray[np.int64]
    sequences: NDArray[np.int64]
    publisher: tuple[str, int] | None


def _bound_for(publish: Publish, bits: int) -> Publish:
    return msgspec.structs.replace(publish, header=msgspec.structs.replace(publish.header, destinations=numbers_of(bits)))


def _ttl(publish: Publish) -> int:
    return publish.header.ttl


def _size_bytes(publish: Publish) -> int:
    return len(encode_publication(publish.publication)) + len(publish.payload)
