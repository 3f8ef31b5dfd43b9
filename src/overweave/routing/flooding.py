"""Notification flooding: no routing tables at all, every broker gets every publication (STOCH 4.2)."""

from collections.abc import Iterable

from overweave.batches.base import Batch
from overweave.language.messages import Control, Subscribe, Unsubscribe
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Forward, Send, SubscriptionTable


class Flooding:
    """Publications go to all neighbours but the one they came from; only the last step looks at filters."""

    def __init__(self) -> None:
        self._local = SubscriptionTable()
        self._neighbours: list[str] = []

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:  # noqa: ARG002
        """See `Routing.add_neighbour`."""
        self._neighbours.append(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        self._neighbours.remove(neighbour)
        return ()

    def on_control(self, message: Control, peer: str) -> Iterable[Send]:
        """Nothing is forwarded."""
        if isinstance(message, Subscribe):
            self._local.add(message.id, message.filter, peer)
        elif isinstance(message, Unsubscribe):
            self._local.remove(message.id, peer)
        return ()

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        everywhere = [(neighbour, batch) for neighbour in self._neighbours if neighbour != origin]
        return [*everywhere, *self._local.route(batch, None)]

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.snapshot_for`."""
        return ()

    def learned_from(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.learned_from`."""
        return ()

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._local.validate()

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        return {"subscriptions": len(self._local)}
