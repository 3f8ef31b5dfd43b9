"""The attachments that a client gives up after a migration: it detaches when the last withdrawals are settled."""

from collections.abc import Iterator

from overweave.broker.client.attachment import ClientAttachment
from overweave.broker.client.attachments import Attachments
from overweave.broker.client.publishing import Publishing
from overweave.broker.session import Barrier
from overweave.contract.effects import Detach, Effect

#: The longest wait for a broker to settle the last withdrawals.
_DETACH_S = 30.0


class Detachments:
    """The attachments to give up."""

    def __init__(self, attachments: Attachments, publishing: Publishing) -> None:
        self._attachments, self._publishing = attachments, publishing
        #: With a barrier behind the last message there, and a deadline.
        self._waiting: dict[ClientAttachment, tuple[Barrier, float | None]] = {}

    def __contains__(self, attachment: ClientAttachment) -> bool:
        return attachment in self._waiting

    def __iter__(self) -> Iterator[ClientAttachment]:
        return iter(self._waiting)

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, attachment: ClientAttachment) -> None:
        """Give an attachment up when everything sent so far is settled."""
        self._waiting[attachment] = attachment.session.outbound.barrier(), None

    def cancel(self, attachment: ClientAttachment) -> None:
        """Keep an attachment."""
        self._waiting.pop(attachment, None)

    def advance(self, effects: list[Effect], now_s: float) -> None:
        """Detach from brokers that have settled the last messages, or do not answer."""
        for attachment, (barrier, deadline_s) in list(self._waiting.items()):
            if deadline_s is None:
                self._waiting[attachment] = barrier, now_s + _DETACH_S
            if barrier.settled or (deadline_s is not None and now_s > deadline_s):
                del self._waiting[attachment]
                self._attachments.remove(attachment)
                self._publishing.transfer_barriers(attachment, [])  # there were only withdrawals left
                effects.append(Detach(attachment.peer))

    def validate(self) -> None:
        """Check the invariants."""
        assert all(self._attachments.get(each.peer) is each and not each.registered for each in self._waiting)
