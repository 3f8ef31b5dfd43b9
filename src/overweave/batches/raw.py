"""Batches of bytes: rows as received from a socket, read in place and forwarded as they are.

::

    row := u32 length of the rest, u64 sequence, u64 incarnation, f64 published_at_s, u8 hops, u8 ttl, u8 priority, u8 d,
           u16 n, u16 m, u32 k, n bytes publisher, d bytes destination list,
           m bytes of other header fields (msgpack; none when all are default),
           k bytes content (`overweave.language.codec`), payload
    destination list := nothing | u8 0, broker numbers in order, each of one byte, or of two: 128 + its low 7 bits, the rest
                                | u8 1, a bitmap by number, whose last byte is not 0

Routing copies the rows that it selects; destination lists get shorter on the path. Rows with one next hop are not copied. The
frame carries the hops since the rows were written and the union of their destinations: a broker that only forwards rows does not
parse them. Only attributes that occur in some filter are decoded.
"""

import struct
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch, BatchHead, Identity, SeenRows
from overweave.batches.destinations import NUMBERS_MAX, bits_of_words, encode_list, numbers_of, words_of
from overweave.batches.kernels import (
    BAD,
    FROM_BROKERS,
    GOOD,
    LIFE,
    LIST_BYTES_MAX,
    LIST_LENGTH,
    PRIORITY,
    TTL,
    check_contents,
    foreign_head,
    list_sizes,
    mark_seen,
    read_destinations,
    unite_destinations,
    write_destinations,
    write_heads,
)
from overweave.batches.layout import Bytes, RowBuffer, check_count
from overweave.batches.row_codec import decode_row, encode_rows
from overweave.errors import InvalidInput, WireError
from overweave.language.codec import decode_publication
from overweave.language.generations import STABLE_LIFE
from overweave.language.headers import Priority
from overweave.language.messages import Publish
from overweave.matching.base import Link
from overweave.matching.index import Index
from overweave.matching.search import PublicationView

_U64 = struct.Struct("<Q")
_F64 = struct.Struct("<d")
_U8_MAX = 255
_LIST_WORDS = -(-NUMBERS_MAX // 64)


#: Priorities by their wire numbers; others are refused when rows are decoded.
_PRIORITIES = {int(priority): priority for priority in Priority}


class EncodedBatch(NamedTuple):
    """A batch in its wire form: the rows and the head's fields."""

    rows: Bytes
    hops_added: int
    ttl: int
    tag: int
    #: The union of all destinations, as a destination list.
    destinations: bytes


def encode_batch(batch: Batch) -> EncodedBatch:
    """The wire form of any batch."""
    raw = batch if isinstance(batch, RawRows) else RawRows(encode_rows(batch.publishes()), batch.count)
    head = raw.head
    hops = head.hops_added if head.hops_added < _U8_MAX else _U8_MAX
    destinations = encode_list(numbers_of(head.destinations)) if head.destinations else b""
    return EncodedBatch(raw.rows.data, hops, head.ttl_written, batch.head.tag, destinations)


class RawRows(Batch):
    """Rows one after the other in ``data``; anything malformed in their layout is a `WireError`.

    With the union of destinations and the least ttl given by the head of their frame, rows are not parsed until a field is read.

    >>> from overweave.language.headers import Header
    >>> from overweave.language.publications import Publication
    >>> rows = RawRows(encode_rows([Publish(Publication({"x": i}), Header("p", i)) for i in range(3)]), 3)
    >>> rows.take(np.array([0, 2])).publishes()[1].header.sequence
    2
    """

    __slots__ = ("count", "head", "picked", "rows")

    def __init__(self, data: bytes | memoryview | Bytes, count: int, head: BatchHead | None = None) -> None:
        array = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        self.rows = RowBuffer(array, count)
        self.count = count
        #: The selected rows of the batch that these were taken from; None: all.
        self.picked: NDArray[np.int64] | None = None
        head = head or BatchHead()
        if head.destinations:
            check_count(array, count)
            ttl, has_lists = head.ttl_written, bool(array[LIST_LENGTH])
        else:
            ttl, has_lists = self.rows.layout.ttl, self.rows.layout.has_lists
        self.head = BatchHead(head.hops_added, ttl, head.tag, head.destinations, has_lists)

    @property
    def data(self) -> Bytes:
        """The rows as they were written."""
        return self.rows.data

    def content_view(self) -> PublicationView:
        """The contents of all rows in place."""
        layout = self.rows.layout
        return PublicationView(self.rows.data, layout.content_starts, layout.content_ends)

    # ---- the interface of a batch

    def with_head(self, head: BatchHead) -> "RawRows":
        """See `Batch.with_head`. Rows without destinations are matched next: malformed ones are refused here."""
        if not head.destinations:
            _ = self.rows.layout
        return _made(self.rows, head, None)

    def next_generation(self) -> "RawRows":
        """See `Batch.next_generation`."""
        data = self.rows.data.copy()
        data[self.rows.layout.starts[:-1] + LIFE + 7] += 1  # the highest byte
        return _made(RowBuffer(data, self.count), self.head, self.picked)

    def take(self, rows: NDArray[np.int64]) -> "RawRows":
        """See `Batch.take`."""
        return self if len(rows) == self.count else _made(self.rows.take(rows), self.head, rows)

    def publishes(self) -> Sequence[Publish]:
        """See `Batch.publishes`."""
        return [self._publish(row) for row in range(self.count)]

    def identities(self) -> Iterator[Identity]:
        """See `Batch.identities`."""
        sequences = self.rows.layout.sequences
        for publisher, life, begin, end in self.rows.runs:
            for sequence in sequences[begin:end].tolist():
                yield publisher, life, sequence

    def sequences(self) -> NDArray[np.int64]:
        """See `Batch.sequences`."""
        return self.rows.layout.sequences

    def mark_seen(self, seen: SeenRows) -> NDArray[np.int64] | None:
        """See `Batch.mark_seen`."""
        fresh, sequences = np.empty(self.count, np.bool_), self.rows.layout.sequences
        new = 0
        for publisher, life, begin, end in self.rows.runs:
            highest, ring = seen.window_of(publisher, life, int(sequences[begin]))
            some, highest[0] = mark_seen(
                np.frombuffer(ring, np.uint8), len(ring) * 8 - 1, highest[0], sequences[begin:end], fresh[begin:end]
            )
            new += some
        return None if new == self.count else np.flatnonzero(fresh)

    def unexpired(self) -> "RawRows | None":
        """See `Batch.unexpired`."""
        if self.head.ttl > 0:
            return self
        ttls = self.rows.data[self.rows.layout.starts[:-1] + TTL]
        rows = np.flatnonzero(ttls > self.head.hops_added)
        if not len(rows):
            return None
        some = self.take(rows)
        return _made(some.rows, some.head.with_ttl(int(ttls[rows].min())), some.picked)

    def match(self, index: Index, exclude: Link = None) -> "Sequence[tuple[Link, NDArray[np.int64]]]":
        """See `Batch.match`."""
        return index.rows_by_link(self.content_view(), exclude)

    def destination_lists(self) -> NDArray[np.uint64]:
        """See `Batch.destination_lists`."""
        head = self.head
        if not head.has_lists:
            width = max(head.destinations.bit_length() - 1, 0) // 64 + 1
            return np.tile(words_of(head.destinations, width), (self.count, 1))
        if self.rows.lists is None:
            self.rows.lists = self._read_lists()
        return self.rows.lists

    def with_lists(self, rows: NDArray[np.int64], lists: NDArray[np.uint64]) -> "RawRows":
        """See `Batch.with_lists`."""
        sizes, layout = np.empty(len(rows), np.int64), self.rows.layout
        if list_sizes(lists, sizes) > LIST_BYTES_MAX:
            raise InvalidInput(f"expected destination lists of numbers below {NUMBERS_MAX:,}")
        grown = sizes - self.rows.data[layout.starts[rows] + LIST_LENGTH]
        data = np.empty(int((layout.starts[rows + 1] - layout.starts[rows] + grown).sum()), np.uint8)
        starts = np.empty(len(rows) + 1, np.int64)
        write_destinations(self.rows.data, layout.starts, rows, lists, sizes, data, starts)
        union = bits_of_words(np.bitwise_or.reduce(lists, axis=0))
        return _made(self.rows.moved(rows, data, starts, grown), self.head.with_destinations(union, union > 0), rows)

    def validate_layout(self) -> None:
        """See `Batch.validate_layout`."""
        _ = self.rows.runs
        if self.head.has_lists:
            self.destination_lists()

    @property
    def wire_bytes(self) -> int:
        """See `Batch.wire_bytes`."""
        return len(self.rows.data)

    def size_bytes(self) -> int:
        """See `Batch.size_bytes`."""
        return int(self.rows.sizes().sum())

    def priority(self) -> Priority:
        """See `Batch.priority`."""
        return _PRIORITIES.get(int(self.rows.data[PRIORITY]), Priority.PUBLICATION)

    # ---- clients' rows

    def published_at_s(self) -> NDArray[np.float64]:
        """The publication time of each row."""
        return self.rows.layout.times

    def validate(self) -> None:
        """Refuse contents that the codec would refuse."""
        verdicts, (data, starts, ends) = np.empty(self.count, np.uint8), self.content_view()
        check_contents(data, starts, ends, verdicts)
        if (verdicts == GOOD).all():
            return
        for row in np.flatnonzero(verdicts != GOOD).tolist():
            if verdicts[row] == BAD:
                raise WireError(int(starts[row]), f"a publication in its wire form (row {row})")
            decode_publication(data[starts[row] : ends[row]].tobytes())

    def check_origin(self, publisher: str, life: int = 0) -> None:
        """Refuse rows of another publisher or life, with hops, or with header fields that only brokers write."""
        head = self.head
        by_broker = head.hops_added or head.destinations or head.tag
        foreign = FROM_BROKERS if by_broker else foreign_head(self.rows.data, self.rows.layout.starts)
        if foreign == FROM_BROKERS:
            raise WireError(0, "rows that no broker has forwarded")
        for name, other, _, _ in self.rows.runs:
            if foreign or name != publisher:
                raise WireError(0, f"publications of {publisher!r} only")
            if other != life and (other ^ life) & STABLE_LIFE:
                raise WireError(0, f"publications of the life of {publisher!r} that its key stands for")

    def renumbered(self, first: int, published_at_s: float) -> "RawRows":
        """The same rows published now, with consecutive sequence numbers."""
        data = self.rows.data.copy()
        write_heads(data, self.rows.layout.starts, first, np.uint64(_U64.unpack(_F64.pack(published_at_s))[0]))
        return RawRows(data, self.count)

    def chunks(self, bytes_max: int) -> "Iterator[RawRows]":
        """All rows in order, in batches of at most ``bytes_max`` or of a single row."""
        starts, first = self.rows.layout.starts, 0
        while first < self.count:
            end = max(int(np.searchsorted(starts, starts[first] + bytes_max, side="right")) - 1, first + 1)
            yield self.take(np.arange(first, end))
            first = end

    # ---- helpers

    def _read_lists(self) -> NDArray[np.uint64]:
        words = np.empty(_LIST_WORDS, np.uint64)
        highest, _ = unite_destinations(self.rows.data, self.rows.layout.starts, words)
        if highest < -1:
            raise WireError(0, "destination lists in their wire form")
        if self.head.destinations and bits_of_words(words) & ~self.head.destinations:
            raise WireError(0, "destination lists within that of their frame")
        lists = np.empty((self.count, max(highest, 0) // 64 + 1), np.uint64)
        read_destinations(self.rows.data, self.rows.layout.starts, lists)
        return lists

    def _publish(self, row: int) -> Publish:
        start, end = self.rows.layout.starts[row : row + 2].tolist()
        data = self.rows.data[start:end].tobytes()

        def destinations(listed: bool) -> tuple[int, ...]:
            return numbers_of(bits_of_words(self.destination_lists()[row]) if listed else self.head.destinations)

        return decode_row(data, start, self.head.hops_added, destinations)


def _made(rows: RowBuffer, head: BatchHead, picked: NDArray[np.int64] | None) -> RawRows:
    made = object.__new__(RawRows)
    made.rows, made.count, made.head, made.picked = rows, rows.count, head, picked
    return made
