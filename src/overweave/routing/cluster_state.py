"""The state of one broker in a cluster: local and remote tables, known peers, outstanding replies (DEST III-A)."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from overweave.routing.messages import SnapshotEntry
from overweave.routing.remote import RemoteTable, RouteEntry, Tombstones
from overweave.routing.replies import Replies
from overweave.routing.topology import Topology

#: Called with a broker, an id, and the entry before the change.
Changed = Callable[[str, str, RouteEntry | None], None]


def _ignore(_: str, __: str, ___: RouteEntry | None) -> None:
    pass


def _always(_: str, __: RouteEntry) -> bool:
    return True


class ClusterEvents(NamedTuple):
    """Changes in the remote tables of a cluster, and whether the subscriptions for an advertisement are known."""

    subscription_changed: Changed
    advertisement_changed: Changed = _ignore
    is_known: Callable[[str, RouteEntry], bool] = _always


class Withdrawals(NamedTuple):
    """The tombstones of advertisements and subscriptions that clients have withdrawn; all clusters of a broker share them."""

    advertisements: Tombstones
    subscriptions: Tombstones


class ClusterState:
    """The tables of one broker in a cluster, or in the whole overlay (``cluster`` is None)."""

    def __init__(
        self, topology: Topology, cluster: str | None, events: ClusterEvents, withdrawals: Withdrawals | None = None
    ) -> None:
        self.topology, self.cluster, self.events = topology, cluster, events
        self.withdrawals = withdrawals or Withdrawals(Tombstones(), Tombstones())
        self.local_advertisements: dict[str, RouteEntry] = {}
        self.local_subscriptions: dict[str, RouteEntry] = {}
        #: R-SRT and R-PRT.
        self.advertisements = RemoteTable(events.advertisement_changed)
        self.subscriptions = RemoteTable(events.subscription_changed)
        #: The peers that know this broker, by their incarnations, and those without a snapshot.
        self.known_peers: dict[str, int] = {}
        self.unsynced: set[str] = set()
        self.replies = Replies()

    def advertisers_of(self, subscription: RouteEntry) -> list[str]:
        """The brokers with an advertisement that intersects a subscription."""
        return [
            broker
            for broker in self.advertisements.brokers()
            if any_intersects(self.advertisements.by_broker(broker), subscription)
        ]

    def drop_unadvertised(self, withdrawn: RouteEntry) -> None:
        """Drop the remote subscriptions that only a withdrawn advertisement intersected."""
        dropped = [
            (broker, id)
            for broker in self.subscriptions.brokers()
            for id, subscription in self.subscriptions.by_broker(broker).items()
            if withdrawn.intersects(subscription) and not any_intersects(self.local_advertisements, subscription)
        ]
        for broker, id in dropped:
            self.subscriptions.drop(broker, id)

    def validate(self) -> None:
        """Check the invariants."""
        self.topology.validate()
        self.advertisements.validate()
        self.subscriptions.validate()
        assert self.unsynced <= self.known_peers.keys()
        assert {*self.advertisements.brokers(), *self.subscriptions.brokers()} <= self.known_peers.keys()


def any_intersects(advertisements: Mapping[str, RouteEntry], subscription: RouteEntry) -> bool:
    """Whether one of some advertisements intersects a subscription."""
    return any(advertisement.intersects(subscription) for advertisement in advertisements.values())


def snapshot_entries(entries: Mapping[str, RouteEntry]) -> tuple[SnapshotEntry, ...]:
    """A table as entries of a snapshot."""
    return tuple((id, entry.filter, entry.path, entry.backup, entry.origin) for id, entry in entries.items())
