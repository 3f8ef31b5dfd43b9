"""The interface of batches: publications on their way, some rows at a time.

A batch is a value with two backings: objects (`overweave.batches.objects`), for the simulator and for single publications; and
the bytes of a frame (`overweave.batches.raw`). Cores and routing protocols use only this interface.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from overweave.batches.destinations import NextHops
from overweave.batches.plain_filters import PlainFilters
from overweave.batches.trace_fields import TraceFields
from overweave.language.headers import Priority
from overweave.language.messages import Publish
from overweave.matching.base import Id, Link
from overweave.matching.index import Index

#: What tells a publication from all others: its publisher, the life of that, and its sequence number.
Identity = tuple[str, int, int]


class SeenRows(Protocol):
    """What a peer has seen, by life of a publisher and sequence number (`overweave.routing.dedup`)."""

    def add(self, publisher: str, life: int, sequence: int) -> bool:
        """Whether a publication is new; it is not from now on."""

    def window_of(self, publisher: str, life: int, sequence: int) -> tuple[list[int], bytearray]:
        """The highest number of a life and the ring of bits up to it, for the caller to go on from ``sequence``."""


class Batch(Protocol):
    """Rows of publications; a frozen value."""

    #: How many rows.
    count: int
    #: So many hops are left to every row, at least.
    ttl: int
    #: Whether they go a way that is taken only because another one is gone (`overweave.routing.merc`).
    tag: int

    def validate_layout(self) -> None:
        """Refuse rows that are not sound (`WireError`): of those that came as bytes it is not known before."""

    def publishes(self) -> Sequence[Publish]:
        """The rows as objects."""

    def identities(self) -> Iterable[Identity]:
        """The publisher, its life and the sequence number of each row."""

    def mark_seen(self, seen: SeenRows) -> NDArray[np.int64] | None:
        """Which rows are new; None when all are."""

    def take(self, rows: NDArray[np.int64]) -> "Batch":
        """Some of the rows."""

    def next_hop(self) -> "Batch":
        """All rows after one more hop."""

    def with_tag(self, tag: int) -> "Batch":
        """All rows under another tag."""

    def unexpired(self) -> "Batch | None":
        """The rows that may hop once more."""

    def has_destinations(self) -> bool:
        """Whether rows have destination lists: all have, or none has."""

    def destinations(self) -> Mapping[int, int]:
        """How many rows are meant for each broker, by its number."""

    def match_rows(self, index: Index) -> Iterable[tuple[Link, NDArray[np.int64]]]:
        """The numbers of the rows that match on each link of an index."""

    def not_admitted(self, filters: PlainFilters) -> NDArray[np.int64] | None:
        """The rows that none of some filters admits, as far as that is seen at once; None when there are none."""

    def attribute_counts(self) -> NDArray[np.int64]:
        """How many attributes each row has."""

    def sequences(self) -> NDArray[np.int64]:
        """The sequence number of each row."""

    def with_destinations(self, found: Iterable[tuple[int, NDArray[np.int64]]]) -> "Batch | None":
        """The rows that are meant for some brokers, given which rows are meant for each, with their destination lists."""

    def split_by_next_hop(self, ways: NextHops) -> "list[tuple[str | None, Batch]]":
        """The rows by next hop, each with the part of its destination list that lies there; None: there is no way."""

    def split_local(self, number: int) -> "tuple[Batch | None, Batch | None]":
        """The rows that one broker is meant to get, without their lists; and the rows that others are, without that broker."""

    def split_by_link(self, index: Index, exclude: Link = None) -> "Iterable[tuple[Link, Batch]]":
        """Which rows match on which link of an index."""

    def ids(self, index: Index) -> Iterable[list[Id]]:
        """The ids of all filters in an index that each row matches."""

    def trace_fields(self) -> Iterable[TraceFields]:
        """What a trace tells of each row."""

    def size_bytes(self) -> int:
        """The content and payload of all rows."""

    @property
    def wire_bytes(self) -> int:
        """What the rows take on the wire and in memory; 0 of those that are objects and never went over a wire."""

    def priority(self) -> Priority:
        """Who goes first in a queue."""
