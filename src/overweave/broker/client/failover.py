"""Failover: a client leaves an unreachable broker and registers at another one.

Everything that only the failed broker had is registered at the other one, with the next generation. Unsettled publications are
sent again there, in the next generation, once the advertisements are in force. Publications to the client may be missing.
"""

from overweave.broker.client.attachment import ClientAttachment, Registration
from overweave.broker.client.attachments import Attachments
from overweave.broker.client.migration import Migrations
from overweave.broker.client.publishing import Publishing
from overweave.contract.effects import Detach, Effect
from overweave.language.generations import stable_id
from overweave.language.messages import Advertise, Subscribe


class Failover:
    """The failovers of one client; a later one replaces an earlier one."""

    def __init__(self, attachments: Attachments, publishing: Publishing, migrations: Migrations) -> None:
        self._attachments, self._publishing, self._migrations = attachments, publishing, migrations

    def begin(self, failed_peer: str, to_peer: str, effects: list[Effect]) -> None:
        """Leave a broker for another one, which the client is attached to or will be."""
        failed = self._attachments.get(failed_peer)
        if failed is None or failed_peer == to_peer:
            return
        to = self._attachments.get(to_peer) or self._attachments.add(to_peer)
        self._migrations.abandon(failed, to, effects)
        for each in list(failed.registered.values()):
            self._register(each, to, failed, effects)
        if self._migrations.home is failed:
            self._migrations.home = to
        if self._publishing.home is failed:
            self._publishing.requeue(failed)
            self._publishing.home = to
            self._publishing.resume_behind(to.session.outbound.barrier())
        self._publishing.transfer_barriers(failed, [(to, to.session.outbound.barrier())])
        self._attachments.remove(failed)
        effects.append(Detach(failed.peer))

    def _register(self, old: Registration, to: ClientAttachment, failed: ClientAttachment, effects: list[Effect]) -> None:
        """Register at the other broker, unless a migration has done that; another broker's subscription is as good."""
        kind, id = type(old), stable_id(old.id)
        others = [each for each in self._attachments if each is not failed and any(each.generations_of(id, kind))]
        if to in others or (others and kind is Subscribe):
            return
        for each in others:  # advertisements are needed where the client publishes
            for other in each.generations_of(id, kind):
                each.withdraw(other, effects)
        make = Advertise if kind is Advertise else Subscribe
        to.send(make(self._migrations.renewed_id(old), old.filter), effects)

    def validate(self) -> None:
        """Check the invariants: publishing is paused for advertisements, or for a migration."""
        assert self._publishing.awaited is not None or not self._publishing.paused or self._migrations.active
