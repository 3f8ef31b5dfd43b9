"""Destination-based routing, D-DBR (DEST III): a publication is matched where it enters, gets the list of brokers that want it,
and is matched again only where it is delivered. Brokers in between look at the list alone.

The local tables (L-SRT, L-PRT) are here, the remote ones (R-SRT, R-PRT) and the multicasting layer in `ClusterNode`.
"""

from collections.abc import Hashable, Iterable

from overweave.batches.base import Batch
from overweave.batches.destinations import split_by_next_hop, split_local, with_destinations
from overweave.contract.modules import TopologyView
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.routing.base import Forward, Send, SubscriptionTable
from overweave.routing.cluster_node import ClusterNode
from overweave.routing.destination_table import DestinationTable
from overweave.routing.remote import RouteEntry
from overweave.routing.topology import DOWN, UP


class DestinationBased:
    """At one broker."""

    acyclic = False
    watches_links = True
    needs_advertisements = True
    wants_ticks = True

    def __init__(self, broker: str, number: int) -> None:
        self._member = ClusterNode(broker, number, self._choose)
        self._choice = DestinationTable()
        self._number = number
        self._advertisements: dict[str, str] = {}
        self._subscriptions = SubscriptionTable()

    def begin(self, incarnation: int) -> None:
        """See `Routing.begin`."""
        self._member.begin(incarnation)

    def overlay(self) -> TopologyView:
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

    def tick(self) -> Iterable[Send]:
        """See `Routing.tick`."""
        return self._member.tick()

    def handle(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.handle`."""
        if message.header.destinations or self._member.topology.is_neighbour(peer):
            return self._member.handle(message, peer)
        match message:
            case Advertise(id, filter) if id not in self._advertisements:
                self._advertisements[id] = peer
                return self._member.advertise(id, RouteEntry(filter))
            case Unadvertise(id) if self._advertisements.get(id) == peer:
                del self._advertisements[id]
                return self._member.unadvertise(id)
            case Subscribe(id, filter) if self._subscriptions.add(id, filter, peer):
                return self._member.subscribe(id, RouteEntry(filter))
            case Unsubscribe(id) if self._subscriptions.remove(id, peer) is not None:
                return self._member.unsubscribe(id)
            case _:
                return ()

    def _choose(self, _: str, id: str, __: RouteEntry | None) -> None:
        """Publications go to all who want them, and each broker speaks for itself."""
        self._choice.set(id, {number: stated.filter for number, stated in self._member.wanted_by(id)})

    def arriving(self, batch: Batch, origin: str | None) -> tuple[Batch | None, Batch | None]:
        """See `Routing.arriving`."""
        return (batch, None) if origin is None else split_local(batch, self._number)

    def lanes(self, origin: str | None, tag: int) -> tuple[Hashable, ...]:  # noqa: ARG002
        """See `Routing.lanes`."""
        return ()

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        if batch.has_destinations():
            return split_by_next_hop(batch, self._member.ways)
        if origin is not None:
            return self._subscriptions.route(batch, None)
        if not self._member.converged:
            return [(None, batch)]
        bound = with_destinations(batch, self._choice.destinations_of(batch))
        here = self._subscriptions.route(batch, None)
        return here if bound is None else [*here, *split_by_next_hop(bound, self._member.ways)]

    def instead(self) -> None:
        """See `Routing.instead`: nobody stands for others."""
        return

    def match_cost(self, batch: Batch, origin: str | None) -> int:
        """See `Routing.match_cost`."""
        if origin is None:
            return len(self._subscriptions) + len(self._member.subscriptions)
        here, _ = split_local(batch, self._number)
        return 0 if here is None else len(self._subscriptions)

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        return self._member.snapshot_for(neighbour)

    def learned_from(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.learned_from`: nothing holds only because a neighbour said it."""
        return ()

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._member.validate()
        self._subscriptions.validate()
        assert self._member.local_advertisements.keys() == self._advertisements.keys()
        assert len(self._member.local_subscriptions) == len(self._subscriptions)

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        remote = self._member.subscriptions
        return {
            "advertisements": len(self._advertisements) + len(self._member.advertisements),
            "subscriptions": len(self._subscriptions) + len(remote),
            "remote subscriptions": len(remote),
        }
