"""Matching at edge brokers and routing by destination within clusters, MERC (DEST IV).

The overlay is divided into clusters, each of which routes by destination on its own. Brokers of several clusters (edge brokers)
match publications of one cluster against the subscriptions of the others (`ClusterExchange`). Publications take all shortest
paths between clusters, and later copies are dropped. Backup paths are taken only where no other is left, by publications that
are on a detour from then on.

If a broker no longer represents a subscription, because it has failed or has lost its own path, publications in flight to it are
matched again by the brokers that buffer them, and redirected. So nothing is lost while there is a path.
"""

from collections.abc import Hashable, Iterable, Iterator
from functools import partial

from overweave.batches.base import Batch
from overweave.batches.destinations import split_by_next_hop, split_local
from overweave.language.headers import Epoch, Origin
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.routing.backup_paths import DETOUR, PathSet, Source
from overweave.routing.base import UNROUTABLE, Engine, Forward, Redirect, Send, SubscriptionTable
from overweave.routing.cluster_exchange import ClusterExchange
from overweave.routing.cluster_next_hops import MergedNextHops
from overweave.routing.cluster_node import ClusterNode
from overweave.routing.cluster_state import Withdrawals
from overweave.routing.clusters import cluster_components, cluster_of_link
from overweave.routing.ingress import ByCluster
from overweave.routing.link_flooding import known_incarnation
from overweave.routing.options import ClusterOptions
from overweave.routing.remote import RouteEntry, Tombstones
from overweave.routing.sync import NoSync
from overweave.routing.topology import DOWN, UP, Topology


class Merc:
    """The protocol at one broker: its clients, and its node in each of its clusters."""

    #: A broker knows the topologies of its own clusters only.
    topology = None

    def __init__(self, broker: str, overlay: Overlay, incarnation: int = 1, options: ClusterOptions | None = None) -> None:
        self._broker, self._overlay, self._incarnation = broker, overlay, incarnation
        self._number = overlay.position(broker)
        self._withdrawals = Withdrawals(Tombstones(), Tombstones())
        #: The epoch of the last statement of a client.
        self._epoch = Epoch(incarnation)
        self._clusters: dict[str, ClusterNode] = {}
        self._exchange = ClusterExchange(self._clusters, self._withdrawals, (options or ClusterOptions()).hold_down_ticks)
        for cluster in cluster_components(overlay)[broker].values():
            self._join(cluster)
        self._links: dict[str, ClusterNode] = {}
        #: The client of each advertisement.
        self._advertisers: dict[str, str] = {}
        self._subscriptions = SubscriptionTable()
        self._next_hops = MergedNextHops(self._clusters)

    def engine(self) -> Engine:
        """The protocol with its capabilities."""
        ingress = ByCluster.at(self._number, self._dedup_scopes)
        return Engine(
            self,
            ingress,
            NoSync,
            self,
            self,
            match_cost=self.match_cost,
            needs_advertisements=True,
            known_incarnation=known_incarnation,
        )

    def _join(self, cluster: str) -> None:
        topology, events = Topology(self._broker, self._number, self._incarnation), self._exchange.events_of(cluster)
        self._clusters[cluster] = ClusterNode(topology, events, self._incarnation, cluster, self._withdrawals)

    # ---- links

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:  # noqa: ARG002
        """See `Routing.add_neighbour`."""
        shared = cluster_of_link(self._overlay, self._broker, neighbour)
        cluster = cluster_components(self._overlay)[self._broker].get(shared, shared)
        if cluster not in self._clusters:
            self._join(cluster)
        self._links[neighbour] = self._clusters[cluster]
        self._links[neighbour].topology.add(neighbour)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        return [*self._links.pop(neighbour).unlink(neighbour), *self._exchange.reexport()]

    def link_up(self, neighbour: str) -> Iterable[Send]:
        """See `LinkEvents.link_up`."""
        return [*self._links[neighbour].link(neighbour, UP), *self._exchange.reexport()]

    def link_down(self, neighbour: str) -> Iterable[Send]:
        """See `LinkEvents.link_down`."""
        return [*self._links[neighbour].link(neighbour, DOWN), *self._exchange.reexport()]

    @property
    def synced(self) -> bool:
        """See `LinkEvents.synced`."""
        return all(node.synced for node in self._clusters.values())

    def tick(self) -> Iterable[Send]:
        """See `LinkEvents.tick`."""
        self._exchange.tick()
        return [*(send for node in self._clusters.values() for send in node.tick()), *self._exchange.reexport()]

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        return self._links[neighbour].snapshot_for(neighbour)

    def learned_from(self, neighbour: str) -> Iterable[Control]:  # noqa: ARG002
        """See `Routing.learned_from`: no state depends on the neighbour that forwarded it."""
        return ()

    # ---- control

    def on_control(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.on_control`."""
        node = self._clusters.get(message.header.cluster or "")
        if node is not None:
            return [*node.on_control(message, peer), *self._exchange.reexport()]
        self._on_client_control(message, peer)
        return self._exchange.reexport()

    def _on_client_control(self, message: Control, client: str) -> None:
        """Apply a statement of a client; it is exported into all clusters."""
        self._epoch = self._epoch.next()
        origin = Origin(self._broker, self._epoch)
        match message:
            case Advertise(id, filter) if id not in self._advertisers:
                self._advertisers[id] = client
                self._exchange.client_advertisements[id] = RouteEntry(filter, origin=origin)
            case Unadvertise(id) if self._advertisers.get(id) == client:
                del self._advertisers[id], self._exchange.client_advertisements[id]
                self._withdrawals.advertisements.add(id, origin)
            case Subscribe(id, filter) if self._subscriptions.add(id, filter, client):
                self._exchange.client_subscriptions[id] = RouteEntry(filter, origin=origin)
            case Unsubscribe(id) if self._subscriptions.remove(id, client) is not None:
                del self._exchange.client_subscriptions[id]
                self._withdrawals.subscriptions.add(id, origin)
            case _:
                return
        self._exchange.on_change(message.id)

    # ---- publications

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        source = None if origin is None else self._links.get(origin)
        if batch.has_destinations():
            return self._split(batch, source)
        others = self._other_clusters(origin)
        if not others:
            return self._subscriptions.route(batch, None)
        paths = self._exchange.paths.of(self._source(origin))  # its losses count from now on, also while this batch is deferred
        if not all(node.converged for node in others) or (source is not None and not source.synced):
            return [(UNROUTABLE, batch)]
        local = self._subscriptions.route(batch, None)
        remote = paths.with_destinations(batch, backups=origin is None or bool(batch.tag))
        through = others[0] if len(others) == 1 else None
        return [*local, *(forward for some in remote for forward in self._split(some, through))]

    def _split(self, batch: Batch, node: ClusterNode | None) -> list[Forward]:
        """Rows by next hop, within one cluster as far as possible: the link shows in which cluster a publication travels."""
        if node is None or len(self._clusters) == 1:
            return split_by_next_hop(batch, self._next_hops.get())
        forwards: list[Forward] = []
        for hop, some in split_by_next_hop(batch, node.next_hops):
            forwards += [(hop, some)] if hop is not None else split_by_next_hop(some, self._next_hops.get())
        return forwards

    def redirects(self) -> Redirect | None:
        """See `Redirector.redirects`: the brokers that lead to the same subscription now, once they are known."""
        paths = self._exchange.paths
        if not paths.has_lost:
            return None
        found = paths.redirects(converged=all(node.converged for node in self._clusters.values()))
        return partial(self._redirect, found) if found else None

    def _redirect(self, found: dict[Source, dict[int, PathSet]], batch: Batch, origin: str | None) -> Iterator[Batch]:
        for number, paths in found.get(self._source(origin), {}).items():
            some, _ = split_local(batch, number)
            if some is not None:
                # On a detour: the next broker may have seen it, before it led to the subscription.
                yield from paths.with_destinations(some.with_tag(DETOUR), backups=True)

    def match_cost(self, batch: Batch, origin: str | None) -> int:
        """See `Engine.match_cost`."""
        if origin is not None and split_local(batch, self._number)[0] is None:
            return 0
        if not self._other_clusters(origin):
            return len(self._subscriptions)
        paths, backups = self._exchange.paths.of(self._source(origin)), origin is None or bool(batch.tag)
        return len(self._subscriptions) + len(paths.main) + (len(paths.backup) if backups else 0)

    def _dedup_scopes(self, origin: str | None, tag: int) -> tuple[Hashable, ...]:
        """The cluster that a batch comes from, and its tag; for a batch of a client, all clusters."""
        node = None if origin is None else self._links.get(origin)
        return tuple((cluster, 0) for cluster in self._clusters) if node is None else ((node.cluster, tag),)

    def _source(self, origin: str | None) -> Source:
        return None if origin is None else self._links[origin].cluster

    def _other_clusters(self, origin: str | None) -> list[ClusterNode]:
        """The clusters that publications of a neighbour or a client have not been in."""
        return [node for node in self._clusters.values() if origin is None or node is not self._links.get(origin)]

    # ---- state

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._subscriptions.validate()
        assert self._exchange.client_subscriptions.keys() == {id for id, _, _ in self._subscriptions.items()}
        assert self._exchange.client_advertisements.keys() == self._advertisers.keys()
        self._exchange.validate()
        for node in self._clusters.values():
            node.validate()
        assert all(node in self._clusters.values() for node in self._links.values())

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        nodes = self._clusters.values()
        remote = sum(len(node.subscriptions) for node in nodes)
        return {
            "advertisements": len(self._advertisers) + sum(len(node.advertisements) for node in nodes),
            "subscriptions": len(self._subscriptions) + remote,
            "remote subscriptions": remote,
        }
