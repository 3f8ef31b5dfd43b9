"""All attachments of a client."""

from collections.abc import Iterator

from overweave.broker.client.attachment import ClientAttachment
from overweave.broker.session import AckScheduler, EpochCounter, Session
from overweave.contract.config import SessionConfig


class Attachments:
    """The sessions of one client, by the names of their connections."""

    def __init__(self, config: SessionConfig, incarnation: int, ack_scheduler: AckScheduler) -> None:
        self._config, self._ack_scheduler = config, ack_scheduler
        self._epochs = EpochCounter(incarnation)
        #: By the name of the connection.
        self.by_peer: dict[str, ClientAttachment] = {}
        self._window = config.window
        #: Unmatched publications at brokers that it has left.
        self._unmatched_before = 0

    def __iter__(self) -> Iterator[ClientAttachment]:
        return iter(self.by_peer.values())

    def __getitem__(self, peer: str) -> ClientAttachment:
        return self.by_peer[peer]

    def get(self, peer: str) -> ClientAttachment | None:
        """The attachment of a connection."""
        return self.by_peer.get(peer)

    def at(self, broker: str) -> ClientAttachment | None:
        """The attachment to a broker."""
        return next((each for each in self if each.broker == broker), None)

    def add(self, peer: str) -> ClientAttachment:
        """Attach to one more broker."""
        session = Session(peer, self._epochs, self._config, self._ack_scheduler)
        session.outbound.window = self._window
        made = self.by_peer[peer] = ClientAttachment(peer, session)
        return made

    def remove(self, attachment: ClientAttachment) -> None:
        """Detach from a broker."""
        del self.by_peer[attachment.peer]
        self._unmatched_before += attachment.session.peer_unmatched
        self._ack_scheduler.forget(attachment.session)

    def set_window(self, window: int) -> None:
        """Change the largest number of rows in flight."""
        self._window = window
        for each in self:
            each.session.outbound.window = window

    def unsettled_rows(self) -> int:
        """The number of publications and control messages that brokers have not settled."""
        return sum([each.session.outbound.unsettled_rows() for each in self.by_peer.values()])

    def unsettled_entries(self) -> int:
        """The number of batches and control messages that brokers have not settled."""
        return sum([each.session.outbound.unsettled_entries() for each in self.by_peer.values()])

    def unsettled_windowed_rows(self) -> int:
        """The number of publications that brokers have not settled."""
        return sum([each.session.outbound.unsettled_windowed_rows() for each in self.by_peer.values()])

    def unmatched(self) -> int:
        """The number of settled publications without a matching subscription."""
        return self._unmatched_before + sum([each.session.peer_unmatched for each in self.by_peer.values()])

    def validate(self) -> None:
        """Check the invariants."""
        for peer, each in self.by_peer.items():
            assert peer == each.peer
            assert each.session.outbound.window == self._window
            each.validate()
        self._ack_scheduler.validate({each.session.inbound for each in self})
