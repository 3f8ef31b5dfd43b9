"""Destination-based routing, D-DBR (DEST III): a publication is matched where it enters and gets the list of its destinations.

It is matched again only where it is delivered; brokers between read the list alone. The local tables (L-SRT, L-PRT) are here, the
remote ones (R-SRT, R-PRT) and the multicasting layer in `ClusterNode`.
"""

from collections.abc import Iterable

from overweave.batches.base import Batch
from overweave.batches.destinations import split_by_next_hop, split_local, with_destinations
from overweave.contract.modules import TopologyView
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.overlay.parts import LinkKind
from overweave.routing.base import UNROUTABLE, Engine, Forward, Send, SubscriptionTable
from overweave.routing.cluster_node import ClusterNode
from overweave.routing.cluster_state import ClusterEvents
from overweave.routing.destination_table import DestinationTable
from overweave.routing.ingress import ByDestination
from overweave.routing.link_flooding import known_incarnation
from overweave.routing.remote import RouteEntry
from overweave.routing.sync import NoSync
from overweave.routing.topology import DOWN, UP, Topology


class DestinationBased:
    """The protocol at one broker."""

    def __init__(self, broker: str, number: int, incarnation: int = 1) -> None:
        self._node = ClusterNode(Topology(broker, number, incarnation), ClusterEvents(self._update_destinations), incarnation)
        self._subscribers_by_id = DestinationTable()
        self._number = number
        self._local_advertisements: dict[str, str] = {}
        self._local_subscriptions = SubscriptionTable()

    def engine(self) -> Engine:
        """The protocol with its capabilities."""
        return Engine(
            self,
            ByDestination.at(self._number),
            NoSync,
            links=self,
            match_cost=self.match_cost,
            needs_advertisements=True,
            known_incarnation=known_incarnation,
        )

    @property
    def synced(self) -> bool:
        """See `LinkEvents.synced`."""
        return self._node.synced

    @property
    def topology(self) -> TopologyView:
        """See `LinkEvents.topology`."""
        return self._node.topology

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:  # noqa: ARG002
        """See `Routing.add_neighbour`."""
        self._node.topology.add(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        return self._node.unlink(neighbour)

    def link_up(self, neighbour: str) -> Iterable[Send]:
        """See `LinkEvents.link_up`."""
        return self._node.link(neighbour, UP)

    def link_down(self, neighbour: str) -> Iterable[Send]:
        """See `LinkEvents.link_down`."""
        return self._node.link(neighbour, DOWN)

    def tick(self) -> Iterable[Send]:
        """See `LinkEvents.tick`."""
        return self._node.tick()

    def on_control(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.on_control`."""
        if message.header.destinations or self._node.topology.is_neighbour(peer):
            return self._node.on_control(message, peer)
        match message:
            case Advertise(id, filter) if id not in self._local_advertisements:
                self._local_advertisements[id] = peer
                return self._node.advertise(id, RouteEntry(filter))
            case Unadvertise(id) if self._local_advertisements.get(id) == peer:
                del self._local_advertisements[id]
                return self._node.unadvertise(id)
            case Subscribe(id, filter) if self._local_subscriptions.add(id, filter, peer):
                return self._node.subscribe(id, RouteEntry(filter))
            case Unsubscribe(id) if self._local_subscriptions.remove(id, peer) is not None:
                return self._node.unsubscribe(id)
            case _:
                return ()

    def _update_destinations(self, _: str, id: str, __: RouteEntry | None) -> None:
        """All brokers with a subscription are its destinations."""
        self._subscribers_by_id.set(id, {number: entry.filter for number, entry in self._node.subscribers_of(id)})

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        if batch.has_destinations():
            return split_by_next_hop(batch, self._node.next_hops)
        if origin is not None:
            return self._local_subscriptions.route(batch, None)
        if not self._node.converged:
            return [(UNROUTABLE, batch)]
        remote = with_destinations(batch, self._subscribers_by_id.destinations_of(batch))
        local = self._local_subscriptions.route(batch, None)
        return local if remote is None else [*local, *split_by_next_hop(remote, self._node.next_hops)]

    def match_cost(self, batch: Batch, origin: str | None) -> int:
        """See `Engine.match_cost`."""
        if origin is None:
            return len(self._local_subscriptions) + len(self._node.subscriptions)
        local, _ = split_local(batch, self._number)
        return 0 if local is None else len(self._local_subscriptions)

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        return self._node.snapshot_for(neighbour)

    def learned_from(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.learned_from`: no state depends on the neighbour that forwarded it."""
        return ()

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._node.validate()
        self._local_subscriptions.validate()
        assert self._node.local_advertisements.keys() == self._local_advertisements.keys()
        assert len(self._node.local_subscriptions) == len(self._local_subscriptions)

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        remote = self._node.subscriptions
        return {
            "advertisements": len(self._local_advertisements) + len(self._node.advertisements),
            "subscriptions": len(self._local_subscriptions) + len(remote),
            "remote subscriptions": len(remote),
        }
