"""Filter-based routing on trees, FBR (THESIS 3.1, DEST II): advertisements are flooded, subscriptions go towards the
advertisements they intersect, publications follow the subscriptions back and are matched at every broker.
"""

from collections.abc import Iterable

from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.relations import intersects
from overweave.routing.base import ByKind, Origin, Route, Send, SubscriptionTable
from overweave.routing.offers import Offers


class FilterBased(ByKind):
    """At one broker: the SRT (advertisements with their last hop), the PRT (subscriptions with theirs), and the offers."""

    def __init__(self) -> None:
        self._advertisements: dict[str, tuple[Filter, Origin]] = {}
        #: The same filters by the neighbour they came from.
        self._advertised_by: dict[str, dict[str, Filter]] = {}
        self._table = SubscriptionTable()
        self._offers: dict[str, Offers] = {}

    def add_neighbour(self, neighbour: str) -> None:
        """See `Routing.add_neighbour`."""
        self._offers[neighbour] = Offers()
        self._advertised_by[neighbour] = {}

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        sends: list[Send] = []
        for message in self.learned(neighbour):
            gone = Unsubscribe(message.id) if isinstance(message, Subscribe) else Unadvertise(message.id)
            sends += self.handle(gone, neighbour)
        del self._offers[neighbour], self._advertised_by[neighbour]
        return [(to, message) for to, message in sends if to != neighbour]

    def route(self, publish: Publish, origin: Origin) -> Route:
        """See `Routing.route`."""
        return Route(*self._table.route(publish, origin), publish)

    def announce(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.announce`."""
        advertisements = [Advertise(id, filter) for id, (filter, of) in self._advertisements.items() if of != neighbour]
        return [*advertisements, *(Subscribe(id, filter) for id, filter in self._offers[neighbour].told())]

    def learned(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned`."""
        advertisements = [Advertise(id, filter) for id, (filter, of) in self._advertisements.items() if of == neighbour]
        return [*self._table.of(neighbour), *advertisements]

    def sizes(self) -> dict[str, int]:
        """See `Routing.sizes`."""
        return {
            "advertisements": len(self._advertisements),
            "subscriptions": len(self._table),
            "offers": sum(map(len, self._offers.values())),
        }

    def _advertise(self, message: Advertise, origin: Origin) -> list[Send]:
        if message.id in self._advertisements:
            return []
        self._advertisements[message.id] = (message.filter, origin)
        if origin is not None:
            self._advertised_by[origin][message.id] = message.filter
        sends: list[Send] = [(neighbour, message) for neighbour in self._offers if neighbour != origin]
        if origin is not None:
            for id, filter, of in self._table.items():
                if of != origin and intersects(message.filter, filter) and self._offers[origin].offer(id, filter):
                    sends.append((origin, Subscribe(id, filter)))
        return sends

    def _unadvertise(self, message: Unadvertise, origin: Origin) -> list[Send]:
        if self._advertisements.get(message.id, (None, ""))[1] != origin:
            return []
        del self._advertisements[message.id]
        if origin is not None:
            del self._advertised_by[origin][message.id]
        sends: list[Send] = [(neighbour, message) for neighbour in self._offers if neighbour != origin]
        if origin is not None:
            unwanted = [
                id for id, filter, _ in self._table.items() if id in self._offers[origin] and origin not in self._towards(filter)
            ]
            for id in unwanted:
                sends += self._withdraw(origin, id)
        return sends

    def _subscribe(self, message: Subscribe, origin: Origin) -> list[Send]:
        if not self._table.add(message.id, message.filter, origin):
            return []
        return [
            (neighbour, message)
            for neighbour in self._towards(message.filter)
            if neighbour != origin and self._offers[neighbour].offer(message.id, message.filter)
        ]

    def _unsubscribe(self, message: Unsubscribe, origin: Origin) -> list[Send]:
        if self._table.remove(message.id, origin) is None:
            return []
        return [send for neighbour in self._offers for send in self._withdraw(neighbour, message.id)]

    def _towards(self, filter: Filter) -> list[str]:
        """The neighbours from which an advertisement came that ``filter`` intersects."""
        return [
            neighbour
            for neighbour, advertised in self._advertised_by.items()
            if any(intersects(advertisement, filter) for advertisement in advertised.values())
        ]

    def _withdraw(self, neighbour: str, id: str) -> list[Send]:
        heirs, told = self._offers[neighbour].withdraw(id)
        sends: list[Send] = [(neighbour, Subscribe(heir, filter)) for heir, filter in heirs]
        return [*sends, (neighbour, Unsubscribe(id))] if told else sends
