"""The acks of duplicates: while no other peer holds the first copy, a duplicate is not acked before it (decision 0004)."""

from collections import deque

from overweave.batches.base import Batch
from overweave.broker.context import BrokerContext
from overweave.broker.pending_ack import PendingAck


class DuplicateAcks:
    """The duplicates whose acks wait for those of the first copies."""

    def __init__(self, context: BrokerContext) -> None:
        self._context = context
        #: When each wait began, oldest first; after crashes waits might form a cycle, so they expire.
        self._waits: deque[tuple[float, PendingAck, PendingAck]] = deque()

    def link(self, duplicates: Batch, peer: str, ack: PendingAck) -> None:
        """Have an ack wait for the first copies of some duplicates. Duplicates are few, so the search may be slow.

        A copy of a neighbour does not wait for copies in transit here: it may be one of them, on its return.
        """
        context, known = self._context, set(duplicates.identities())
        context.counters.duplicates += len(known)
        for other, first in context.in_flight(context.peers.sessions):
            if first is None or first is ack or not first.orphaned:
                continue
            if other.has_destinations() and peer in context.peers.neighbours:
                continue
            if not known.isdisjoint(other.identities()) and ack.follow_first_copy(first):
                self._waits.append((context.step.now_s, ack, first))
        while self._waits and self._waits[0][2].acked:
            self._waits.popleft()

    def expire(self, before_s: float) -> None:
        """End the waits that began before a time."""
        while self._waits and self._waits[0][0] < before_s:
            _, ack, first = self._waits.popleft()
            ack.stop_following(first)

    def shift(self, by_s: float) -> None:
        """Do not count a pause of the broker."""
        self._waits = deque((since_s + by_s, ack, first) for since_s, ack, first in self._waits)

    def validate(self) -> None:
        """Check the invariants."""
        times = [since_s for since_s, _, _ in self._waits]
        assert times == sorted(times)
