"""Initial synchronisation with neighbours: end-of-table markers (BGP: End-of-RIB), and who has sent them (decision 0004).

On a tree, markers in one direction wait for those from behind, and subscriptions for the advertisements ahead, so no wait forms a
cycle, whoever restarts. On a graph a broker waits until each neighbour is synchronised, or has just started and sent its table.
"""

import enum
from collections.abc import Callable, Set
from typing import Protocol

import msgspec

from overweave.contract.frames import AdvertisementsEnd, SyncEnd
from overweave.language.headers import FIRST_EPOCH, OverlayEpoch

#: The ticks for which brokers that have all just started wait for each other, and until their subscriptions are in force.
_WAIT_TICKS, HOLD_TICKS = 4, 4


#: A marker at the end of a table.
Marker = AdvertisementsEnd | SyncEnd


class SyncKind(enum.Enum):
    """The overlays that a synchronisation is for, which decides how control messages settle (`overweave.broker.settlement`)."""

    TREE = enum.auto()
    GRAPH = enum.auto()
    #: The protocol synchronises itself by addressed messages.
    BY_ROUTING = enum.auto()


class NeighbourSync(Protocol):
    """The synchronisation of one broker with its neighbours."""

    kind: SyncKind
    #: The neighbours whose subscriptions are incomplete.
    unsynced: set[str]

    def add(self, neighbour: str) -> None:
        """Add a neighbour without state."""

    def remove(self, neighbour: str) -> None:
        """Remove a neighbour; nothing waits for it."""

    def reset(self, neighbour: str) -> None:
        """A neighbour has restarted: it needs a snapshot."""

    def announced(self, neighbour: str, epoch: OverlayEpoch = FIRST_EPOCH) -> None:
        """A neighbour has sent all advertisements of an epoch of the overlay."""

    def synced(self, neighbour: str, epoch: OverlayEpoch = FIRST_EPOCH) -> None:
        """A neighbour has sent all subscriptions of an epoch."""

    def tick(self) -> None:
        """A heartbeat period has passed."""

    def synced_except(self, peer: str, epoch: OverlayEpoch | None = None) -> bool:
        """Whether all neighbours but ``peer`` are synchronised in an epoch, or in all epochs."""

    def pending_markers(self, neighbour: str) -> list[Marker]:
        """The markers that are due for a neighbour; each is returned once."""

    def validate(self) -> None:
        """Check the invariants."""


#: A synchronisation, given whether there are ticks.
MakeSync = Callable[[bool], NeighbourSync]


class TreeSync:
    """Synchronisation on overlays without cycles."""

    kind = SyncKind.TREE

    def __init__(self, ticks: bool = False) -> None:  # noqa: ARG002
        self._neighbours: set[str] = set()
        self._unannounced: set[str] = set()
        self.unsynced: set[str] = set()
        self._announced_to: set[str] = set()
        self._synced_to: set[str] = set()

    def add(self, neighbour: str) -> None:
        """See `NeighbourSync.add`."""
        self._neighbours.add(neighbour)
        self._unannounced.add(neighbour)
        self.unsynced.add(neighbour)

    @property
    def neighbours(self) -> Set[str]:
        """All neighbours, synchronised or not."""
        return self._neighbours

    def remove(self, neighbour: str) -> None:
        """See `NeighbourSync.remove`."""
        for several in (self._neighbours, self._unannounced, self.unsynced, self._announced_to, self._synced_to):
            several.discard(neighbour)

    def reset(self, neighbour: str) -> None:
        """See `NeighbourSync.reset`."""
        self._announced_to.discard(neighbour)
        self._synced_to.discard(neighbour)

    def announced(self, neighbour: str, epoch: OverlayEpoch = FIRST_EPOCH) -> None:  # noqa: ARG002
        """See `NeighbourSync.announced`."""
        self._unannounced.discard(neighbour)

    def synced(self, neighbour: str, epoch: OverlayEpoch = FIRST_EPOCH) -> None:  # noqa: ARG002
        """See `NeighbourSync.synced`."""
        self.unsynced.discard(neighbour)

    def tick(self) -> None:
        """See `NeighbourSync.tick`; no wait depends on time."""

    def synced_except(self, peer: str, epoch: OverlayEpoch | None = None) -> bool:  # noqa: ARG002
        """See `NeighbourSync.synced_except`."""
        return not self.unsynced or self.unsynced == {peer}

    def pending_markers(self, neighbour: str) -> list[Marker]:
        """See `NeighbourSync.pending_markers`."""
        marks: list[Marker] = []
        if neighbour not in self._announced_to and self._unannounced <= {neighbour}:
            self._announced_to.add(neighbour)
            marks.append(AdvertisementsEnd())
        if neighbour not in self._synced_to and neighbour not in self._unannounced and self.synced_except(neighbour):
            self._synced_to.add(neighbour)
            marks.append(SyncEnd())
        return marks

    def validate(self) -> None:
        """See `NeighbourSync.validate`: advertisements come before subscriptions, in both directions."""
        assert self._unannounced <= self.unsynced <= self._neighbours
        assert self._synced_to <= self._announced_to <= self._neighbours


class EpochSync:
    """Synchronisation on overlays without cycles, in every open epoch apart."""

    kind = SyncKind.TREE

    def __init__(self, ticks: bool = False) -> None:  # noqa: ARG002
        self._epochs: dict[OverlayEpoch, TreeSync] = {FIRST_EPOCH: TreeSync()}
        self.unsynced: set[str] = set()

    def open(self, epoch: OverlayEpoch) -> None:
        """Open an epoch without neighbours."""
        self._epochs[epoch] = TreeSync()

    def close(self, epoch: OverlayEpoch) -> None:
        """Close an epoch: nothing waits for it."""
        del self._epochs[epoch]
        self._update()

    def add_to_epoch(self, neighbour: str, epoch: OverlayEpoch) -> None:
        """Add a neighbour to an epoch, without state."""
        self._epochs[epoch].add(neighbour)
        self._update()

    def reset_in(self, neighbour: str, epoch: OverlayEpoch) -> None:
        """A neighbour has opened an epoch only now: it needs a snapshot."""
        self._epochs[epoch].reset(neighbour)

    def is_synced(self, epoch: OverlayEpoch) -> bool:
        """Whether all neighbours are synchronised in an epoch."""
        return not self._epochs[epoch].unsynced

    def add(self, neighbour: str) -> None:
        """See `NeighbourSync.add`; in the first epoch."""
        self.add_to_epoch(neighbour, FIRST_EPOCH)

    def remove(self, neighbour: str) -> None:
        """See `NeighbourSync.remove`."""
        for sync in self._epochs.values():
            sync.remove(neighbour)
        self._update()

    def reset(self, neighbour: str) -> None:
        """See `NeighbourSync.reset`."""
        for sync in self._epochs.values():
            sync.reset(neighbour)

    def announced(self, neighbour: str, epoch: OverlayEpoch = FIRST_EPOCH) -> None:
        """See `NeighbourSync.announced`."""
        if epoch in self._epochs:
            self._epochs[epoch].announced(neighbour)

    def synced(self, neighbour: str, epoch: OverlayEpoch = FIRST_EPOCH) -> None:
        """See `NeighbourSync.synced`."""
        if epoch in self._epochs:
            self._epochs[epoch].synced(neighbour)
            self._update()

    def tick(self) -> None:
        """See `NeighbourSync.tick`; no wait depends on time."""

    def synced_except(self, peer: str, epoch: OverlayEpoch | None = None) -> bool:
        """See `NeighbourSync.synced_except`."""
        if epoch is not None:
            return epoch not in self._epochs or self._epochs[epoch].synced_except(peer)
        return all(sync.synced_except(peer) for sync in self._epochs.values())

    def pending_markers(self, neighbour: str) -> list[Marker]:
        """See `NeighbourSync.pending_markers`; of all epochs of the neighbour."""
        marks: list[Marker] = []
        for epoch, sync in self._epochs.items():
            if neighbour in sync.neighbours:
                marks += [msgspec.structs.replace(mark, overlay_epoch=epoch) for mark in sync.pending_markers(neighbour)]
        return marks

    def neighbours_in(self, epoch: OverlayEpoch) -> Set[str]:
        """The neighbours in an epoch."""
        return self._epochs[epoch].neighbours

    @property
    def epochs(self) -> Set[OverlayEpoch]:
        """The open epochs."""
        return self._epochs.keys()

    def validate(self) -> None:
        """See `NeighbourSync.validate`."""
        for sync in self._epochs.values():
            sync.validate()
        assert self.unsynced == set().union(*(sync.unsynced for sync in self._epochs.values()))

    def _update(self) -> None:
        self.unsynced = {neighbour for sync in self._epochs.values() for neighbour in sync.unsynced}


class GraphSync(TreeSync):
    """Synchronisation on overlays with cycles, where brokers that have all just started may wait for each other.

    Without ticks no broker waits, and one ``AdvertisementsEnd`` covers the whole table of a starting broker. With ticks it sends
    two, after its advertisements and after its subscriptions. It waits as on a tree, but once the neighbours it waits for have
    connected, for some ticks only. ``SyncEnd``, after which neighbours drop the state of its earlier incarnation, comes last.
    """

    kind = SyncKind.GRAPH

    def __init__(self, ticks: bool = False) -> None:
        super().__init__(ticks)
        self._ticks = ticks
        #: The neighbours that have connected since this broker started.
        self._connected: set[str] = set()
        self._complete_to: set[str] = set()
        #: The remaining ticks to wait for advertisements, for subscriptions, and until these are in force.
        self._advertisement_ticks = self._subscription_ticks = _WAIT_TICKS if ticks else 0
        self._hold_ticks = HOLD_TICKS if ticks else 0

    def remove(self, neighbour: str) -> None:
        """See `NeighbourSync.remove`."""
        super().remove(neighbour)
        self._complete_to.discard(neighbour)

    def reset(self, neighbour: str) -> None:
        """See `NeighbourSync.reset`; the neighbour sends its own table again."""
        super().reset(neighbour)
        self._complete_to.discard(neighbour)
        self._connected.add(neighbour)
        if neighbour in self.unsynced:
            self._unannounced.add(neighbour)

    def announced(self, neighbour: str, epoch: OverlayEpoch = FIRST_EPOCH) -> None:  # noqa: ARG002
        """See `NeighbourSync.announced`; the second marker covers the subscriptions."""
        if neighbour not in self._unannounced or not self._ticks:
            self.unsynced.discard(neighbour)
        super().announced(neighbour)

    def synced(self, neighbour: str, epoch: OverlayEpoch = FIRST_EPOCH) -> None:  # noqa: ARG002
        """See `NeighbourSync.synced`."""
        super().announced(neighbour)
        super().synced(neighbour)

    def tick(self) -> None:
        """See `NeighbourSync.tick`; a neighbour that is not connected is waited for without limit."""
        if self._unannounced and self._advertisement_ticks:
            self._advertisement_ticks -= self._unannounced <= self._connected
        elif self.unsynced and self._subscription_ticks:
            self._subscription_ticks -= self.unsynced <= self._connected
        elif not self.unsynced and self._hold_ticks:
            self._hold_ticks -= 1

    def pending_markers(self, neighbour: str) -> list[Marker]:
        """See `NeighbourSync.pending_markers`."""
        marks: list[Marker] = []
        if neighbour not in self._announced_to and (not self._advertisement_ticks or self._unannounced <= {neighbour}):
            self._announced_to.add(neighbour)
            marks.append(AdvertisementsEnd())
        if neighbour not in self._announced_to:
            return marks
        is_complete = neighbour not in self._unannounced and self.synced_except(neighbour)
        if self._ticks and neighbour not in self._complete_to and (is_complete or not self._subscription_ticks):
            self._complete_to.add(neighbour)
            marks.append(AdvertisementsEnd())
        if neighbour not in self._synced_to and not self.unsynced and not self._hold_ticks:
            self._synced_to.add(neighbour)
            marks.append(SyncEnd())
        return marks

    def validate(self) -> None:
        """See `NeighbourSync.validate`; the second marker follows the first one."""
        super().validate()
        assert self._complete_to <= self._announced_to
        assert self._ticks or not (self._complete_to or self._advertisement_ticks or self._subscription_ticks or self._hold_ticks)
        assert min(self._advertisement_ticks, self._subscription_ticks, self._hold_ticks) >= 0


class NoSync(TreeSync):
    """No markers: the protocol synchronises itself."""

    kind = SyncKind.BY_ROUTING

    def add(self, neighbour: str) -> None:
        """See `NeighbourSync.add`; nothing waits."""

    def pending_markers(self, neighbour: str) -> list[Marker]:  # noqa: ARG002
        """See `NeighbourSync.pending_markers`."""
        return []

    def validate(self) -> None:
        """See `NeighbourSync.validate`: nothing ever waits."""
        assert not self._neighbours
        assert not self.unsynced
