"""The in-flight store: numbered, unsettled messages of a session."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Protocol

import msgspec

from overweave.batches.base import Batch
from overweave.contract.frames import ControlMessage, is_addressed


class Releasable(Protocol):
    """Anything that waits for the peer to settle a message: an ack, waiters, or bytes of a buffer."""

    def release(self) -> None:
        """The peer has settled the message."""


class InFlight(msgspec.Struct, eq=False):
    """A control message or a batch, not settled by the peer. A struct, because a named tuple costs three times as much."""

    message: ControlMessage | None
    batch: Batch | None
    #: The number of sequence numbers that it has.
    length: int
    #: Released when the peer settles it.
    ack: Releasable | None
    #: Its rows that count towards the window: none in transit.
    window_rows: int

    def window_bytes(self) -> int:
        """Its bytes that count towards the window."""
        return self.batch.wire_bytes if self.window_rows and self.batch is not None else 0

    def survives_restart(self) -> bool:
        """Whether it is sent again to a peer that has restarted: publications and addressed control are."""
        return self.message is None or is_addressed(self.message)


class InFlightQueue:
    """The messages in flight to one peer, in the order of their sequence numbers; the last ``unsent`` are to be sent."""

    __slots__ = ("_peer_expected", "entries", "lowest_unacked", "next_sequence", "next_to_send", "unsent")

    def __init__(self, entries: Iterable[InFlight] = ()) -> None:
        self.entries = deque(entries)
        #: The sequence number of the first row, of the first unsent row, and after the last row.
        self.lowest_unacked = self.next_to_send = 0
        self.next_sequence = sum(entry.length for entry in self.entries)
        self.unsent = len(self.entries)
        #: The next sequence number that the peer expects, as far as known.
        self._peer_expected = 0

    def __len__(self) -> int:
        return len(self.entries)

    def __iter__(self) -> Iterator[InFlight]:
        return iter(self.entries)

    def __reversed__(self) -> Iterator[InFlight]:
        return reversed(self.entries)

    def append(self, entry: InFlight) -> None:
        """Number a message, to be sent later."""
        self.entries.append(entry)
        self.next_sequence += entry.length
        self.unsent += 1

    def take_unsent(self) -> Iterator[tuple[int, InFlight]]:
        """The unsent messages with their numbers; they are sent from now on."""
        number, self.next_to_send = self.next_to_send, self.next_sequence
        # From the end: there may be many in flight before the unsent ones.
        unsent, self.unsent = list(islice(reversed(self.entries), self.unsent)), 0
        for entry in reversed(unsent):
            yield number, entry
            number += entry.length

    def settle(self, acknowledged: int, expected: int) -> tuple[int, int]:
        """Remove the messages before ``acknowledged`` and release their acks; the peer has received all before ``expected``.

        The rows and bytes of the window that are free again.
        """
        if expected > self._peer_expected:
            self._peer_expected = expected
        entries, lowest, rows_freed, bytes_freed = self.entries, self.lowest_unacked, 0, 0
        while lowest < acknowledged and entries:
            entry = entries.popleft()
            self.lowest_unacked = lowest = lowest + entry.length
            if self.next_to_send < lowest:  # it was about to be retransmitted
                self.next_to_send = lowest
                self.unsent -= 1
            if entry.window_rows and entry.batch is not None:
                rows_freed += entry.window_rows
                bytes_freed += entry.batch.wire_bytes
            if entry.ack is not None:
                entry.ack.release()
        return rows_freed, bytes_freed

    def detach_acks(self, ranges: Iterable[tuple[int, int]]) -> list[Releasable]:
        """The acks of messages in ranges of sequence numbers; the messages have none from now on."""
        number, end_of_all, acks, rest = self.lowest_unacked, self.next_sequence, [], iter(ranges)
        start, end = next(rest, (end_of_all, end_of_all))
        for entry in self.entries:
            while number >= end < end_of_all:
                start, end = next(rest, (end_of_all, end_of_all))
            if entry.ack is not None and start <= number and number + entry.length <= end:
                acks.append(entry.ack)
                entry.ack = None
            number += entry.length
        return acks

    def progress(self) -> tuple[int, int, int]:
        """The numbers before which everything is settled, received by the peer as far as known, and sent."""
        return self.lowest_unacked, self._peer_expected, self.next_to_send

    def rewind(self) -> None:
        """Mark what the peer is not known to have received as unsent; at least one message, if there is one."""
        self.rewind_to(self._peer_expected)
        if self.entries and not self.unsent:
            # It provokes an acknowledgement: the last one may be lost.
            self.unsent = 1
            self.next_to_send -= self.entries[-1].length

    def rewind_to(self, expected: int) -> None:
        """Mark everything from ``expected`` on as unsent."""
        while self.unsent < len(self.entries) and self.next_to_send > expected:
            self.unsent += 1
            self.next_to_send -= self.entries[-self.unsent].length

    def validate(self) -> None:
        """Check the invariants."""
        sent = islice(self.entries, len(self.entries) - self.unsent)
        assert 0 <= self.unsent <= len(self.entries)
        assert self.next_sequence == self.lowest_unacked + sum(entry.length for entry in self.entries)
        assert self.next_to_send == self.lowest_unacked + sum(entry.length for entry in sent)
