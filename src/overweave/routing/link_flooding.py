"""Flooding of link states in one cluster (DEST III-C)."""

from collections.abc import Iterable

import msgspec

from overweave.language.headers import Header
from overweave.language.messages import Control
from overweave.routing.base import Send
from overweave.routing.messages import LinkState
from overweave.routing.topology import UP, Topology


def known_incarnation(message: Control) -> tuple[str, int] | None:
    """See `Engine.known_incarnation`: a link state has that of its broker."""
    return (message.id, message.incarnation) if isinstance(message, LinkState) else None


class LinkFlooding:
    """The link states that one broker floods."""

    def __init__(self, topology: Topology, cluster: str | None) -> None:
        self._topology = topology
        self._header = Header(cluster=cluster)
        self._is_whole = cluster is None
        #: Whether the own link state is held back until the pending links are tried: most come up shortly after each other.
        self.links_deferred = False

    def link(self, neighbour: str, state: str) -> list[Send] | None:
        """A link changes its state; a neighbour whose link comes up gets the known link states first. None: no change."""
        if not self._topology.set(neighbour, state):
            return None
        if state != UP:
            return self.flood_own()
        self.links_deferred = self._topology.has_pending_links()
        missed: list[Send] = [(neighbour, known) for known in self.snapshot_for(neighbour)]
        return missed if self.links_deferred else [*missed, *self.flood_own()]

    def flood_own(self) -> list[Send]:
        """The own link state to all neighbours that are up."""
        self.links_deferred = False
        return self.flood(self._topology.own_state(), None)

    def flood(self, state: LinkState, exclude: str | None) -> list[Send]:
        """A link state to all neighbours that are up, except the one it came from."""
        marked = next(iter(self._in_cluster([state])))
        return [(neighbour, marked) for neighbour in self._topology.up() if neighbour != exclude]

    def snapshot_for(self, neighbour: str) -> list[Control]:
        """The known link states; none before the link is up, which sends them."""
        if neighbour not in self._topology.up():
            return []
        return list(self._in_cluster(self._topology.other_states() if self.links_deferred else self._topology.states()))

    def _in_cluster(self, states: Iterable[LinkState]) -> Iterable[LinkState]:
        if self._is_whole:
            return states
        return (msgspec.structs.replace(state, header=self._header) for state in states)
