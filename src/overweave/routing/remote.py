"""The remote tables of destination-based routing, by broker (R-SRT and R-PRT, DEST III-A).

Updates carry epochs of their senders, and may overtake each other when paths change. An entry is in force unless a later update
about the same id is known. Withdrawals are remembered for a while, because an earlier update may still arrive.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from overweave.language.headers import NEVER, Epoch, Origin
from overweave.language.predicates import Filter
from overweave.language.relations import intersects
from overweave.routing.messages import SnapshotEntry

_TOMBSTONES_MAX = 65_536


class RouteEntry(NamedTuple):
    """A filter that a broker represents, with its path through clusters (DEST IV), and the epoch of its update.

    A subscription is a backup if its publications arrive by another path as long as that is up. The origin is the broker of the
    client.
    """

    filter: Filter
    path: tuple[str, ...] = ()
    backup: bool = False
    origin: Origin | None = None
    epoch: Epoch = Epoch(0)

    def intersects(self, other: "RouteEntry") -> bool:
        """Whether an advertisement and a subscription intersect, on paths that share no cluster."""
        return set(self.path).isdisjoint(other.path) and intersects(self.filter, other.filter)


class RemoteTable:
    """The entries of each broker by id; ``changed`` is called with broker, id and former entry.

    >>> from overweave.language.syntax import parse_filter
    >>> table, entry = RemoteTable(lambda *_: None), RouteEntry(parse_filter("[x,>,1]"), epoch=Epoch(1, 5))
    >>> table.add("B2", "s1", entry), table.remove("B2", "s1", Epoch(1, 6)), table.add("B2", "s1", entry)
    (True, True, False)
    """

    def __init__(self, changed: Callable[[str, str, RouteEntry | None], None]) -> None:
        self._changed = changed
        self._by_broker: dict[str, dict[str, RouteEntry]] = {}
        self._by_id: dict[str, dict[str, RouteEntry]] = {}
        self._tombstones: dict[tuple[str, str], Epoch] = {}
        #: The epoch of the last snapshot of each broker.
        self._snapshot_epochs: dict[str, Epoch] = {}

    def __len__(self) -> int:
        return sum(map(len, self._by_broker.values()))

    def add(self, broker: str, id: str, entry: RouteEntry) -> bool:
        """Add an entry; False if a later update is known."""
        known = self._by_broker.get(broker, {}).get(id)
        tombstone = self._tombstones.get((broker, id), NEVER)
        latest = max(tombstone, self._snapshot_epochs.get(broker, NEVER), NEVER if known is None else known.epoch)
        if latest >= entry.epoch:
            return False
        self._by_broker.setdefault(broker, {})[id] = entry
        self._by_id.setdefault(id, {})[broker] = entry
        self._changed(broker, id, known)
        return True

    def remove(self, broker: str, id: str, epoch: Epoch) -> bool:
        """Withdraw an entry; False if there is none, or a later one."""
        self._tombstones[broker, id] = max(epoch, self._tombstones.get((broker, id), NEVER))
        if len(self._tombstones) > _TOMBSTONES_MAX:
            del self._tombstones[next(iter(self._tombstones))]
        known = self._by_broker.get(broker, {}).get(id)
        if known is None or known.epoch > epoch:
            return False
        self.drop(broker, id)
        return True

    def replace(
        self, broker: str, entries: Iterable[SnapshotEntry], epoch: Epoch, among: Callable[[RouteEntry], bool] | None = None
    ) -> None:
        """Replace the entries of a broker up to an epoch by a snapshot, all or those ``among`` some."""
        snapshot = {entry[0]: RouteEntry(*entry[1:], epoch) for entry in entries}
        for id, entry in list(self.by_broker(broker).items()):
            if entry.epoch <= epoch and id not in snapshot and (among is None or among(entry)):
                self.drop(broker, id)
        for id, entry in snapshot.items():
            self.add(broker, id, entry)
        if among is None:
            self._snapshot_epochs[broker] = max(epoch, self._snapshot_epochs.get(broker, NEVER))

    def drop(self, broker: str, id: str) -> None:
        """Forget one entry without a tombstone."""
        before = self._by_broker[broker][id]
        for table, key, other in ((self._by_broker, broker, id), (self._by_id, id, broker)):
            del table[key][other]
            if not table[key]:
                del table[key]
        self._changed(broker, id, before)

    def forget(self, broker: str) -> None:
        """Forget all entries of a broker."""
        for id in list(self.by_broker(broker)):
            self.drop(broker, id)

    def validate(self) -> None:
        """Check the invariants."""
        entries = {(broker, id): entry for broker, known in self._by_broker.items() for id, entry in known.items()}
        assert entries == {(broker, id): entry for id, known in self._by_id.items() for broker, entry in known.items()}
        assert all(self._by_broker.values())
        assert all(self._by_id.values())

    def by_broker(self, broker: str) -> Mapping[str, RouteEntry]:
        """The entries of one broker, by id."""
        return self._by_broker.get(broker, {})

    def brokers(self) -> list[str]:
        """The brokers with entries."""
        return list(self._by_broker)

    def by_id(self, id: str) -> Mapping[str, RouteEntry]:
        """The entries of one id, by broker."""
        return self._by_id.get(id, {})

    def ids(self) -> Iterable[str]:
        """The ids with entries."""
        return self._by_id.keys()


class Tombstones:
    """The statements that clients have withdrawn, by id and origin: updates about them on other paths are void.

    >>> from overweave.language.syntax import parse_filter
    >>> tombstones, origin = Tombstones(), Origin("B1", Epoch(1, 7))
    >>> tombstones.add("s", origin), tombstones.add("s", origin)
    (True, False)
    >>> entry = RouteEntry(parse_filter("[x,>,1]"), origin=origin)
    >>> tombstones.covers("s", entry), tombstones.covers("s", entry._replace(origin=Origin("B1", Epoch(1, 8))))
    (True, False)
    """

    def __init__(self) -> None:
        self._latest: dict[tuple[str, str], Epoch] = {}

    def add(self, id: str, origin: Origin) -> bool:
        """Add a withdrawal; whether it is new."""
        key = id, origin.broker
        if self._latest.get(key, NEVER) >= origin.epoch:
            return False
        self._latest[key] = origin.epoch
        if len(self._latest) > _TOMBSTONES_MAX:
            del self._latest[next(iter(self._latest))]
        return True

    def covers(self, id: str, entry: RouteEntry) -> bool:
        """Whether an entry is withdrawn."""
        return entry.origin is not None and self._latest.get((id, entry.origin.broker), NEVER) >= entry.origin.epoch

    def purge(self, table: RemoteTable, id: str) -> None:
        """Drop the withdrawn entries of an id from a table."""
        for broker, entry in list(table.by_id(id).items()):
            if self.covers(id, entry):
                table.drop(broker, id)

    def of(self, id: str, entry: RouteEntry) -> Origin | None:
        """The origin to withdraw an entry everywhere with; None: only this path to it has ended."""
        return entry.origin if self.covers(id, entry) else None
