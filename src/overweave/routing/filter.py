"""Filter-based routing on trees, FBR (THESIS 3.1, DEST II): advertisements are flooded, subscriptions go towards the
advertisements they intersect, publications follow the subscriptions back and are matched at every broker.

A publisher that moves advertises the next generation at its new broker (THESIS 4.1.4, 5.1.3). Each broker between the two changes
the last hop of the advertisement, forwards its subscriptions there, and the message to the old last hop only: it is the thesis'
MUM. Its acknowledgement is the MCM. No list of brokers travels with it; the old last hops are the path. All other brokers keep
the earlier generation, with the same last hop. After a crash the higher generation wins, whichever side announces it first.
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
    """At one broker: the SRT (advertisements with their last hop), the PRT (subscriptions with theirs), and what is forwarded."""

    def __init__(self) -> None:
        #: By stable id: one generation of each is in force.
        self._advertisements: dict[str, Advertisement] = {}
        #: Stable ids of advertisements of neighbours, by what they intersect; and all subscriptions likewise.
        self._remote_advertisements = IntersectionIndex[str](holds_advertisements=True)
        self._subscription_index = IntersectionIndex[str](holds_advertisements=False)
        self._subscriptions = SubscriptionTable()
        #: By neighbour.
        self._forwarded: dict[str, ForwardedSubscriptions] = {}

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:  # noqa: ARG002
        """See `Routing.add_neighbour`."""
        self._forwarded[neighbour] = ForwardedSubscriptions()

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        sends: list[Send] = []
        for message in self.learned_from(neighbour):
            gone = Unsubscribe(message.id) if isinstance(message, Subscribe) else Unadvertise(message.id)
            sends += self.on_control(gone, neighbour)
        del self._forwarded[neighbour]
        return [(to, message) for to, message in sends if to != neighbour]

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        # `SubscriptionTable.route` without its call: every publication of most networks passes here.
        return batch.split_by_link(self._subscriptions.index, origin)  # type: ignore[return-value]

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        advertisements = [Advertise(id, filter) for id, filter, of, _ in self._advertisements.values() if of != neighbour]
        return [*advertisements, *(Subscribe(id, filter) for id, filter in self._forwarded[neighbour].forwarded())]

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`."""
        advertisements = [Advertise(id, filter) for id, filter, of, _ in self._advertisements.values() if of == neighbour]
        return [*self._subscriptions.of(neighbour), *advertisements]

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`; forwarded subscriptions also count those that are covered by others."""
        return {
            "advertisements": len(self._advertisements),
            "subscriptions": len(self._subscriptions),
            "forwarded_subscriptions": sum(map(len, self._forwarded.values())),
        }

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._subscriptions.validate()
        known = self._advertisements.items()
        assert all(entry.id == at_generation(stable_id, entry.generation) for stable_id, entry in known)
        self._remote_advertisements.validate(
            {stable_id: (entry.filter, entry.peer) for stable_id, entry in known if entry.peer in self._forwarded}
        )
        self._subscription_index.validate({id: (filter, None) for id, filter, _ in self._subscriptions.items()})
        for neighbour, forwarded in self._forwarded.items():
            forwarded.validate()
            # A subscription is never forwarded to the neighbour it came from, and is withdrawn with its entry.
            assert all(self._subscriptions.get(id) == filter for id, filter in forwarded.forwarded()), neighbour

    def _advertise(self, message: Advertise, peer: str) -> list[Send]:
        stable_id, generation = split_generation(message.id)
        entry, known = Advertisement(message.id, message.filter, peer, generation), self._advertisements.get(stable_id)
        if known is None:
            return [*self._copies(message, peer), *self._insert_advertisement(stable_id, entry)]
        if generation == known.generation:
            return []
        if generation > known.generation or (peer == known.peer and peer in self._forwarded):
            # A lower one of the last hop: that broker has restarted and has not received the higher one yet.
            return self._replace(stable_id, known, entry, message)
        # A lower one of another neighbour: one of the two has restarted, or two migrations overlap.
        return [(peer, Advertise(known.id, known.filter))] if peer in self._forwarded else []

    def _replace(self, stable_id: str, known: Advertisement, entry: Advertisement, message: Advertise) -> list[Send]:
        """Put another generation in the place of a known one."""
        if known.filter != entry.filter:  # all brokers need the new filter
            copies = [*self._copies(message, entry.peer), *self._retract(known, entry.peer)]
            return [*copies, *self._remove_advertisement(stable_id, known), *self._insert_advertisement(stable_id, entry)]
        if known.peer == entry.peer:
            self._advertisements[stable_id] = entry
            return []
        mum: list[Send] = [(known.peer, message)] if known.peer in self._forwarded else []
        removed, retracted = self._remove_advertisement(stable_id, known), self._retract(known, entry.peer)
        return [*mum, *removed, *retracted, *self._insert_advertisement(stable_id, entry)]

    def _retract(self, known: Advertisement, peer: str) -> list[Send]:
        """Withdraw the old generation at the new last hop, which may have withdrawn the later one itself meanwhile."""
        return [(peer, Unadvertise(known.id))] if peer in self._forwarded and peer != known.peer else []

    def _unadvertise(self, message: Unadvertise, peer: str) -> list[Send]:
        stable_id, generation = split_generation(message.id)
        known = self._advertisements.get(stable_id)
        if known is None or known.peer != peer or generation < known.generation:
            return []
        return [*self._copies(message, peer), *self._remove_advertisement(stable_id, known)]

    def _copies(self, message: Control, peer: str) -> list[Send]:
        return [(neighbour, message) for neighbour in self._forwarded if neighbour != peer]

    def _insert_advertisement(self, stable_id: str, entry: Advertisement) -> list[Send]:
        """Add an advertisement; the subscriptions that intersect it are forwarded to its last hop."""
        self._advertisements[stable_id] = entry
        peer, sends = entry.peer, list[Send]()
        if peer in self._forwarded:
            self._remote_advertisements.add(stable_id, entry.filter, peer)
            for id in self._subscription_index.intersecting(entry.filter):
                filter, of = self._subscriptions.entry(id)
                if of != peer and self._forwarded[peer].offer(id, filter):
                    sends.append((peer, Subscribe(id, filter)))
        return sends

    def _remove_advertisement(self, stable_id: str, entry: Advertisement) -> list[Send]:
        """Remove an advertisement; from its last hop the subscriptions are withdrawn that no other one attracts."""
        del self._advertisements[stable_id]
        if entry.peer not in self._forwarded:
            return []
        self._remote_advertisements.remove(stable_id)
        gone = self._no_longer_advertised(entry.peer, entry.filter)
        return [send for id in gone for send in self._withdraw_forwarded(entry.peer, id)]

    def _subscribe(self, message: Subscribe, peer: str) -> list[Send]:
        if not self._subscriptions.add(message.id, message.filter, peer):
            return []
        self._subscription_index.add(message.id, message.filter)
        towards = self._remote_advertisements.links(message.filter, exclude=peer)
        return [
            (neighbour, message)
            for neighbour, forwarded in self._forwarded.items()
            if neighbour in towards and forwarded.offer(message.id, message.filter)
        ]

    def _unsubscribe(self, message: Unsubscribe, peer: str) -> list[Send]:
        if self._subscriptions.remove(message.id, peer) is None:
            return []
        self._subscription_index.remove(message.id)
        return [send for neighbour in self._forwarded for send in self._withdraw_forwarded(neighbour, message.id)]

    def _no_longer_advertised(self, neighbour: str, gone: Filter) -> list[str]:
        """The subscriptions known for a neighbour that intersect none of its advertisements since ``gone`` is withdrawn."""
        forwarded = self._forwarded[neighbour]
        known = [id for id in self._subscription_index.intersecting(gone) if id in forwarded]
        return [id for id in known if not self._remote_advertisements.reaches(neighbour, self._subscriptions.entry(id)[0])]

    def _withdraw_forwarded(self, neighbour: str, id: str) -> list[Send]:
        uncovered, was_forwarded = self._forwarded[neighbour].withdraw(id)
        sends: list[Send] = [(neighbour, Subscribe(each, filter)) for each, filter in uncovered]
        return [*sends, (neighbour, Unsubscribe(id))] if was_forwarded else sends
