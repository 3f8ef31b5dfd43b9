"""Simple hierarchical routing on a tree with a root (STOCH 2, 4.2): subscriptions go up, publications go up and down.

A broker tells its parent of every subscription. Publications climb to the root whatever is subscribed there, and descend wherever
they meet a matching entry.
"""

from collections.abc import Iterable

from overweave.batches.base import Batch
from overweave.language.messages import Control, Subscribe, Unsubscribe
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Forward, Send, SubscriptionTable


class Hierarchical:
    """At one broker, with the link to its ``parent`` (None: it is the root)."""

    def __init__(self, parent: str | None = None) -> None:
        self._parent = parent
        self._table = SubscriptionTable()

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """See `Routing.add_neighbour`; nothing depends on children that have said nothing."""

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        if neighbour == self._parent:
            self._parent = None
        return [send for message in self._table.of(neighbour) for send in self.on_control(Unsubscribe(message.id), neighbour)]

    def on_control(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.on_control`."""
        if isinstance(message, Subscribe):
            changed = self._table.add(message.id, message.filter, peer)
        elif isinstance(message, Unsubscribe):
            changed = self._table.remove(message.id, peer) is not None
        else:
            changed = False
        return [(self._parent, message)] if changed and self._parent is not None else ()

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        down = self._table.route(batch, origin)
        return down if self._parent is None or self._parent == origin else [(self._parent, batch), *down]

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        if neighbour != self._parent:
            return ()
        return [Subscribe(id, filter) for id, filter, _ in self._table.items()]

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`."""
        return self._table.of(neighbour)

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._table.validate()

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        return {"subscriptions": len(self._table), "forwarded": 0 if self._parent is None else len(self._table)}
