"""The view of a client for drivers: the brokers that its subscriptions and its publishing side depend on."""

from overweave.broker.client.attachments import Attachments
from overweave.broker.client.migration import Migrations
from overweave.broker.client.publishing import Publishing
from overweave.language.generations import split_generation
from overweave.language.messages import Subscribe


class AttachmentView:
    """Read-only view of a client's attachments, for drivers."""

    def __init__(self, attachments: Attachments, publishing: Publishing, migrations: Migrations) -> None:
        self._attachments, self._publishing, self._migrations = attachments, publishing, migrations

    @property
    def is_publishing_paused(self) -> bool:
        """Whether publications are buffered until a migration goes on."""
        return self._publishing.paused

    def is_secondary(self, peer: str) -> bool:
        """Whether nothing depends on a connection but a migration."""
        attachment = self._attachments.get(peer)
        return attachment is None or self._migrations.is_secondary(attachment)

    def subscriptions(self, peer: str) -> set[str]:
        """The stable ids of the subscriptions at home at a connection: no other broker has an earlier generation of them."""
        first: dict[str, tuple[int, str]] = {}
        for attachment in self._attachments:
            for each in attachment.of_kind(Subscribe):
                id, generation = split_generation(each.id)
                first[id] = min(first.get(id, (generation, attachment.peer)), (generation, attachment.peer))
        return {id for id, (_, home) in first.items() if home == peer}
