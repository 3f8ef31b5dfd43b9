"""Batches of objects: publications of the simulator, and single ones."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch, BatchHead, Identity, SeenRows
from overweave.batches.destinations import bits_of, bits_of_words, numbers_of, words_of
from overweave.batches.kernels import mark_seen
from overweave.language.codec import address_of_publication, encode_publication
from overweave.language.generations import next_life
from overweave.language.headers import Priority
from overweave.language.messages import Publish
from overweave.language.publications import Publication
from overweave.matching.base import Link
from overweave.matching.index import Index

_NO_ROWS = np.empty(0, np.int64)
_FIRST_ROW = np.zeros(1, np.int64)


class Rows(Batch):
    """A batch of objects, mostly of one; ``hops`` is the number of hops since their headers were written.

    >>> from overweave.language.headers import Header
    >>> from overweave.language.publications import Publication
    >>> batch = Rows((Publish(Publication({"x": 1}), Header("p", 7)),)).next_hop()
    >>> batch.publishes()[0].header.hops, list(batch.identities())
    (1, [('p', 0, 7)])
    """

    __slots__ = ("_lists", "_source", "count", "head")

    #: See `Batch.wire_bytes`.
    wire_bytes = 0

    def __init__(self, rows: tuple[Publish, ...], hops: int = 0) -> None:
        #: The rows as they were published; batches that differ in their heads share them.
        self._source = _Source(rows[0].header.priority, rows)
        #: The destination lists of all rows, as bits; None: all rows share that of the head.
        self._lists: tuple[int, ...] | None = None
        self.count = len(rows)
        if self.count == 1:
            header = rows[0].header
            self.head = BatchHead(hops, header.ttl, 0, bits_of(header.destinations) if header.destinations else 0)
        else:
            head = BatchHead(hops, min(publish.header.ttl for publish in rows))
            self._lists, self.head = _shared_or_listed(head, [bits_of(publish.header.destinations) for publish in rows])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rows) and self.publishes() == other.publishes()

    def __hash__(self) -> int:
        return hash(self._source.rows())

    def __repr__(self) -> str:
        return f"Rows({self.publishes()!r})"

    def with_head(self, head: BatchHead) -> "Rows":
        """See `Batch.with_head`."""
        made = object.__new__(Rows)
        made._source, made._lists, made.count, made.head = self._source, self._lists, self.count, head
        return made

    def next_hop(self) -> "Rows":
        """See `Batch.next_hop`; written out, because the simulator calls it for every hop of every publication."""
        made, head = object.__new__(Rows), self.head
        made._source, made._lists, made.count = self._source, self._lists, self.count
        made.head = BatchHead(head.hops_added + 1, head.ttl_written, head.tag, head.destinations, head.has_lists)
        return made

    def next_generation(self) -> "Rows":
        """See `Batch.next_generation`."""
        made = self.with_head(self.head)
        made._source = _Source(self._source.priority, tuple(map(_in_next_generation, self._source.rows())))
        return made

    def take(self, rows: NDArray[np.int64]) -> "Rows":
        """See `Batch.take`."""
        if len(rows) == self.count:
            return self
        made = object.__new__(Rows)
        made._source = self._source.take(rows)
        made._lists = None if self._lists is None else tuple([self._lists[row] for row in rows.tolist()])
        made.count, made.head = len(rows), self.head
        return made

    def publishes(self) -> Sequence[Publish]:
        """See `Batch.publishes`."""
        rows, hops = self._source.rows(), self.head.hops_added
        if hops:
            rows = tuple(msgspec.structs.replace(publish, header=publish.header.next_hop(hops)) for publish in rows)
        elif self._lists is None and not self.head.destinations and not any(publish.header.destinations for publish in rows):
            return rows
        lists = map(numbers_of, self._lists) if self._lists is not None else [numbers_of(self.head.destinations)] * self.count
        return tuple(_with_destinations(publish, numbers) for publish, numbers in zip(rows, lists, strict=True))

    def publications(self) -> list[Publication]:
        """The contents."""
        return [publish.publication for publish in self._source.rows()]

    def identities(self) -> Iterator[Identity]:
        """See `Batch.identities`."""
        for publish in self._source.rows():
            header = publish.header
            yield header.publisher, header.life, header.sequence

    def sequences(self) -> NDArray[np.int64]:
        """See `Batch.sequences`."""
        return np.array([publish.header.sequence for publish in self._source.rows()], np.int64)

    def mark_seen(self, seen: SeenRows) -> NDArray[np.int64] | None:
        """See `Batch.mark_seen`."""
        if self.count == 1:
            source = self._source
            header = (source.given or source.rows())[0].header
            return None if seen.add(header.publisher, header.life, header.sequence) else _NO_ROWS
        columns = self._source.kernel_columns()
        if columns.publisher is None:
            news = [seen.add(*identity) for identity in self.identities()]
            return None if all(news) else np.flatnonzero(news)
        fresh = np.empty(self.count, np.bool_)
        highest, ring = seen.window_of(*columns.publisher, int(columns.sequences[0]))
        bits = np.frombuffer(ring, np.uint8)
        new, highest[0] = mark_seen(bits, len(ring) * 8 - 1, highest[0], columns.sequences, fresh)
        return None if new == self.count else np.flatnonzero(fresh)

    def unexpired(self) -> "Rows | None":
        """See `Batch.unexpired`."""
        if self.head.ttl_written > self.head.hops_added:
            return self
        rows = [row for row, publish in enumerate(self._source.rows()) if publish.header.ttl > self.head.hops_added]
        if not rows:
            return None
        some = self.take(np.array(rows, np.int64))
        return some.with_head(some.head.with_ttl(min(publish.header.ttl for publish in some._source.rows())))

    def match(self, index: Index, exclude: Link = None) -> Sequence[tuple[Link, NDArray[np.int64]]]:
        """See `Batch.match`."""
        if self.count == 1:
            return [(link, _FIRST_ROW) for link in index.links(self._source.rows()[0].publication, exclude)]
        return index.addresses_by_link(self._source.kernel_columns().addresses, exclude)

    def split_by_link(self, index: Index, exclude: Link = None) -> list[tuple[Link, "Rows"]]:
        """See `Batch.split_by_link`; single rows need no selection."""
        if self.count == 1:
            found: list[tuple[Link, Rows]] = []
            source = self._source
            for link in index.links((source.given or source.rows())[0].publication, exclude):
                found.append((link, self))  # noqa: PERF401 (a comprehension is a call: twice as slow for so few)
            return found
        by_link = index.addresses_by_link(self._source.kernel_columns().addresses, exclude)
        return [(link, self.take(rows)) for link, rows in by_link]

    def destination_lists(self) -> NDArray[np.uint64]:
        """See `Batch.destination_lists`."""
        lists = (self.head.destinations,) * self.count if self._lists is None else self._lists
        width = max(max(lists).bit_length() - 1, 0) // 64 + 1
        return np.stack([words_of(bits, width) for bits in lists])

    def with_lists(self, rows: NDArray[np.int64], lists: NDArray[np.uint64]) -> "Rows":
        """See `Batch.with_lists`."""
        some = self.take(rows)
        made_lists, head = _shared_or_listed(self.head, [bits_of_words(words) for words in lists])
        made = some.with_head(head)
        made._lists = made_lists
        return made

    def validate_layout(self) -> None:
        """See `Batch.validate_layout`: objects are well-formed."""

    def size_bytes(self) -> int:
        """See `Batch.size_bytes`."""
        return sum(map(_size_bytes, self._source.rows()))

    def priority(self) -> Priority:
        """See `Batch.priority`."""
        return self._source.priority


class _Source(msgspec.Struct, eq=False):
    """Rows as they were published, or those that were taken from others and their positions there: most are only forwarded."""

    priority: Priority
    given: tuple[Publish, ...] | None
    base: "_Source | None" = None
    picks: NDArray[np.int64] | None = None
    #: The columns that kernels read, made when they first do.
    columns: "_Columns | None" = None

    def take(self, rows: NDArray[np.int64]) -> "_Source":
        """A selection of the rows."""
        if self.picks is not None:
            return _Source(self.priority, None, self.base, self.picks[rows])
        return _Source(self.priority, None, self, rows)

    def rows(self) -> tuple[Publish, ...]:
        """All rows."""
        if self.given is None:
            assert self.base is not None
            assert self.picks is not None
            rows = self.base.rows()
            self.given = tuple([rows[pick] for pick in self.picks.tolist()])
        return self.given

    def kernel_columns(self) -> "_Columns":
        """What kernels read of all rows."""
        if self.columns is None:
            if self.base is not None:
                base = self.base.kernel_columns()
                self.columns = _Columns(base.addresses[self.picks], base.sequences[self.picks], base.publisher)
            else:
                self.columns = _columns_of(self.rows())
        return self.columns


class _Columns(NamedTuple):
    """The addresses of contents, the sequence numbers, and the publisher and life id if all rows have the same."""

    addresses: NDArray[np.int64]
    sequences: NDArray[np.int64]
    publisher: tuple[str, int] | None


def _columns_of(rows: tuple[Publish, ...]) -> _Columns:
    headers = [publish.header for publish in rows]
    publishers = {(header.publisher, header.life) for header in headers}
    return _Columns(
        np.array([address_of_publication(publish.publication) for publish in rows], np.int64),
        np.array([header.sequence for header in headers], np.int64),
        publishers.pop() if len(publishers) == 1 else None,
    )


def _shared_or_listed(head: BatchHead, lists: list[int]) -> tuple[tuple[int, ...] | None, BatchHead]:
    """Lists by row unless all rows have the same, and the head that goes with them."""
    if lists.count(lists[0]) == len(lists):
        return None, head.with_destinations(lists[0], False)
    union = 0
    if 0 not in lists:  # rows without destinations go nowhere, whatever the union is
        for bits in lists:
            union |= bits
    return tuple(lists), head.with_destinations(union, True)


def _with_destinations(publish: Publish, numbers: tuple[int, ...]) -> Publish:
    if publish.header.destinations == numbers:
        return publish
    return msgspec.structs.replace(publish, header=msgspec.structs.replace(publish.header, destinations=numbers))


def _in_next_generation(publish: Publish) -> Publish:
    header = publish.header
    return msgspec.structs.replace(publish, header=msgspec.structs.replace(header, life=next_life(header.life)))


def _size_bytes(publish: Publish) -> int:
    return len(encode_publication(publish.publication)) + len(publish.payload)
