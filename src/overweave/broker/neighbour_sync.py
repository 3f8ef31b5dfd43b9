"""Telling: who among the neighbours has told all it knows and wants, and to whom we have (docs/decisions/0004).

In a tree, what is told in one direction waits only for what comes from behind, and subscriptions for the advertisements
ahead: nobody waits in a circle, whoever restarts. Where there are cycles a broker waits until each neighbour has said that
it knows all, or that it has just started and has said all it knows.
"""

from overweave.contract.frames import AdvertisementsEnd, ControlMessage, SyncEnd

#: How many ticks brokers that have all just started wait for each other, and until what one wants then is in force everywhere.
_WAIT_TICKS, HOLD_TICKS = 4, 4


class NeighbourSync:
    """The state of knowledge between a broker and its neighbours."""

    def __init__(self) -> None:
        self._unannounced: set[str] = set()
        #: Who has not told what it wants.
        self.unsynced: set[str] = set()
        self._announced_to: set[str] = set()
        self._synced_to: set[str] = set()

    def add(self, neighbour: str) -> None:
        """A neighbour of which nothing is known."""
        self._unannounced.add(neighbour)
        self.unsynced.add(neighbour)

    def remove(self, neighbour: str) -> None:
        """A neighbour that is none any more; nobody waits for it."""
        for several in (self._unannounced, self.unsynced, self._announced_to, self._synced_to):
            several.discard(neighbour)

    def reset(self, neighbour: str) -> None:
        """A neighbour has restarted: it has to be told anew."""
        self._announced_to.discard(neighbour)
        self._synced_to.discard(neighbour)

    def announced(self, neighbour: str) -> None:
        """A neighbour has told all advertisements."""
        self._unannounced.discard(neighbour)

    def synced(self, neighbour: str) -> None:
        """A neighbour has told all that it wants."""
        self.unsynced.discard(neighbour)

    def tick(self) -> None:
        """Some time has passed."""

    def synced_except(self, peer: str) -> bool:
        """Whether all neighbours but ``peer`` have told what they want."""
        return not self.unsynced or self.unsynced == {peer}

    def pending_markers(self, neighbour: str) -> list[ControlMessage]:
        """What can now be said to be complete for a neighbour, and was not yet."""
        marks: list[ControlMessage] = []
        if neighbour not in self._announced_to and self._unannounced <= {neighbour}:
            self._announced_to.add(neighbour)
            marks.append(AdvertisementsEnd())
        if neighbour not in self._synced_to and neighbour not in self._unannounced and self.synced_except(neighbour):
            self._synced_to.add(neighbour)
            marks.append(SyncEnd())
        return marks


class GraphSync(NeighbourSync):
    """Likewise where the overlay has cycles.

    There waits may form a circle of brokers that have all just started. Without ticks nobody waits, and one ``AdvertisementsEnd``
    stands for all that such a broker knows and wants. With ticks it says so twice, when it knows all advertisements and when it
    has said all that it wants, and waits as in a tree, but only for some ticks once all that it waits for are there.
    ``SyncEnd``, after which neighbours drop what its earlier incarnation said, comes last: what it wants is in force again.
    """

    def __init__(self, ticks: bool = False) -> None:
        super().__init__()
        self._ticks = ticks
        #: Who has come since this broker started.
        self._met: set[str] = set()
        self._complete_to: set[str] = set()
        #: How many ticks are left to wait for advertisements, for what others want, and until that is in force.
        self._waits = self._waits_for_wants = _WAIT_TICKS if ticks else 0
        self._settles = HOLD_TICKS if ticks else 0

    def remove(self, neighbour: str) -> None:
        """See `NeighbourSync.remove`."""
        super().remove(neighbour)
        self._complete_to.discard(neighbour)

    def reset(self, neighbour: str) -> None:
        """See `NeighbourSync.reset`; it begins again itself."""
        super().reset(neighbour)
        self._complete_to.discard(neighbour)
        self._met.add(neighbour)
        if neighbour in self.unsynced:
            self._unannounced.add(neighbour)

    def announced(self, neighbour: str) -> None:
        """See `NeighbourSync.announced`; the second time it has said what it wants, too."""
        if neighbour not in self._unannounced or not self._ticks:
            self.unsynced.discard(neighbour)
        super().announced(neighbour)

    def synced(self, neighbour: str) -> None:
        """See `NeighbourSync.synced`."""
        super().announced(neighbour)
        super().synced(neighbour)

    def tick(self) -> None:
        """See `NeighbourSync.tick`; whoever is not there is waited for without end, as publications are held for it anyway."""
        if self._unannounced and self._waits:
            self._waits -= self._unannounced <= self._met
        elif self.unsynced and self._waits_for_wants:
            self._waits_for_wants -= self.unsynced <= self._met
        elif not self.unsynced and self._settles:
            self._settles -= 1

    def pending_markers(self, neighbour: str) -> list[ControlMessage]:
        """See `NeighbourSync.pending_markers`."""
        marks: list[ControlMessage] = []
        if neighbour not in self._announced_to and (not self._waits or self._unannounced <= {neighbour}):
            self._announced_to.add(neighbour)
            marks.append(AdvertisementsEnd())
        if neighbour not in self._announced_to:
            return marks
        knows = neighbour not in self._unannounced and self.synced_except(neighbour)
        if self._ticks and neighbour not in self._complete_to and (knows or not self._waits_for_wants):
            self._complete_to.add(neighbour)
            marks.append(AdvertisementsEnd())
        if neighbour not in self._synced_to and not self.unsynced and not self._settles:
            self._synced_to.add(neighbour)
            marks.append(SyncEnd())
        return marks


class NoSync(NeighbourSync):
    """Where routing itself finds out who has told what."""

    def add(self, neighbour: str) -> None:
        """See `NeighbourSync.add`; nobody waits."""

    def pending_markers(self, neighbour: str) -> list[ControlMessage]:  # noqa: ARG002
        """See `NeighbourSync.pending_markers`."""
        return []
