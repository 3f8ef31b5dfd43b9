"""One broker of a cluster that routes by destination: the matching layer over the multicasting layer (DEST III).

Every message between brokers carries its destination list, and is split where paths part. Advertisements go to all brokers,
subscriptions to those with advertisements that they intersect. Two brokers that become reachable to each other exchange
snapshots of their advertisements (`StateSnapshot`), and updates from then on.
"""

from overweave.batches.destinations import NextHops, bits_of
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.routing.base import Send
from overweave.routing.cluster_state import ClusterEvents, ClusterState, Withdrawals
from overweave.routing.cluster_updates import ClusterUpdates
from overweave.routing.link_flooding import LinkFlooding
from overweave.routing.messages import LinkState
from overweave.routing.multicast import Multicast
from overweave.routing.remote import RemoteTable, RouteEntry
from overweave.routing.topology import Topology


class ClusterNode:
    """One broker in a cluster, or in the whole overlay (``cluster`` is None).

    In a cluster each advertisement gets a reply with the subscriptions for it, as soon as ``events.is_known`` holds.
    """

    def __init__(
        self,
        topology: Topology,
        events: ClusterEvents,
        incarnation: int,
        cluster: str | None = None,
        withdrawals: Withdrawals | None = None,
    ) -> None:
        self.topology, self.cluster = topology, cluster
        self._state = ClusterState(topology, cluster, events, withdrawals)
        self._flooding = LinkFlooding(topology, cluster)
        self._multicast = Multicast(topology, cluster, incarnation)
        self._updates = ClusterUpdates(self._state, self._multicast)
        #: The reachable brokers, as they were when peers were compared with them last.
        self._reachable: dict[str, int] = {}

    # ---- tables

    @property
    def advertisements(self) -> RemoteTable:
        """The advertisements of other brokers (R-SRT)."""
        return self._state.advertisements

    @property
    def subscriptions(self) -> RemoteTable:
        """The subscriptions of other brokers (R-PRT)."""
        return self._state.subscriptions

    @property
    def local_advertisements(self) -> dict[str, RouteEntry]:
        """The advertisements that this broker represents."""
        return self._state.local_advertisements

    @property
    def local_subscriptions(self) -> dict[str, RouteEntry]:
        """The subscriptions that this broker represents."""
        return self._state.local_subscriptions

    @property
    def next_hops(self) -> NextHops:
        """The next hops to all reachable brokers."""
        return self.topology.next_hops

    @property
    def converged(self) -> bool:
        """Whether the subscriptions of all reachable brokers are known."""
        return self._state.replies.complete and self.topology.complete

    @property
    def synced(self) -> bool:
        """Whether the advertisements of all reachable brokers are known."""
        return not self._state.unsynced and self.topology.complete

    def awaits(self, id: str) -> bool:
        """Whether some broker has not replied to an advertisement."""
        return self._state.replies.awaits(id)

    def subscribers_of(self, id: str) -> list[tuple[int, RouteEntry]]:
        """The numbers of the other brokers that represent a subscription, with their entries."""
        return [
            (number, entry)
            for broker, entry in self.subscriptions.by_id(id).items()
            if (number := self.topology.number_of(broker)) is not None
        ]

    # ---- links

    def link(self, neighbour: str, state: str) -> list[Send]:
        """A link is up or down."""
        sends = self._flooding.link(neighbour, state)
        return [] if sends is None else [*sends, *self._on_membership_change()]

    def tick(self) -> list[Send]:
        """A heartbeat period has passed: pending links are waited for no longer."""
        return self._flood_links() if self._flooding.links_deferred else []

    def unlink(self, neighbour: str) -> list[Send]:
        """A link is removed."""
        self.topology.remove(neighbour)
        return self._flood_links()

    def snapshot_for(self, neighbour: str) -> list[Control]:
        """The known link states for a neighbour."""
        return self._flooding.snapshot_for(neighbour)

    def _flood_links(self) -> list[Send]:
        return [*self._flooding.flood_own(), *self._on_membership_change()]

    # ---- local changes

    def advertise(self, id: str, entry: RouteEntry) -> list[Send]:
        """Represent an advertisement, new or changed."""
        state, before = self._state, self.local_advertisements.get(id)
        self.local_advertisements[id] = entry
        if before is not None:
            state.drop_unadvertised(before)
        sends = self._multicast.send(Advertise(id, entry.filter), state.known_peers, entry)
        state.replies.advertised(id, self._multicast.epoch)
        if self.cluster is not None:
            state.replies.expect(id, state.known_peers, self._multicast.epoch)
        return sends

    def unadvertise(self, id: str) -> list[Send]:
        """Represent an advertisement no longer."""
        state, withdrawn = self._state, self.local_advertisements.pop(id)
        state.replies.withdrawn(id)
        state.drop_unadvertised(withdrawn)
        origin = state.withdrawals.advertisements.of(id, withdrawn)
        return self._multicast.send(Unadvertise(id), state.known_peers, origin=origin)

    def subscribe(self, id: str, entry: RouteEntry) -> list[Send]:
        """Represent a subscription, new or changed."""
        before, advertisers = self.local_subscriptions.get(id), self._state.advertisers_of(entry)
        self.local_subscriptions[id] = entry
        sends = self._multicast.send(Subscribe(id, entry.filter), advertisers, entry)
        if before is None:
            return sends
        # Brokers with the earlier version that the new one does not concern get a withdrawal.
        former = [broker for broker in self._state.advertisers_of(before) if broker not in advertisers]
        return [*sends, *(self._multicast.send(Unsubscribe(id), former) if former else [])]

    def unsubscribe(self, id: str) -> list[Send]:
        """Represent a subscription no longer."""
        withdrawn = self.local_subscriptions.pop(id)
        origin = self._state.withdrawals.subscriptions.of(id, withdrawn)
        return self._multicast.send(Unsubscribe(id), self._state.advertisers_of(withdrawn), origin=origin)

    # ---- messages of other brokers

    def on_control(self, message: Control, peer: str) -> list[Send]:
        """Apply or forward a message of a neighbour, or both."""
        if isinstance(message, LinkState):
            if not self.topology.accept(message):
                return []
            return [*self._flooding.flood(message, peer), *self._on_membership_change()]
        own, destinations = 1 << self.topology.number, bits_of(message.header.destinations)
        sends = self._multicast.forward(message, destinations & ~own)
        return [*sends, *self._updates.apply(message)] if destinations & own else sends

    def replies(self) -> list[Send]:
        """The replies that are due and whose subscriptions are known."""
        return self._updates.replies()

    # ---- membership

    def _on_membership_change(self) -> list[Send]:
        """Send snapshots to newly reachable brokers and forget unreachable ones, after a change of the topology."""
        state, reachable = self._state, self.topology.members
        if reachable is self._reachable:
            return []
        self._reachable = reachable
        for broker in [broker for broker in state.known_peers if broker not in reachable]:
            self._forget(broker)
        newcomers = [broker for broker, incarnation in reachable.items() if state.known_peers.get(broker) != incarnation]
        if not newcomers:
            return []
        for broker in newcomers:
            if broker in state.known_peers:
                self._forget_replies(broker)  # the state of its earlier incarnation is in force until its snapshot arrives
            else:
                self._forget(broker)
            state.known_peers[broker] = reachable[broker]
            state.unsynced.add(broker)
        sends = self._updates.send_snapshot(newcomers, asks=True)
        return [*sends, *self._updates.apply_out_of_order()]

    def _forget(self, broker: str) -> None:
        self._state.known_peers.pop(broker, None)
        self._state.unsynced.discard(broker)
        self._forget_replies(broker)
        self._state.advertisements.forget(broker)
        self._state.subscriptions.forget(broker)

    def _forget_replies(self, broker: str) -> None:
        self._state.replies.forget(broker, self._multicast.epoch)
        self._updates.forget_replies(broker)

    def validate(self) -> None:
        """Check the invariants."""
        self._state.validate()
        self._state.replies.validate(self.local_advertisements, self._multicast.epoch)
