"""An attachment of a client: its session with one broker, and its registrations there."""

from collections.abc import Iterator

from overweave.broker.session import Session
from overweave.contract.effects import Effect
from overweave.contract.frames import ControlMessage, SyncEnd
from overweave.language.generations import stable_id
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe

Registration = Advertise | Subscribe


class ClientAttachment:
    """One session; ``broker`` is the broker's name, which may be known only after the handshake."""

    __slots__ = ("broker", "peer", "registered", "session")

    def __init__(self, peer: str, session: Session) -> None:
        self.peer = self.broker = peer
        self.session = session
        #: Advertisements and subscriptions in force here, by id with generation.
        self.registered: dict[str, Registration] = {}

    def send(self, message: Control, effects: list[Effect]) -> None:
        """Send a control message, behind blocked publications; registrations are sent again to a broker without state."""
        if isinstance(message, Registration):
            self.registered[message.id] = message
        else:
            self.registered.pop(message.id, None)
        self.session.outbound.send_control_windowed(message, effects)

    def withdraw(self, registration: Registration, effects: list[Effect]) -> None:
        """Withdraw an advertisement or a subscription."""
        id = registration.id
        self.send(Unadvertise(id) if isinstance(registration, Advertise) else Unsubscribe(id), effects)

    def generations_of(self, id: str, kind: type) -> Iterator[Registration]:
        """The registrations of a kind with a stable id."""
        return (each for each in list(self.registered.values()) if isinstance(each, kind) and stable_id(each.id) == id)

    def of_kind(self, kind: type) -> list[Registration]:
        """All registrations of a kind."""
        return [each for each in self.registered.values() if isinstance(each, kind)]

    def greeting(self) -> list[ControlMessage]:
        """All registrations, for a broker without state."""
        return [*self.registered.values(), SyncEnd()]

    def validate(self) -> None:
        """Check the invariants."""
        assert self.peer == self.session.peer
        assert all(id == each.id for id, each in self.registered.items())
        self.session.validate()
