"""The backlogs of peers: publications that were in flight to an earlier incarnation of this broker, and are sent to it again.

A part of the network may have them already, so that brokers there drop the second copy. Hence subscriptions may not move
meanwhile: what has not reached the old home would be routed to the new one alone, and dropped on the way there.
"""

from overweave.broker.peers import Peers


class Backlogs:
    """The peers of one broker that have not sent everything again."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        #: The publishers in the journal that have not returned since this broker started.
        self._publishers: set[str] = set()

    def expect(self, client: str) -> None:
        """A client of the earlier incarnation has advertised."""
        self._publishers.add(client)

    @property
    def complete(self) -> bool:
        """Whether all neighbours that have connected, and all publishers, have sent everything again."""
        sessions = self._peers.sessions
        if self._publishers:
            returned = (each for each in self._publishers if each not in sessions or sessions[each].caught_up)
            self._publishers.difference_update(list(returned))
        return not self._publishers and all(not sessions[each].is_behind for each in self._peers.neighbours)

    def validate(self) -> None:
        """Check the invariants."""
        assert self._publishers.isdisjoint(self._peers.neighbours)
