"""Destination-based routing, D-DBR (DEST III): a publication is matched where it enters, gets the list of brokers that want it,
and is matched again only where it is delivered. Brokers in between look at the list alone.

The local tables (L-SRT, L-PRT) are here, the remote ones (R-SRT, R-PRT) and the multicasting layer in `Member`.
"""

from collections.abc import Hashable, Iterable

from overweave.contract.batches import Batch
from overweave.contract.modules import KnownOverlay
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.routing.base import Forward, Send, SubscriptionTable
from overweave.routing.choice import Choice
from overweave.routing.member import Member
from overweave.routing.remote import Stated
from overweave.routing.topology import DOWN, UP


class DestinationBased:
    """At one broker."""

    acyclic = False
    watches_links = True
    needs_advertisements = True
    wants_ticks = True

    def __init__(self, broker: str, number: int) -> None:
        self._member = Member(broker, number, self._choose)
        self._choice = Choice()
        self._number = number
        self._advertisements: dict[str, str] = {}
        self._subscriptions = SubscriptionTable()

    def begin(self, incarnation: int) -> None:
        """See `Routing.begin`."""
        self._member.begin(incarnation)

    def overlay(self) -> KnownOverlay:
        """See `Routing.overlay`."""
        return self._member.topology

    def add_neighbour(self, neighbour: str) -> None:
        """See `Routing.add_neighbour`."""
        self._member.topology.add(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        return self._member.unlink(neighbour)

    def link_up(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.link_up`."""
        return self._member.link(neighbour, UP)

    def link_down(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.link_down`."""
        return self._member.link(neighbour, DOWN)

    def beat(self) -> Iterable[Send]:
        """See `Routing.beat`."""
        return self._member.beat()

    def handle(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.handle`."""
        if message.header.destinations or self._member.topology.is_neighbour(peer):
            return self._member.handle(message, peer)
        match message:
            case Advertise(id, filter) if id not in self._advertisements:
                self._advertisements[id] = peer
                return self._member.advertise(id, Stated(filter))
            case Unadvertise(id) if self._advertisements.get(id) == peer:
                del self._advertisements[id]
                return self._member.unadvertise(id)
            case Subscribe(id, filter) if self._subscriptions.add(id, filter, peer):
                return self._member.subscribe(id, Stated(filter))
            case Unsubscribe(id) if self._subscriptions.remove(id, peer) is not None:
                return self._member.unsubscribe(id)
            case _:
                return ()

    def _choose(self, _: str, id: str, __: Stated | None) -> None:
        """Publications go to all who want them, and each broker speaks for itself."""
        self._choice.set(id, {number: stated.filter for number, stated in self._member.wanted_by(id)})

    def arriving(self, batch: Batch, origin: str | None) -> tuple[Batch | None, Batch | None]:
        """See `Routing.arriving`."""
        return (batch, None) if origin is None else batch.meant_for(self._number)

    def lanes(self, origin: str | None, detour: bool) -> tuple[Hashable, ...]:  # noqa: ARG002
        """See `Routing.lanes`."""
        return ()

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        if batch.is_bound():
            return batch.parted(self._member.ways)
        if origin is not None:
            return self._subscriptions.route(batch, None)
        if not self._member.ready:
            return [(None, batch)]
        bound = batch.addressed(self._choice.wanting(batch))
        here = self._subscriptions.route(batch, None)
        return here if bound is None else [*here, *bound.parted(self._member.ways)]

    def instead(self) -> None:
        """See `Routing.instead`: nobody stands for others."""
        return

    def compared_with(self, batch: Batch, origin: str | None) -> int:
        """See `Routing.compared_with`."""
        if origin is None:
            return len(self._subscriptions) + len(self._member.subscriptions)
        here, _ = batch.meant_for(self._number)
        return 0 if here is None else len(self._subscriptions)

    def announce(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.announce`."""
        return self._member.announce(neighbour)

    def learned(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.learned`: nothing holds only because a neighbour said it."""
        return ()

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._member.validate()
        self._subscriptions.validate()
        assert self._member.advertised.keys() == self._advertisements.keys()
        assert len(self._member.wanted) == len(self._subscriptions)

    def sizes(self) -> dict[str, int]:
        """See `Routing.sizes`."""
        remote = self._member.subscriptions
        return {
            "advertisements": len(self._advertisements) + len(self._member.advertisements),
            "subscriptions": len(self._subscriptions) + len(remote),
            "remote subscriptions": len(remote),
        }
