"""Acks that wait for the journal: a control message of a client is acked when it is durable, not before."""

from overweave.broker.pending_ack import PendingAck
from overweave.contract.frames import Rejected
from overweave.contract.stimuli import JournalFailed, Persisted
from overweave.language.generations import stable_id
from overweave.language.messages import Control, Unadvertise, Unsubscribe

#: The code of a control message that is rejected because the journal cannot be written.
UNAVAILABLE = "journal-unavailable"


class Durability:
    """Pending acks by the number of the `Persist` effect that they wait for."""

    __slots__ = ("_confirms_persist", "_failure", "_pending", "_persisted")

    def __init__(self, confirms_persist: bool) -> None:
        #: False: the driver has no journal, or does not report durability, so no ack waits.
        self._confirms_persist = confirms_persist
        self._persisted = 0
        self._pending: dict[int, list[PendingAck]] = {}
        self._failure: str | None = None

    @property
    def failing(self) -> bool:
        """Whether the journal cannot be written at present."""
        return self._failure is not None

    def hold(self, ack: PendingAck, number: int) -> None:
        """Hold an ack until the `Persist` effect of this number, counted from 1, is durable."""
        if self._confirms_persist and number > self._persisted:
            ack.retain()
            self._pending.setdefault(number, []).append(ack)

    def persisted(self, stimulus: Persisted) -> None:
        """Release the acks that waited; the journal works."""
        self._failure = None
        for number in range(self._persisted + 1, stimulus.count + 1):
            for ack in self._pending.pop(number, ()):
                ack.release()
        self._persisted = max(self._persisted, stimulus.count)

    def failed(self, stimulus: JournalFailed) -> None:
        """Reject new control messages from now on. Applied ones stay in force, and their acks wait."""
        self._failure = stimulus.reason

    def rejection(self, message: Control) -> Rejected:
        """The answer to a control message that changes the journal."""
        text = f"{stable_id(message.id)!r} is not in force: the broker cannot write its journal ({self._failure})"
        return Rejected(message.id, UNAVAILABLE, text, isinstance(message, Unadvertise | Unsubscribe))

    def validate(self) -> None:
        """Check the invariants."""
        assert self._confirms_persist or not self._pending
        assert all(number > self._persisted and acks for number, acks in self._pending.items())
        assert all(not ack.acked or ack.expired for acks in self._pending.values() for ack in acks)
