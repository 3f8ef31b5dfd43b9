"""Filter-based routing on trees, FBR (THESIS 3.1, DEST II): advertisements are flooded, subscriptions go towards the
advertisements they intersect, publications follow the subscriptions back and are matched at every broker.
"""

from collections.abc import Iterable

from overweave.contract.batches import Batch
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.relations import intersects
from overweave.routing.base import ByKind, Forward, Send, SubscriptionTable
from overweave.routing.offers import Offers


class FilterBased(ByKind):
    """At one broker: the SRT (advertisements with their last hop), the PRT (subscriptions with theirs), and the offers."""

    acyclic = True
    needs_advertisements = True

    def __init__(self) -> None:
        self._advertisements: dict[str, tuple[Filter, str]] = {}
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

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        return self._table.route(batch, origin)

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

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._table.validate()
        from_neighbours = {(of, id, filter) for id, (filter, of) in self._advertisements.items() if of in self._offers}
        assert from_neighbours == {(of, id, filter) for of, ids in self._advertised_by.items() for id, filter in ids.items()}
        for neighbour, offers in self._offers.items():
            offers.validate()
            # A subscription is never forwarded to the neighbour it came from, and is withdrawn with its entry.
            assert all(self._table.get(id) == filter for id, filter in offers.told()), neighbour

    def _advertise(self, message: Advertise, peer: str) -> list[Send]:
        if message.id in self._advertisements:
            return []
        self._advertisements[message.id] = (message.filter, peer)
        sends: list[Send] = [(neighbour, message) for neighbour in self._offers if neighbour != peer]
        if peer in self._offers:
            self._advertised_by[peer][message.id] = message.filter
            for id, filter, of in self._table.items():
                if of != peer and intersects(message.filter, filter) and self._offers[peer].offer(id, filter):
                    sends.append((peer, Subscribe(id, filter)))
        return sends

    def _unadvertise(self, message: Unadvertise, peer: str) -> list[Send]:
        if self._advertisements.get(message.id, (None, ""))[1] != peer:
            return []
        del self._advertisements[message.id]
        sends: list[Send] = [(neighbour, message) for neighbour in self._offers if neighbour != peer]
        if peer in self._offers:
            del self._advertised_by[peer][message.id]
            offers = self._offers[peer]
            for id in [id for id, filter, _ in self._table.items() if id in offers and peer not in self._towards(filter)]:
                sends += self._withdraw(peer, id)
        return sends

    def _subscribe(self, message: Subscribe, peer: str) -> list[Send]:
        if not self._table.add(message.id, message.filter, peer):
            return []
        return [
            (neighbour, message)
            for neighbour in self._towards(message.filter)
            if neighbour != peer and self._offers[neighbour].offer(message.id, message.filter)
        ]

    def _unsubscribe(self, message: Unsubscribe, peer: str) -> list[Send]:
        if self._table.remove(message.id, peer) is None:
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
