"""Filter-based routing on trees, FBR (THESIS 3.1, DEST II): advertisements are flooded, subscriptions go towards the
advertisements they intersect, publications follow the subscriptions back and are matched at every broker.

A publisher that moves advertises the next generation at its new broker (THESIS 4.1.4, 5.1.3). Each broker between the two changes
the last hop of the advertisement, offers its subscriptions there, and forwards the message to the old last hop only: it is the
thesis' MUM. Its acknowledgement is the MCM. No list of brokers travels with it; the old last hops are the path. All other brokers
keep the earlier generation, with the same last hop. After a crash the higher generation wins, whichever side announces it first.
"""

from collections.abc import Iterable
from typing import NamedTuple

from overweave.batches.base import Batch
from overweave.language.generations import at_generation, split_generation
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.matching.intersections import IntersectionIndex
from overweave.overlay.parts import LinkKind
from overweave.routing.base import ControlDispatch, Forward, Send, SubscriptionTable
from overweave.routing.forwarded import ForwardedSubscriptions


class Advertisement(NamedTuple):
    """An advertisement with its last hop; the id contains the generation."""

    id: str
    filter: Filter
    peer: str
    generation: int


class FilterBased(ControlDispatch):
    """At one broker: the SRT (advertisements with their last hop), the PRT (subscriptions with theirs), and the offers."""

    def __init__(self) -> None:
        #: By stable id: one generation of each is in force.
        self._advertisements: dict[str, Advertisement] = {}
        #: Stable ids of advertisements of neighbours, by what they intersect; and all subscriptions likewise.
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
        # `SubscriptionTable.route` without its call: every publication of most networks passes here.
        return batch.split_by_link(self._table.index, origin)  # type: ignore[return-value]

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        advertisements = [Advertise(id, filter) for id, filter, of, _ in self._advertisements.values() if of != neighbour]
        return [*advertisements, *(Subscribe(id, filter) for id, filter in self._offers[neighbour].forwarded())]

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`."""
        advertisements = [Advertise(id, filter) for id, filter, of, _ in self._advertisements.values() if of == neighbour]
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
        known = self._advertisements.items()
        assert all(entry.id == at_generation(stable, entry.generation) for stable, entry in known)
        self._remote.validate({stable: (entry.filter, entry.peer) for stable, entry in known if entry.peer in self._offers})
        self._wanted.validate({id: (filter, None) for id, filter, _ in self._table.items()})
        for neighbour, offers in self._offers.items():
            offers.validate()
            # A subscription is never forwarded to the neighbour it came from, and is withdrawn with its entry.
            assert all(self._table.get(id) == filter for id, filter in offers.forwarded()), neighbour

    def _advertise(self, message: Advertise, peer: str) -> list[Send]:
        stable, generation = split_generation(message.id)
        entry, known = Advertisement(message.id, message.filter, peer, generation), self._advertisements.get(stable)
        if known is None:
            return [*self._copies(message, peer), *self._attach(stable, entry)]
        if generation == known.generation:
            return []
        if generation > known.generation or (peer == known.peer and peer in self._offers):
            # A lower one of the last hop: that broker has restarted and has not received the higher one yet.
            return self._replace(stable, known, entry, message)
        # A lower one of another neighbour: one of the two has restarted, or two migrations overlap.
        return [(peer, Advertise(known.id, known.filter))] if peer in self._offers else []

    def _replace(self, stable: str, known: Advertisement, entry: Advertisement, message: Advertise) -> list[Send]:
        """Put another generation in the place of a known one."""
        if known.filter != entry.filter:  # all brokers need the new filter
            copies = [*self._copies(message, entry.peer), *self._retract(known, entry.peer)]
            return [*copies, *self._detach(stable, known), *self._attach(stable, entry)]
        if known.peer == entry.peer:
            self._advertisements[stable] = entry
            return []
        mum: list[Send] = [(known.peer, message)] if known.peer in self._offers else []
        return [*mum, *self._detach(stable, known), *self._retract(known, entry.peer), *self._attach(stable, entry)]

    def _retract(self, known: Advertisement, peer: str) -> list[Send]:
        """Withdraw what the new last hop has of the old one: it may have withdrawn the later generation itself meanwhile."""
        return [(peer, Unadvertise(known.id))] if peer in self._offers and peer != known.peer else []

    def _unadvertise(self, message: Unadvertise, peer: str) -> list[Send]:
        stable, generation = split_generation(message.id)
        known = self._advertisements.get(stable)
        if known is None or known.peer != peer or generation < known.generation:
            return []
        return [*self._copies(message, peer), *self._detach(stable, known)]

    def _copies(self, message: Control, peer: str) -> list[Send]:
        return [(neighbour, message) for neighbour in self._offers if neighbour != peer]

    def _attach(self, stable: str, entry: Advertisement) -> list[Send]:
        """Add an advertisement; its last hop is offered the subscriptions that intersect it."""
        self._advertisements[stable] = entry
        peer, sends = entry.peer, list[Send]()
        if peer in self._offers:
            self._remote.add(stable, entry.filter, peer)
            for id in self._wanted.intersecting(entry.filter):
                filter, of = self._table.entry(id)
                if of != peer and self._offers[peer].offer(id, filter):
                    sends.append((peer, Subscribe(id, filter)))
        return sends

    def _detach(self, stable: str, entry: Advertisement) -> list[Send]:
        """Remove an advertisement; from its last hop the subscriptions are withdrawn that no other one attracts."""
        del self._advertisements[stable]
        if entry.peer not in self._offers:
            return []
        self._remote.remove(stable)
        gone = self._no_longer_advertised(entry.peer, entry.filter)
        return [send for id in gone for send in self._withdraw_forwarded(entry.peer, id)]

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
        uncovered, was_forwarded = self._offers[neighbour].withdraw(id)
        sends: list[Send] = [(neighbour, Subscribe(each, filter)) for each, filter in uncovered]
        return [*sends, (neighbour, Unsubscribe(id))] if was_forwarded else sends
