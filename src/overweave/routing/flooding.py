"""Notification flooding: no routing tables at all, every broker gets every publication (STOCH 4.2)."""

from collections.abc import Iterable

from overweave.language.messages import Control, Publish, Subscribe, Unsubscribe
from overweave.routing.base import Origin, Route, Send, SubscriptionTable


class Flooding:
    """Publications go to all neighbours but the one they came from; only the last step looks at filters."""

    def __init__(self) -> None:
        self._local = SubscriptionTable()
        self._neighbours: list[str] = []

    def add_neighbour(self, neighbour: str) -> None:
        """See `Routing.add_neighbour`."""
        self._neighbours.append(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        self._neighbours.remove(neighbour)
        return ()

    def handle(self, message: Control, origin: Origin) -> Iterable[Send]:
        """Nothing is told to others."""
        if isinstance(message, Subscribe):
            self._local.add(message.id, message.filter, origin)
        elif isinstance(message, Unsubscribe):
            self._local.remove(message.id, origin)
        return ()

    def route(self, publish: Publish, origin: Origin) -> Route:
        """See `Routing.route`."""
        _, subscriptions = self._local.route(publish, origin)
        return Route([neighbour for neighbour in self._neighbours if neighbour != origin], subscriptions, publish)

    def announce(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.announce`."""
        return ()

    def learned(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.learned`."""
        return ()

    def sizes(self) -> dict[str, int]:
        """See `Routing.sizes`."""
        return {"subscriptions": len(self._local)}
