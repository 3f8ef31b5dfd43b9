"""Filter-based routing on trees, FBR (THESIS 3.1, DEST II): advertisements are flooded, subscriptions go towards the
advertisements they intersect, publications follow the subscriptions back and are matched at every broker.
"""

from collections.abc import Iterable

from overweave.batches.base import Batch
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.matching.intersections import IntersectionIndex
from overweave.overlay.parts import LinkKind
from overweave.routing.base import ControlDispatch, Forward, Send, SubscriptionTable
from overweave.routing.forwarded import ForwardedSubscriptions


class FilterBased(ControlDispatch):
    """At one broker: the SRT (advertisements with their last hop), the PRT (subscriptions with theirs), and the offers."""

    def __init__(self) -> None:
        self._advertisements: dict[str, tuple[Filter, str]] = {}
        #: Those that came from neighbours, by what they intersect; and all subscriptions likewise.
        self._remote = IntersectionIndex[str](holds_advertisements=True)
        self._wanted = IntersectionIndex[str](holds_advertisements=False)
        self._table = SubscriptionTable()
        self._offers: dict[str, ForwardedSubscriptions] = {}

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:  # noqa: ARG002
        """See `Routing.add_neighbour`."""
        self._offers[neighbour] = ForwardedSubscriptions()

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        sends: list[Send] = []
        for message in self.learned_from(neighbour):
            gone = Unsubscribe(message.id) if isinstance(message, Subscribe) else Unadvertise(message.id)
            sends += self.on_control(gone, neighbour)
        del self._offers[neighbour]
        return [(to, message) for to, message in sends if to != neighbour]

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        return self._table.route(batch, origin)

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        advertisements = [Advertise(id, filter) for id, (filter, of) in self._advertisements.items() if of != neighbour]
        return [*advertisements, *(Subscribe(id, filter) for id, filter in self._offers[neighbour].told())]

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`."""
        advertisements = [Advertise(id, filter) for id, (filter, of) in self._advertisements.items() if of == neighbour]
        return [*self._table.of(neighbour), *advertisements]

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        return {
            "advertisements": len(self._advertisements),
            "subscriptions": len(self._table),
            "offers": sum(map(len, self._offers.values())),
        }

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._table.validate()
        self._remote.validate({id: entry for id, entry in self._advertisements.items() if entry[1] in self._offers})
        self._wanted.validate({id: (filter, None) for id, filter, _ in self._table.items()})
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
            self._remote.add(message.id, message.filter, peer)
            for id in self._wanted.intersecting(message.filter):
                filter, of = self._table.entry(id)
                if of != peer and self._offers[peer].offer(id, filter):
                    sends.append((peer, Subscribe(id, filter)))
        return sends

    def _unadvertise(self, message: Unadvertise, peer: str) -> list[Send]:
        if self._advertisements.get(message.id, (None, ""))[1] != peer:
            return []
        filter, _ = self._advertisements.pop(message.id)
        sends: list[Send] = [(neighbour, message) for neighbour in self._offers if neighbour != peer]
        if peer in self._offers:
            self._remote.remove(message.id)
            # What this neighbour was offered and this advertisement did not call for, another one still does.
            for id in self._no_longer_advertised(peer, filter):
                sends += self._withdraw_forwarded(peer, id)
        return sends

    def _subscribe(self, message: Subscribe, peer: str) -> list[Send]:
        if not self._table.add(message.id, message.filter, peer):
            return []
        self._wanted.add(message.id, message.filter)
        towards = self._remote.links(message.filter, exclude=peer)
        return [
            (neighbour, message)
            for neighbour, offers in self._offers.items()
            if neighbour in towards and offers.offer(message.id, message.filter)
        ]

    def _unsubscribe(self, message: Unsubscribe, peer: str) -> list[Send]:
        if self._table.remove(message.id, peer) is None:
            return []
        self._wanted.remove(message.id)
        return [send for neighbour in self._offers for send in self._withdraw_forwarded(neighbour, message.id)]

    def _no_longer_advertised(self, neighbour: str, gone: Filter) -> list[str]:
        """The subscriptions offered to a neighbour that intersect none of its advertisements since ``gone`` is withdrawn."""
        offers = self._offers[neighbour]
        offered = [id for id in self._wanted.intersecting(gone) if id in offers]
        return [id for id in offered if not self._remote.reaches(neighbour, self._table.entry(id)[0])]

    def _withdraw_forwarded(self, neighbour: str, id: str) -> list[Send]:
        heirs, told = self._offers[neighbour].withdraw(id)
        sends: list[Send] = [(neighbour, Subscribe(heir, filter)) for heir, filter in heirs]
        return [*sends, (neighbour, Unsubscribe(id))] if told else sends
