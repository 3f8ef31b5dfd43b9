"""The peers of a broker: neighbours and clients, each with a session."""

from overweave.broker.session import AckScheduler, EpochCounter, Session
from overweave.contract.config import SessionConfig
from overweave.overlay.parts import LinkKind


class Peers:
    """Sessions by peer; ``neighbours`` are the brokers among them, by the kinds of their links."""

    __slots__ = ("_config", "_epochs", "_incarnation", "acks", "neighbours", "sessions")

    def __init__(self, config: SessionConfig, incarnation: int, acks: AckScheduler) -> None:
        self._config, self._incarnation, self.acks = config, incarnation, acks
        #: Epochs of sessions with neighbours: a later session, or a reset one, has a higher epoch, whatever its peer remembers.
        self._epochs = EpochCounter(incarnation)
        self.sessions: dict[str, Session] = {}
        self.neighbours: dict[str, LinkKind] = {}

    def add_neighbour(self, neighbour: str, kind: LinkKind) -> None:
        """Open a session with a neighbour."""
        self.sessions[neighbour] = Session(neighbour, self._epochs, self._config, self.acks)
        self.neighbours[neighbour] = kind

    def add_client(self, client: str) -> None:
        """Open a session with a client."""
        self.sessions[client] = Session(client, EpochCounter(self._incarnation), self._config, self.acks)

    def remove(self, peer: str) -> None:
        """Remove a peer with its session."""
        del self.sessions[peer]
        self.neighbours.pop(peer, None)

    def origin_of(self, peer: str) -> str | None:
        """A neighbour itself; None for clients and modules."""
        return peer if peer in self.neighbours else None

    def established(self) -> list[str]:
        """The neighbours with an established session."""
        return [neighbour for neighbour in self.neighbours if self.sessions[neighbour].established]

    def unsettled(self) -> dict[str, int]:
        """The number of unsettled messages of each peer that has some."""
        counts = {peer: session.outbound.unsettled_entries() for peer, session in self.sessions.items()}
        return {peer: count for peer, count in counts.items() if count}

    def validate(self) -> None:
        """Check the invariants."""
        for session in self.sessions.values():
            session.validate()
        self.acks.validate({session.inbound for session in self.sessions.values()})
        assert self.neighbours.keys() <= self.sessions.keys()
