"""Batches as bytes: rows as they came off a socket, read where they lie and sent on as they are.

::

    row := u32 length of what follows, u64 sequence, u64 life, f64 published_at_s, u8 hops, u8 ttl, u8 priority, u8 d,
           u16 n, u16 m, u32 k, n bytes publisher, d bytes destination list,
           m bytes of the rest of the header (msgpack; none when all is default),
           k bytes content (`overweave.language.codec`), payload
    destination list := nothing | u8 0, numbers of brokers in order, each of one byte, or of two: 128 + its low 7 bits, the rest
                                | u8 1, a bitmap by number, whose last byte is not 0

Routing copies the rows it selects, and with lists that get shorter where it goes by destination; rows that all go the same way
are not touched. What hops they take is told by the frame they are in, and whom they are meant for: a broker that passes them all
on the same way does not even look where they begin. Nothing is decoded but what some filter mentions.
"""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch, Identity, SeenRows
from overweave.batches.destinations import NUMBERS_MAX, NextHops, bits_of, encode_list, numbers_of, words_of
from overweave.batches.kernels import (
    BAD,
    FROM_BROKERS,
    GOOD,
    HEAD,
    LIST_BYTES_MAX,
    LIST_LENGTH,
    PRIORITY,
    TTL,
    check_contents,
    foreign_head,
    gather_rows,
    list_sizes,
    mark_seen,
    read_destinations,
    unite_destinations,
    write_destinations,
    write_heads,
)
from overweave.batches.layout import Bytes, Layout
from overweave.batches.plain_filters import PlainFilters
from overweave.batches.row_codec import PLAIN_HEADER, ROW_HEAD, decode_name, encode_rows, header_decoder
from overweave.batches.trace_fields import Columns, TraceFields
from overweave.errors import InvalidInput, LanguageError, WireError
from overweave.language.codec import decode_publication
from overweave.language.headers import Priority
from overweave.language.messages import Publish
from overweave.matching.base import Id, Link
from overweave.matching.index import Index

_U64 = struct.Struct("<Q")
_F64 = struct.Struct("<d")


#: Priorities by their wire numbers; others are refused when rows are decoded.
_PRIORITIES = {int(priority): priority for priority in Priority}


class EncodedBatch(NamedTuple):
    """A batch in its wire form."""

    rows: Bytes
    #: How many hops the rows have taken since they were written, and the least that one of them was allowed then.
    passed: int
    ttl: int
    tag: int
    #: All brokers that they are meant for, as a destination list.
    listed: bytes


def encode_batch(batch: Batch) -> EncodedBatch:
    """Any batch in its wire form."""
    rows = batch if isinstance(batch, RawRows) else RawRows(encode_rows(batch.publishes()), batch.count)
    return EncodedBatch(rows.data, rows.passed, rows.written_ttl, batch.tag, encode_list(numbers_of(rows.bound)))


class _Union(NamedTuple):
    """All brokers that some row is meant for, as a set of bits; the highest of them (-1: none); how many rows are for nobody."""

    numbers: int
    highest: int
    empty: int


class RawRows:
    """Rows that lie one after the other in ``data``; anything unsound in their layout is a `WireError`.

    They have taken ``passed`` hops since they were written there. They are meant for brokers in ``bound``, a set of bits: each
    for all of them unless rows have destination lists, which all have or none; if the set is empty, only the lists tell. Where
    the set is told, with the least ttl of any row, rows are not looked at before somebody has to.

    >>> from overweave.language.headers import Header
    >>> from overweave.language.publications import Publication
    >>> rows = RawRows(encode_rows([Publish(Publication({"x": i}), Header("p", i)) for i in range(3)]), 3)
    >>> rows.take(np.array([0, 2])).publishes()[1].header.sequence
    2
    """

    __slots__ = ("__dict__", "_data", "_listed", "bound", "count", "passed", "picked", "tag", "ttl", "written_ttl")

    def __init__(
        self, data: bytes | memoryview | Bytes, count: int, passed: int = 0, bound: int = 0, ttl: int = 0, tag: int = 0
    ) -> None:
        self._data = data if isinstance(data, np.ndarray) else np.frombuffer(data, np.uint8)
        self.count, self.passed, self.bound, self.tag = count, passed, bound, tag
        #: Which rows these are of the batch that they were taken from; None: all.
        self.picked: NDArray[np.int64] | None = None
        if not bound:
            ttl = self._layout.ttl
        elif not 0 < count <= len(self._data) // HEAD:
            raise WireError(0, f"rows of at least {HEAD} bytes, got {count} in {len(self._data)} bytes")
        self._listed = bool(self._data[LIST_LENGTH])
        self.written_ttl, self.ttl = ttl, max(ttl - passed, 0)

    @property
    def data(self) -> Bytes:
        """The rows as they were written."""
        return self._data

    @cached_property
    def _layout(self) -> Layout:
        return Layout(self._data, self.count)

    @cached_property
    def _runs(self) -> list[tuple[str, int, int, int]]:
        """The publishers and their lives, with the stretches of rows that each has."""
        begins = np.flatnonzero(self._layout.new_publisher).tolist()
        return [(*self._publisher(begin), begin, end) for begin, end in zip(begins, [*begins[1:], self.count], strict=True)]

    def published_at_s(self) -> NDArray[np.float64]:
        """When each row was published."""
        return self._layout.times

    def validate(self) -> None:
        """Refuse contents that the codec would refuse."""
        verdicts = np.empty(self.count, np.uint8)
        check_contents(self._data, self._layout.content_starts, self._layout.content_ends, verdicts)
        if (verdicts == GOOD).all():
            return
        for row in np.flatnonzero(verdicts != GOOD).tolist():
            if verdicts[row] == BAD:
                raise WireError(int(self._layout.content_starts[row]), f"a publication in its wire form (row {row})")
            self._content(row)

    def check_origin(self, publisher: str, life: int = 0) -> None:
        """Refuse rows that cannot be of this life of a publisher: another name or life, hops, headers that only brokers write."""
        foreign = FROM_BROKERS if self.passed or self.bound or self.tag else foreign_head(self._data, self._layout.starts)
        if foreign == FROM_BROKERS:
            raise WireError(0, "rows that no broker has seen yet")
        for name, other, _, _ in self._runs:
            if foreign or name != publisher:
                raise WireError(0, f"publications of {publisher!r} and nobody else")
            if other != life:
                raise WireError(0, f"publications of this life of {publisher!r}, the one that its key stands for")

    def renumbered(self, first: int, published_at_s: float) -> "RawRows":
        """The same rows as they are published anew, from a number on."""
        data = self._data.copy()
        write_heads(data, self._layout.starts, first, np.uint64(_U64.unpack(_F64.pack(published_at_s))[0]))
        return RawRows(data, self.count)

    def chunks(self, bytes_max: int) -> "Iterator[RawRows]":
        """All rows in order, in pieces that are no longer, unless a row alone is."""
        starts, first = self._layout.starts, 0
        while first < self.count:
            end = max(int(np.searchsorted(starts, starts[first] + bytes_max, side="right")) - 1, first + 1)
            yield self.take(np.arange(first, end))
            first = end

    # ---- what a batch can do

    def validate_layout(self) -> None:
        """See `Batch.validate_layout`."""
        _ = self._runs
        if self._listed:
            _ = self._lists

    def publishes(self) -> Sequence[Publish]:
        """See `Batch.publishes`."""
        return [self._publish(row) for row in range(self.count)]

    def identities(self) -> Iterator[Identity]:
        """See `Batch.identities`."""
        for publisher, life, begin, end in self._runs:
            for sequence in self._layout.sequences[begin:end].tolist():
                yield publisher, life, sequence

    def mark_seen(self, seen: SeenRows) -> NDArray[np.int64] | None:
        """See `Batch.mark_seen`."""
        fresh = np.empty(self.count, np.bool_)
        new = 0
        for publisher, life, begin, end in self._runs:
            highest, ring = seen.window_of(publisher, life, int(self._layout.sequences[begin]))
            some, highest[0] = mark_seen(
                np.frombuffer(ring, np.uint8), len(ring) * 8 - 1, highest[0], self._layout.sequences[begin:end], fresh[begin:end]
            )
            new += some
        return None if new == self.count else np.flatnonzero(fresh)

    def take(self, rows: NDArray[np.int64]) -> "RawRows":
        """See `Batch.take`."""
        if len(rows) == self.count:
            return self
        starts = np.empty(len(rows) + 1, np.int64)
        data = np.empty(int((self._layout.starts[rows + 1] - self._layout.starts[rows]).sum()), np.uint8)
        gather_rows(self._data, self._layout.starts, rows, data, starts)
        return self._picked(rows, data, starts, 0)

    def next_hop(self) -> "RawRows":
        """See `Batch.next_hop`."""
        made = self._same()
        made.passed, made.ttl = min(self.passed + 1, 255), max(self.ttl - 1, 0)
        return made

    def with_tag(self, tag: int) -> "RawRows":
        """See `Batch.with_tag`."""
        if tag == self.tag:
            return self
        made = self._same()
        made.tag = tag
        return made

    def unexpired(self) -> "RawRows | None":
        """See `Batch.unexpired`."""
        if self.ttl > 0:
            return self
        ttls = self._data[self._layout.starts[:-1] + TTL]
        rows = np.flatnonzero(ttls > self.passed)
        if not len(rows):
            return None
        made = self._same() if len(rows) == self.count else self.take(rows)
        made.written_ttl = int(ttls[rows].min())
        made.ttl = made.written_ttl - made.passed
        return made

    def split_by_link(self, index: Index, exclude: Link = None) -> "Iterable[tuple[Link, RawRows]]":
        """See `Batch.split_by_link`."""
        found = index.links_of_rows(self._data, self._layout.content_starts, self._layout.content_ends, exclude)
        return [(link, self.take(rows)) for link, rows in found]

    def has_destinations(self) -> bool:
        """See `Batch.has_destinations`."""
        return bool(self.bound or self._listed)

    def destinations(self) -> Mapping[int, int]:
        """See `Batch.destinations`."""
        if self.bound and not self._listed:
            return dict.fromkeys(numbers_of(self.bound), self.count)
        counts = np.unpackbits(self._lists.view(np.uint8), axis=1, bitorder="little").sum(axis=0)
        return {number: int(counts[number]) for number in np.flatnonzero(counts).tolist()}

    def match_rows(self, index: Index) -> "Iterable[tuple[Link, NDArray[np.int64]]]":
        """See `Batch.match_rows`."""
        return index.links_of_rows(self._data, self._layout.content_starts, self._layout.content_ends, None)

    def not_admitted(self, filters: PlainFilters) -> NDArray[np.int64] | None:
        """See `Batch.not_admitted`."""
        return filters.not_admitted(self._data, self._layout.content_starts, self._layout.content_ends)

    def attribute_counts(self) -> NDArray[np.int64]:
        """See `Batch.attribute_counts`: the first two bytes of a content."""
        data, starts = self._data, self._layout.content_starts
        return data[starts] + (data[starts + 1].astype(np.int64) << 8)

    def sequences(self) -> NDArray[np.int64]:
        """See `Batch.sequences`."""
        return self._layout.sequences

    def with_destinations(self, found: Iterable[tuple[int, NDArray[np.int64]]]) -> "RawRows | None":
        """See `Batch.with_destinations`."""
        several = list(found)
        if all(len(rows) == self.count for _, rows in several):
            return self._bound_to(bits_of(number for number, _ in several))
        lists = np.zeros((self.count, max((number for number, _ in several), default=0) // 64 + 1), np.uint64)
        for number, rows in several:
            lists[rows, number >> 6] |= np.uint64(1 << (number & 63))
        return self._bound_for(lists)

    def split_by_next_hop(self, ways: NextHops) -> "list[tuple[str | None, Batch]]":
        """See `Batch.split_by_next_hop`."""
        if self.bound and not self._listed:
            return [(hop, self if bits == self.bound else self._same(bits)) for hop, bits in ways.parts(self.bound)]
        united = self.bound or (0 if self._union.empty else self._union.numbers)
        if united:
            for hop, bits in ways.reach:
                if not united & ~bits:
                    return [(hop, self)]  # as most often: all the same way
        lists = self._lists
        width = lists.shape[1]
        hops = [(hop, lists & words_of(bits, width)) for hop, bits in ways.reach]
        parts: list[tuple[str | None, NDArray[np.uint64]]] = [*hops, (None, lists & ~words_of(ways.known, width))]
        return [(hop, some) for hop, part in parts if part.any() and (some := self._bound_for(part)) is not None]

    def split_local(self, number: int) -> "tuple[RawRows | None, RawRows | None]":
        """See `Batch.split_local`."""
        if not (self.bound or self._union.numbers) >> number & 1:
            return None, self
        if self.bound and not self._listed:
            _ = self._layout  # both share it
            return self._same(0), self._bound_to(self.bound & ~(1 << number))
        lists, word, bit = self._lists, number >> 6, np.uint64(1 << (number & 63))
        if not self._union.numbers >> number & 1:
            return None, self
        mine = np.flatnonzero(lists[:, word] & bit)
        others = lists.copy()
        others[:, word] &= ~bit
        return self._with_lists(mine, np.zeros((len(mine), 1), np.uint64)), self._bound_for(others)

    def ids(self, index: Index) -> Iterator[list[Id]]:
        """See `Batch.ids`."""
        ids, ends = index.ids_of_rows(self._data, self._layout.content_starts, self._layout.content_ends)
        begin = 0
        for end in ends.tolist():
            yield ids[begin:end]
            begin = end

    def trace_fields(self) -> Iterator[TraceFields]:
        """See `Batch.trace_fields`."""
        times, sizes = self.published_at_s(), self._sizes()
        for (publisher, _, sequence), hops, time_s, size in zip(
            self.identities(), self._hops_now().tolist(), times.tolist(), sizes.tolist(), strict=True
        ):
            yield TraceFields(publisher, sequence, hops, time_s, size)

    def slots(self, index: Index) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """`ids` as numbers (see `Index.slots_of_rows`)."""
        return index.slots_of_rows(self._data, self._layout.content_starts, self._layout.content_ends)

    def records(
        self, rows: NDArray[np.int64] | slice, texts: list[str], clients: list[str], codes: NDArray[np.int32], now_s: float,
        peer: str,
    ) -> Columns:  # fmt: skip
        """What a trace tells of these rows, which ``peer`` sent.

        Each comes with the code of a subscription in ``texts`` and its client in ``clients``.
        """
        publisher = np.zeros(self.count, np.int32)
        for code, (_, _, begin, _) in enumerate(self._runs[1:], start=1):
            publisher[begin:] = code
        hops = self._hops_now()
        return Columns(
            [name for name, _, _, _ in self._runs], publisher[rows], self._layout.sequences[rows], texts, codes, clients, codes,
            hops[rows], self._layout.times[rows], now_s, self._sizes()[rows], peer if hops[0] else None,
        )  # fmt: skip

    @property
    def wire_bytes(self) -> int:
        """See `Batch.wire_bytes`."""
        return len(self._data)

    def size_bytes(self) -> int:
        """See `Batch.size_bytes`."""
        return int(self._sizes().sum())

    def priority(self) -> Priority:
        """See `Batch.priority`."""
        return _PRIORITIES.get(int(self._data[PRIORITY]), Priority.PUBLICATION)

    # ---- helpers

    @cached_property
    def _union(self) -> "_Union":
        words = np.empty(-(-NUMBERS_MAX // 64), np.uint64)
        highest, empty = unite_destinations(self._data, self._layout.starts, words)
        if highest < -1:
            raise WireError(0, "destination lists in their wire form")
        numbers = int.from_bytes(words[: highest // 64 + 1].astype("<u8").tobytes(), "little")
        return _Union(numbers, highest, empty)

    @cached_property
    def _lists(self) -> NDArray[np.uint64]:
        """The destination lists of all rows, as sets of bits."""
        if self.bound and self._union.numbers & ~self.bound:
            raise WireError(0, "destination lists within that of their frame")
        lists = np.empty((self.count, max(self._union.highest, 0) // 64 + 1), np.uint64)
        read_destinations(self._data, self._layout.starts, lists)
        return lists

    def _bound_for(self, lists: NDArray[np.uint64]) -> "RawRows | None":
        """The rows whose new destination lists are not empty."""
        rows = np.flatnonzero(lists.any(axis=1))
        if not len(rows):
            return None
        if len(rows) == self.count and lists.shape == self._lists.shape and np.array_equal(lists, self._lists):
            return self
        return self._with_lists(rows, lists[rows])

    def _with_lists(self, rows: NDArray[np.int64], lists: NDArray[np.uint64]) -> "RawRows":
        """Some rows, each with another destination list."""
        sizes = np.empty(len(rows), np.int64)
        if list_sizes(lists, sizes) > LIST_BYTES_MAX:
            raise InvalidInput(f"expected destination lists of numbers below {NUMBERS_MAX:,}")
        grown = sizes - self._data[self._layout.starts[rows] + LIST_LENGTH]
        data = np.empty(int((self._layout.starts[rows + 1] - self._layout.starts[rows] + grown).sum()), np.uint8)
        starts = np.empty(len(rows) + 1, np.int64)
        write_destinations(self._data, self._layout.starts, rows, lists, sizes, data, starts)
        made = self._picked(rows, data, starts, grown)
        made.bound = int.from_bytes(np.bitwise_or.reduce(lists, axis=0).astype("<u8").tobytes(), "little")
        made._listed = made.bound > 0
        return made

    def _picked(
        self, rows: NDArray[np.int64], data: Bytes, starts: NDArray[np.int64], grown: NDArray[np.int64] | int
    ) -> "RawRows":
        """Some rows where they lie in other bytes, the content of each so much farther from its begin."""
        made = object.__new__(RawRows)
        made._data, made.count, made.picked = data, len(rows), rows
        made.passed, made.ttl, made.written_ttl = self.passed, self.ttl, self.written_ttl
        made.bound, made._listed, made.tag = self.bound, self._listed, self.tag
        made._layout = self._layout.picked(rows, starts, grown)
        return made

    def _same(self, bound: int | None = None) -> "RawRows":
        """The same rows, meant for others if that is said."""
        made = object.__new__(RawRows)
        made._data, made.count, made.picked = self._data, self.count, None
        made.passed, made.ttl, made.written_ttl = self.passed, self.ttl, self.written_ttl
        made.bound, made._listed, made.tag = self.bound if bound is None else bound, self._listed, self.tag
        made.__dict__.update(self.__dict__)
        return made

    def _bound_to(self, bound: int) -> "RawRows | None":
        return self._same(bound) if bound else None

    def _hops_now(self) -> NDArray[np.int32]:
        return np.minimum(self._layout.hops.astype(np.int32) + self.passed, 255)

    def _sizes(self) -> NDArray[np.int64]:
        """The content and payload of each row: all from where its content begins."""
        return self._layout.starts[1:] - self._layout.content_starts

    def _publisher(self, row: int) -> tuple[str, int]:
        """The publisher of a row, and its life."""
        at = int(self._layout.starts[row])
        _, _, life, _, _, _, _, _, length, _, _ = ROW_HEAD.unpack_from(self._data.data, at)
        return decode_name(self._data[at + HEAD : at + HEAD + length].tobytes(), at), life

    def _numbers(self, row: int) -> tuple[int, ...]:
        return numbers_of(int.from_bytes(self._lists[row].tobytes(), "little"))

    def _content(self, row: int) -> bytes:
        content = self._data[self._layout.content_starts[row] : self._layout.content_ends[row]].tobytes()
        decode_publication(content)
        return content

    def _publish(self, row: int) -> Publish:
        start, end = int(self._layout.starts[row]), int(self._layout.starts[row + 1])
        data = self._data[start:end].tobytes()
        _, sequence, life, published_at_s, hops, ttl, priority, listed, publisher, extra, content = ROW_HEAD.unpack_from(data)
        rest_at = HEAD + publisher + listed
        content_at = rest_at + extra
        try:
            rest = header_decoder.decode(data[rest_at:content_at]) if extra else PLAIN_HEADER
            header = msgspec.structs.replace(
                rest, publisher=decode_name(data[HEAD : HEAD + publisher], start), sequence=sequence,
                published_at_s=published_at_s, life=life, hops=min(hops + self.passed, 255), ttl=max(ttl - self.passed, 0),
                priority=Priority(priority),
                destinations=self._numbers(row) if listed else numbers_of(self.bound),
            )  # fmt: skip
        except (msgspec.MsgspecError, LanguageError, ValueError) as error:
            raise WireError(start, f"a header in its wire form: {error}") from None
        publication = decode_publication(data[content_at : content_at + content])
        return Publish(publication, header, data[content_at + content :])
