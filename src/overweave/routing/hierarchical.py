"""Hierarchical routing on a tree with a root (STOCH 2): subscriptions go up, publications go up and down.

A broker tells its parent of a subscription unless it has told it of an identical one (identity-based) or always (simple).
Publications climb to the root whatever is subscribed there, and descend wherever they meet a matching entry.

"Identical" means that two filters admit the same publications; here, that they are equal as written.
"""

from collections.abc import Iterable

from overweave.contract.batches import Batch
from overweave.language.messages import Control, Subscribe, Unsubscribe
from overweave.language.predicates import Filter
from overweave.routing.base import Forward, Send, SubscriptionTable


class Hierarchical:
    """At one broker, with the link to its ``parent`` (None: it is the root)."""

    acyclic = True

    def __init__(self, parent: str | None = None, *, identity: bool = True) -> None:
        self._parent = parent
        self._identity = identity
        self._table = SubscriptionTable()
        #: Per filter: the subscription that was told to the parent, and all that have it (told first).
        self._told: dict[Filter, list[str]] = {}

    def add_neighbour(self, neighbour: str) -> None:
        """See `Routing.add_neighbour`; nothing depends on children that have said nothing."""

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        if neighbour == self._parent:
            self._parent = None
        return [send for message in self._table.of(neighbour) for send in self.handle(Unsubscribe(message.id), neighbour)]

    def handle(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.handle`."""
        if isinstance(message, Subscribe) and self._table.add(message.id, message.filter, peer):
            return self._subscribe(message)
        if isinstance(message, Unsubscribe):
            filter = self._table.remove(message.id, peer)
            return () if filter is None else self._unsubscribe(message, filter)
        return ()

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        down = self._table.route(batch, origin)
        return down if self._parent is None or self._parent == origin else [(self._parent, batch), *down]

    def announce(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.announce`."""
        if neighbour != self._parent:
            return ()
        return [Subscribe(id, filter) for filter, ids in self._told.items() for id in (ids[:1] if self._identity else ids)]

    def learned(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned`."""
        return self._table.of(neighbour)

    def sizes(self) -> dict[str, int]:
        """See `Routing.sizes`."""
        return {
            "subscriptions": len(self._table),
            "told": sum(len(ids[:1] if self._identity else ids) for ids in self._told.values()),
        }

    def _subscribe(self, message: Subscribe) -> Iterable[Send]:
        same = self._told.setdefault(message.filter, [])
        same.append(message.id)
        if self._parent is None or (self._identity and len(same) > 1):
            return ()
        return [(self._parent, message)]

    def _unsubscribe(self, message: Unsubscribe, filter: Filter) -> Iterable[Send]:
        same = self._told[filter]
        told = not self._identity or same[0] == message.id
        same.remove(message.id)
        if not same:
            del self._told[filter]
        if self._parent is None or not told:
            return ()
        # An identical one takes over before the one that the parent knows goes.
        heir = [(self._parent, Subscribe(same[0], filter))] if same and self._identity else []
        return [*heir, (self._parent, message)]
