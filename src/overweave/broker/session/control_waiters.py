"""Control waiters: acks that wait until a peer has settled control messages."""

from collections.abc import Iterable

from overweave.broker.pending_ack import ControlKey, PendingAck, control_key
from overweave.broker.session.in_flight import InFlight
from overweave.contract.frames import ControlMessage
from overweave.language.messages import Control, Subscribe, Unsubscribe


class Waiters:
    """The acks waiting for one control message to be settled; earlier messages of the same key are settled before it."""

    __slots__ = ("_acks", "_last_by_key", "id", "key")

    def __init__(self, last_by_key: "dict[ControlKey, Waiters]", key: ControlKey, id: str, ack: PendingAck | None) -> None:
        #: The last control message in flight by key; this is one until it is settled.
        self._last_by_key, self.key, self.id = last_by_key, key, id
        self._acks = [] if ack is None else [ack]
        last_by_key[key] = self

    def add(self, ack: PendingAck) -> None:
        """Let one more ack wait."""
        ack.retain()
        self._acks.append(ack)

    def release(self) -> None:
        """The peer has settled the message."""
        for ack in self.detach():
            ack.release()

    def detach(self) -> list[PendingAck]:
        """Remove the message from those in flight; the acks still wait and are returned."""
        if self._last_by_key.get(self.key) is self:
            del self._last_by_key[self.key]
        acks, self._acks = self._acks, []
        return acks

    def validate(self) -> None:
        """Check the invariants."""
        assert all(not ack.acked or ack.expired for ack in self._acks)


class ControlWaiters:
    """The acks that wait for control in flight to one peer."""

    __slots__ = ("_last_by_key",)

    def __init__(self) -> None:
        #: The last control message in flight by key: messages of one key are settled in the order of sending.
        self._last_by_key: dict[ControlKey, Waiters] = {}

    def track(self, message: ControlMessage, ack: PendingAck | None = None) -> InFlight:
        """The in-flight record of a control message."""
        if not isinstance(message, Control):
            return InFlight(message, None, 1, ack, 0)
        key = control_key(message)
        return InFlight(message, None, 1, ack if key is None else Waiters(self._last_by_key, key, message.id, ack), 0)

    def wait_for(self, key: ControlKey, ack: PendingAck) -> None:
        """Let ``ack`` wait until the peer has settled all messages of a key that are in flight."""
        latest = self._last_by_key.get(key)
        if latest is not None:
            latest.add(ack)

    def wait_for_all(self, kind: type, ack: PendingAck) -> None:
        """Let ``ack`` wait likewise for all keys of a kind."""
        for key, latest in self._last_by_key.items():
            if key[0] is kind:
                latest.add(ack)

    def detach_withdrawn(self, message: Unsubscribe) -> list[PendingAck]:
        """Detach the acks of the withdrawn subscription, if it is the latest subscription in flight on its tree."""
        latest = self._last_by_key.get((Subscribe, message.header.tree, message.header.overlay_epoch))
        return latest.detach() if latest is not None and latest.id == message.id else []

    def validate(self, entries: Iterable[InFlight]) -> None:
        """Check the invariants: acks wait for messages in flight or blocked, and are pending until then."""
        if not self._last_by_key:
            return
        present = {id(entry.ack) for entry in entries}
        for key, latest in self._last_by_key.items():
            assert latest.key == key
            assert id(latest) in present
            latest.validate()
