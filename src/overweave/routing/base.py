"""What a routing protocol is, and what most of them share.

A protocol is told what arrives, from which neighbour (or None: from a client of this broker), and answers what to
send where. It keeps the tables; sessions, clients and time are not its business.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol, cast

from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.relations import matches
from overweave.matching.index import Index

#: A neighbour, or None for this broker's own clients.
Origin = str | None
#: Up to so many subscriptions are matched one by one: most tables of a large overlay are small, and an index takes room.
_FEW = 8
#: What to send, and to which neighbour.
Send = tuple[str, Control]


class Route(NamedTuple):
    """Where one publication goes: to neighbours, and to subscriptions of this broker's own clients. Its header may change."""

    neighbours: Sequence[str]
    subscriptions: Sequence[str]
    publish: Publish


class Routing(Protocol):
    """A routing protocol at one broker."""

    def add_neighbour(self, neighbour: str) -> None:
        """There is a link to ``neighbour`` from now on."""

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """There is none any more, and nothing that came over it holds."""

    def handle(self, message: Control, origin: Origin) -> Iterable[Send]:
        """Take in a control message; one that is known already changes nothing."""

    def route(self, publish: Publish, origin: Origin) -> Route:
        """Where a publication goes."""

    def announce(self, neighbour: str) -> Iterable[Control]:
        """All that ``neighbour`` must know when it has forgotten everything."""

    def learned(self, neighbour: str) -> Iterable[Control]:
        """All that ``neighbour`` has said and that still holds."""

    def sizes(self) -> dict[str, int]:
        """How many entries each table has."""


class ByKind:
    """What a protocol does with a control message, a method per kind of message."""

    def handle(self, message: Control, origin: Origin) -> Iterable[Send]:
        """See `Routing.handle`."""
        match message:
            case Advertise():
                return self._advertise(message, origin)
            case Unadvertise():
                return self._unadvertise(message, origin)
            case Subscribe():
                return self._subscribe(message, origin)
            case Unsubscribe():
                return self._unsubscribe(message, origin)

    def _advertise(self, message: Advertise, origin: Origin) -> list[Send]:
        raise NotImplementedError

    def _unadvertise(self, message: Unadvertise, origin: Origin) -> list[Send]:
        raise NotImplementedError

    def _subscribe(self, message: Subscribe, origin: Origin) -> list[Send]:
        raise NotImplementedError

    def _unsubscribe(self, message: Unsubscribe, origin: Origin) -> list[Send]:
        raise NotImplementedError


class SubscriptionTable:
    """The publication routing table: subscriptions with their last hop, and an index over them once it pays."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Filter, Origin]] = {}
        self._index: Index | None = None

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: str) -> bool:
        return id in self._entries

    def add(self, id: str, filter: Filter, origin: Origin) -> bool:
        """Take a subscription in; False when it is known."""
        if id in self._entries:
            return False
        self._entries[id] = (filter, origin)
        if self._index is not None:
            self._index.add(id, filter, origin)
        elif len(self._entries) > _FEW:
            self._index = Index()
            self._index.add_many((id, filter, origin) for id, (filter, origin) in self._entries.items())
        return True

    def remove(self, id: str, origin: Origin) -> Filter | None:
        """Forget a subscription that came from ``origin``; None when there is no such one."""
        entry = self._entries.get(id)
        if entry is None or entry[1] != origin:
            return None
        del self._entries[id]
        if self._index is not None:
            self._index.remove(id)
        return entry[0]

    def items(self) -> list[tuple[str, Filter, Origin]]:
        """All entries."""
        return [(id, filter, origin) for id, (filter, origin) in self._entries.items()]

    def of(self, origin: Origin) -> list[Subscribe]:
        """All that came from ``origin``."""
        return [Subscribe(id, filter) for id, (filter, of) in self._entries.items() if of == origin]

    def route(self, publish: Publish, origin: Origin) -> tuple[list[str], list[str]]:
        """The neighbours and local subscriptions that a publication matches, without going back where it came from."""
        if self._index is not None:
            return cast("tuple[list[str], list[str]]", self._index.route(publish.publication, origin))
        found = [(id, of) for id, (filter, of) in self._entries.items() if matches(filter, publish.publication)]
        neighbours = dict.fromkeys(of for _, of in found if of is not None and of != origin)
        return list(neighbours), [id for id, of in found if of is None]
