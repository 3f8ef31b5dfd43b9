"""Simple routing: every subscription goes to every broker, and publications follow the way back (SPEC 0).

Acyclic overlays only. No advertisements are needed, and none are kept.
"""

from collections.abc import Iterable

from overweave.batches.base import Batch
from overweave.language.messages import Control, Subscribe, Unsubscribe
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Forward, Send, SubscriptionTable


class Simple:
    """Subscriptions are flooded, each on its own, whatever others there are."""

    def __init__(self) -> None:
        self._table = SubscriptionTable()
        self._neighbours: list[str] = []

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:  # noqa: ARG002
        """See `Routing.add_neighbour`."""
        self._neighbours.append(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        sends = [send for message in self._table.of(neighbour) for send in self.on_control(Unsubscribe(message.id), neighbour)]
        self._neighbours.remove(neighbour)
        return [(to, message) for to, message in sends if to != neighbour]

    def on_control(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.on_control`."""
        if isinstance(message, Subscribe):
            changed = self._table.add(message.id, message.filter, peer)
        elif isinstance(message, Unsubscribe):
            changed = self._table.remove(message.id, peer) is not None
        else:
            changed = False
        return [(neighbour, message) for neighbour in self._neighbours if neighbour != peer] if changed else ()

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        return self._table.route(batch, origin)

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        return [Subscribe(id, filter) for id, filter, of in self._table.items() if of != neighbour]

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`."""
        return self._table.of(neighbour)

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._table.validate()

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        return {"subscriptions": len(self._table)}
