"""Re-export of routes between the clusters of one broker (DEST IV, algorithm 3), with suppression of longer paths.

An edge broker represents in each cluster the routes that it knows from its others, under its own id. A route carries the
clusters on its path and enters none of them again. If another edge broker announces the same advertisement into a cluster over
a shorter path, this one is suppressed there: the matching subscriptions are backup routes, and are re-exported with that flag.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from overweave.language.predicates import Filter
from overweave.language.relations import intersects
from overweave.routing.backup_paths import Path, PathTables, Source
from overweave.routing.base import Send
from overweave.routing.cluster_node import ClusterNode
from overweave.routing.cluster_state import ClusterEvents, Withdrawals
from overweave.routing.remote import RouteEntry


class ClusterExchange:
    """The routes between the clusters of one broker, and those of its clients."""

    def __init__(self, clusters: Mapping[str, ClusterNode], withdrawals: Withdrawals, hold_down_ticks: int) -> None:
        self._clusters, self._withdrawals = clusters, withdrawals
        self.client_advertisements: dict[str, RouteEntry] = {}
        self.client_subscriptions: dict[str, RouteEntry] = {}
        self.paths = PathTables(self._paths_to, self._ids, hold_down_ticks)
        #: The ids whose routes are not re-exported since they changed.
        self._changed: dict[str, None] = {}
        #: The advertisements that this broker is suppressed with, by cluster.
        self._suppressed: dict[str, set[str]] = {}
        #: Cluster and advertisement of suppressions that may end at the next tick, if there are ticks.
        self._promotion_pending: dict[tuple[str, str], None] = {}

    def events_of(self, cluster: str) -> ClusterEvents:
        """The events that a cluster reports. None is a closure: a copy of a broker must not act on the first one."""
        return ClusterEvents(partial(self._on_subscription, cluster), self._on_advertisement, partial(self._is_known, cluster))

    def on_change(self, id: str) -> None:
        """The routes of an advertisement or a subscription have changed."""
        self._changed[id] = None

    def tick(self) -> None:
        """A heartbeat period has passed."""
        self.paths.tick()
        self._promote_pending()

    def reexport(self) -> list[Send]:
        """Represent changed routes of clients and of each cluster in the other clusters, and reply to advertisements."""
        sends: list[Send] = []
        while self._changed:
            id = next(iter(self._changed))
            for node in self._clusters.values():
                self._withdrawals.advertisements.purge(node.advertisements, id)
                self._withdrawals.subscriptions.purge(node.subscriptions, id)
            del self._changed[id]
            for cluster, node in self._clusters.items():
                sends += self._reexport(cluster, node, id)
            self.paths.update(id)
        return [*sends, *(reply for node in self._clusters.values() for reply in node.replies())]

    def _reexport(self, cluster: str, node: ClusterNode, id: str) -> list[Send]:
        sends: list[Send] = []
        advertisement, before = self._best_advertisement(cluster, id), node.local_advertisements.get(id)
        if _is_changed(advertisement, before):
            sends += node.unadvertise(id) if advertisement is None else node.advertise(id, advertisement)
        self._update_preference(cluster, id, advertisement, before)
        subscription = self._best_subscription(cluster, id)
        if _is_changed(subscription, node.local_subscriptions.get(id)):
            sends += node.unsubscribe(id) if subscription is None else node.subscribe(id, subscription)
        return sends

    def validate(self) -> None:
        """Check the invariants: after each message all routes are exported."""
        assert not self._changed
        assert self._suppressed.keys() <= self._clusters.keys()
        for cluster, node in self._clusters.items():
            assert self._suppressed.get(cluster, set()) <= node.local_advertisements.keys()
            assert self.client_advertisements.keys() <= node.local_advertisements.keys()
            assert self.client_subscriptions.keys() <= node.local_subscriptions.keys()
        self.paths.validate()

    # ---- best routes

    def _best_advertisement(self, cluster: str, id: str) -> RouteEntry | None:
        """The advertisement to represent in a cluster: of a client, or of another cluster."""
        if id in self.client_advertisements:
            return self.client_advertisements[id]
        return _best(
            RouteEntry(entry.filter, (*entry.path, other), False, entry.origin)
            for other, node in self._clusters.items()
            if other != cluster
            for entry in node.advertisements.by_id(id).values()
            if cluster not in entry.path
        )

    def _best_subscription(self, cluster: str, id: str) -> RouteEntry | None:
        """The subscription to represent in a cluster: of a client, or of another cluster."""
        if id in self.client_subscriptions:
            return self.client_subscriptions[id]
        return _best(
            RouteEntry(entry.filter, (*entry.path, other), self._is_backup(other, entry), entry.origin)
            for other, node in self._clusters.items()
            if other != cluster
            for entry in node.subscriptions.by_id(id).values()
            if cluster not in entry.path
        )

    def _is_backup(self, cluster: str, subscription: RouteEntry) -> bool:
        """Whether a subscription of a cluster is a backup route: it is flagged, or all its advertisements are suppressed."""
        suppressed, advertised = self._suppressed.get(cluster), self._clusters[cluster].local_advertisements
        if subscription.backup or not suppressed:
            return subscription.backup
        return not any(entry.intersects(subscription) for id, entry in advertised.items() if id not in suppressed)

    # ---- suppression

    def _update_preference(self, cluster: str, id: str, entry: RouteEntry | None, before: RouteEntry | None) -> None:
        """Suppress an advertisement that its cluster knows by a shorter path, or end that.

        Where some are suppressed, none is promoted before the next tick: a shorter path may be in flight to here, and the
        subscriptions would be sent twice. Until then publications take a detour.
        """
        node, suppressed = self._clusters[cluster], self._suppressed.setdefault(cluster, set())
        known = node.advertisements.by_id(id).values() if entry is not None else ()
        is_longer = entry is not None and any(len(other.path) < len(entry.path) for other in known)
        may_be_late = entry is not None and bool(entry.path) and (id in suppressed or before is None)
        if may_be_late and not is_longer and suppressed and self.paths.has_ticks:
            suppressed.add(id)
            self._promotion_pending[cluster, id] = None
        elif is_longer != (id in suppressed) or (suppressed and _is_changed(entry, before)):
            self._set_suppressed(cluster, id, is_longer, [known.filter for known in (entry, before) if known is not None])

    def _set_suppressed(self, cluster: str, id: str, to: bool, filters: list[Filter]) -> None:
        """Set whether an advertisement is suppressed, and re-export the subscriptions that intersect it."""
        node, suppressed = self._clusters[cluster], self._suppressed[cluster]
        (suppressed.add if to else suppressed.discard)(id)
        for subscription in node.subscriptions.ids():
            entries = node.subscriptions.by_id(subscription).values()
            if any(intersects(filter, entry.filter) for filter in filters for entry in entries):
                self._changed[subscription] = None
                if to:
                    self.paths.mark_lost(subscription)

    def _promote_pending(self) -> None:
        """End the suppressions for which no shorter path has arrived."""
        pending, self._promotion_pending = self._promotion_pending, {}
        for cluster, id in pending:
            node = self._clusters[cluster]
            entry = node.local_advertisements.get(id)
            if entry is not None and all(len(known.path) >= len(entry.path) for known in node.advertisements.by_id(id).values()):
                self._set_suppressed(cluster, id, False, [entry.filter])

    # ---- events of clusters

    def _on_advertisement(self, broker: str, id: str, before: RouteEntry | None) -> None:  # noqa: ARG002
        """An advertisement that a broker represents in a cluster has changed."""
        self._changed[id] = None

    def _on_subscription(self, cluster: str, broker: str, id: str, before: RouteEntry | None) -> None:
        """A subscription that a broker represents in a cluster has changed."""
        self._changed[id] = None
        node = self._clusters[cluster]
        number, now = node.topology.number_of(broker), node.subscriptions.by_id(id).get(broker)
        if before is None or number is None or self._withdrawals.subscriptions.covers(id, before):
            return
        if now is None or now.backup > before.backup:
            self.paths.mark_lost(id, number)

    def _is_known(self, cluster: str, id: str, advertisement: RouteEntry) -> bool:
        """Whether the subscriptions of all other clusters for an advertisement of one cluster are known.

        No wait forms a cycle: a broker waits only for re-exports of its own, on a path that is longer each time.
        """
        return not self._changed and all(
            node.topology.complete and not (node.awaits(id) and _extends(node.local_advertisements[id], advertisement, cluster))
            for other, node in self._clusters.items()
            if other != cluster
        )

    # ---- paths

    def _paths_to(self, id: str, source: Source) -> list[Path]:
        """The paths to a subscription of other brokers, for publications of a cluster or of clients."""
        if id in self.client_subscriptions:
            return []
        return [
            Path(number, entry.filter, len(entry.path), self._is_backup(cluster, entry))
            for cluster, node in self._clusters.items()
            if cluster != source
            for number, entry in node.subscribers_of(id)
            if source not in entry.path
        ]

    def _ids(self) -> set[str]:
        return {id for node in self._clusters.values() for id in node.subscriptions.ids()}


def _best(entries: Iterable[RouteEntry]) -> RouteEntry | None:
    """The entry with the shortest path; a backup only if there is no other."""
    return min(entries, key=lambda entry: (entry.backup, len(entry.path), entry.path), default=None)


def _extends(exported: RouteEntry, advertisement: RouteEntry, cluster: str) -> bool:
    """Whether an exported route may be the re-export of an advertisement of a cluster."""
    return cluster in exported.path and len(exported.path) > len(advertisement.path)


def _is_changed(entry: RouteEntry | None, before: RouteEntry | None) -> bool:
    """Whether two entries differ in anything but their epochs."""
    return (entry and entry[:4]) != (before and before[:4])
