"""The backlogs of peers: publications that were in flight to an earlier incarnation of this broker, and are sent to it again.

A part of the network may have them already, so that brokers there drop the second copy. Hence subscriptions may not move
meanwhile: what has not reached the old home would be routed to the new one alone, and dropped on the way there. Nor may an epoch
of the overlay close that has the first copies: without its dedup windows they drop second ones, which travel in another epoch.

Neighbours are trusted to send again what they have announced. A client is not: it has a limited time from its first connection.
"""

from collections.abc import Callable

from overweave.broker.peers import Peers
from overweave.broker.pending_ack import PendingAck
from overweave.broker.step import StepContext

#: The time of a publisher for its backlog, from its first connection to this incarnation.
BACKLOG_S = 30.0


class Backlogs:
    """The peers of one broker that have not sent everything again."""

    def __init__(self, peers: Peers, step: StepContext) -> None:
        self._peers, self._step = peers, step
        #: The publishers in the journal that have not returned since this broker started, and the deadlines of those who do.
        self._publishers: set[str] = set()
        self._deadlines_s: dict[str, float] = {}
        #: The publications that were in flight here when all publishers had returned; None: some have not.
        self._sweep: list[PendingAck] | None = []

    def expect(self, client: str) -> None:
        """A client of the earlier incarnation has advertised."""
        self._publishers.add(client)
        self._sweep = None

    def on_connected(self, peer: str) -> None:
        """A peer has connected."""
        if peer in self._publishers:
            self._deadlines_s.setdefault(peer, self._step.now_s + BACKLOG_S)

    @property
    def complete(self) -> bool:
        """Whether all neighbours that have connected, and all publishers, have sent everything again."""
        sessions = self._peers.sessions
        return self._publishers_complete() and all(not sessions[each].has_inbound_backlog for each in self._peers.neighbours)

    def publishers_settled(self, in_flight: Callable[[], list[PendingAck]]) -> bool:
        """Whether all publishers have sent everything again, and everything that was in flight here then is settled."""
        if not self._publishers_complete():
            return False
        if self._sweep is None:
            self._sweep = in_flight()
        self._sweep = [ack for ack in self._sweep if not ack.acked]
        return not self._sweep

    def _publishers_complete(self) -> bool:
        """Whether all publishers have sent everything again, have left, or are late."""
        sessions, now_s = self._peers.sessions, self._step.now_s
        for client in list(self._publishers):
            is_late = now_s > self._deadlines_s.get(client, now_s)
            if is_late or client not in sessions or sessions[client].is_caught_up:
                self._publishers.discard(client)
                self._deadlines_s.pop(client, None)
        return not self._publishers

    def validate(self) -> None:
        """Check the invariants."""
        assert self._publishers.isdisjoint(self._peers.neighbours)
        assert self._sweep is None or not self._publishers
