"""The interface of batches: publications in transit, several rows at a time.

A batch is a value with two backings: objects (`overweave.batches.objects`), for the simulator and for single publications; and
the bytes of a frame (`overweave.batches.raw`). Cores and routing protocols use only this interface and the functions over it:
destination lists (`overweave.batches.destinations`) and traces (`overweave.batches.trace_fields`).
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import Protocol, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.language.headers import Priority
from overweave.language.messages import Publish
from overweave.matching.base import Link
from overweave.matching.index import Index

#: The identity of a publication: publisher, its life id, sequence number.
Identity = tuple[str, int, int]
Rows64 = NDArray[np.int64]


class SeenRows(Protocol):
    """A dedup window by publisher, life id and sequence number (`overweave.routing.dedup`)."""

    def add(self, publisher: str, life: int, sequence: int) -> bool:
        """Whether a publication is new; it is not from now on."""

    def window_of(self, publisher: str, life: int, sequence: int) -> tuple[list[int], bytearray]:
        """The highest number of an incarnation and the ring of bits up to it, for the caller to continue from ``sequence``."""


class BatchHead(msgspec.Struct, frozen=True, gc=False):
    """The state that all rows of a batch share; replaced as a whole.

    >>> BatchHead(hops_added=1, ttl_written=9).next_hop().ttl
    7
    """

    #: Hops since the rows were written.
    hops_added: int = 0
    #: The least ttl of any row, as written.
    ttl_written: int = 0
    #: One byte that belongs to the routing protocol.
    tag: int = 0
    #: The union of all destination lists, as bits by broker number. Without lists in the rows, each row has all of these
    #: destinations. 0 with lists in the rows: the union is not known.
    destinations: int = 0
    #: Whether rows have destination lists of their own: all have, or none has.
    has_lists: bool = False

    @property
    def ttl(self) -> int:
        """The hops that every row has left, at least."""
        left = self.ttl_written - self.hops_added
        return left if left > 0 else 0

    def next_hop(self) -> "BatchHead":
        """The head after one more hop."""
        return BatchHead(self.hops_added + 1, self.ttl_written, self.tag, self.destinations, self.has_lists)

    def with_tag(self, tag: int) -> "BatchHead":
        """The head under another tag."""
        return BatchHead(self.hops_added, self.ttl_written, tag, self.destinations, self.has_lists)

    def with_ttl(self, ttl_written: int) -> "BatchHead":
        """The head of rows with another least ttl."""
        return BatchHead(self.hops_added, ttl_written, self.tag, self.destinations, self.has_lists)

    def with_destinations(self, destinations: int, has_lists: bool) -> "BatchHead":
        """The head of rows with other destinations."""
        return BatchHead(self.hops_added, self.ttl_written, self.tag, destinations, has_lists)


class Batch(ABC):
    """Rows of publications with one head; a frozen value."""

    __slots__ = ()

    #: The number of rows, and the state that they share.
    count: int
    head: BatchHead

    @property
    def ttl(self) -> int:
        """The hops that every row has left, at least."""
        return self.head.ttl

    @property
    def tag(self) -> int:
        """The byte that belongs to the routing protocol."""
        return self.head.tag

    def has_destinations(self) -> bool:
        """Whether rows have destinations: all have, or none has."""
        head = self.head
        return head.has_lists or head.destinations > 0

    def next_hop(self) -> Self:
        """All rows after one more hop."""
        return self.with_head(self.head.next_hop())

    def with_tag(self, tag: int) -> Self:
        """All rows under another tag."""
        return self if tag == self.head.tag else self.with_head(self.head.with_tag(tag))

    @abstractmethod
    def with_head(self, head: BatchHead) -> Self:
        """All rows under another head."""

    @abstractmethod
    def next_generation(self) -> Self:
        """All rows in the next generation: brokers route them again (`overweave.language.generations`)."""

    @abstractmethod
    def take(self, rows: Rows64) -> Self:
        """A selection of the rows."""

    @abstractmethod
    def publishes(self) -> Sequence[Publish]:
        """The rows as objects."""

    @abstractmethod
    def identities(self) -> Iterable[Identity]:
        """The identity of each row."""

    @abstractmethod
    def sequences(self) -> Rows64:
        """The sequence number of each row."""

    @abstractmethod
    def mark_seen(self, seen: SeenRows) -> Rows64 | None:
        """Enter all rows into a dedup window; the new ones, or None if all are new."""

    @abstractmethod
    def unexpired(self) -> Self | None:
        """The rows with at least one hop left."""

    @abstractmethod
    def match(self, index: Index, exclude: Link = None) -> Sequence[tuple[Link, Rows64]]:
        """Each link of an index, except one, with the rows that match there."""

    @abstractmethod
    def destination_lists(self) -> NDArray[np.uint64]:
        """The destination list of each row, as bits: a matrix of 64-bit words."""

    @abstractmethod
    def with_lists(self, rows: Rows64, lists: NDArray[np.uint64]) -> Self:
        """A selection of the rows, each with another destination list."""

    @abstractmethod
    def validate_layout(self) -> None:
        """Parse the heads of all rows now; `WireError` if they are malformed."""

    @abstractmethod
    def size_bytes(self) -> int:
        """The size of all contents and payloads."""

    @property
    @abstractmethod
    def wire_bytes(self) -> int:
        """The size of the rows on the wire and in memory; 0 for objects."""

    @abstractmethod
    def priority(self) -> Priority:
        """The priority class of the first row, and so of all."""

    def split_by_link(self, index: Index, exclude: Link = None) -> list[tuple[Link, Self]]:
        """The rows that match on each link of an index, except one."""
        return [(link, self.take(rows)) for link, rows in self.match(index, exclude)]
