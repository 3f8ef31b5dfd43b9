"""Telling: who among the neighbours has told all it knows and wants, and to whom we have (docs/decisions/0004).

In a tree, what is told in one direction waits only for what comes from behind, and subscriptions for the advertisements
ahead: nobody waits in a circle, whoever restarts. Where there are cycles a broker waits until each neighbour has said that
it knows all, or that it has just started and has said all it knows.
"""

from overweave.contract.frames import Announced, Synced, Word

#: How many ticks brokers that have all just started wait for each other, and until what one wants then is in force everywhere.
_WAIT_TICKS, HOLD_TICKS = 4, 4


class Telling:
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

    def forgotten_by(self, neighbour: str) -> None:
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

    def knows_all_but(self, peer: str) -> bool:
        """Whether all neighbours but ``peer`` have told what they want."""
        return not self.unsynced or self.unsynced == {peer}

    def marks(self, neighbour: str) -> list[Word]:
        """What can now be said to be complete for a neighbour, and was not yet."""
        marks: list[Word] = []
        if neighbour not in self._announced_to and self._unannounced <= {neighbour}:
            self._announced_to.add(neighbour)
            marks.append(Announced())
        if neighbour not in self._synced_to and neighbour not in self._unannounced and self.knows_all_but(neighbour):
            self._synced_to.add(neighbour)
            marks.append(Synced())
        return marks


class TellingInCycles(Telling):
    """Likewise where the overlay has cycles.

    There waits may form a circle of brokers that have all just started. Without ticks nobody waits, and one ``Announced``
    stands for all that such a broker knows and wants. With ticks it says so twice, when it knows all advertisements and when it
    has said all that it wants, and waits as in a tree, but only for some ticks once all that it waits for are there.
    ``Synced``, after which neighbours drop what its earlier incarnation said, comes last: what it wants is in force again.
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
        """See `Telling.remove`."""
        super().remove(neighbour)
        self._complete_to.discard(neighbour)

    def forgotten_by(self, neighbour: str) -> None:
        """See `Telling.forgotten_by`; it begins again itself."""
        super().forgotten_by(neighbour)
        self._complete_to.discard(neighbour)
        self._met.add(neighbour)
        if neighbour in self.unsynced:
            self._unannounced.add(neighbour)

    def announced(self, neighbour: str) -> None:
        """See `Telling.announced`; the second time it has said what it wants, too."""
        if neighbour not in self._unannounced or not self._ticks:
            self.unsynced.discard(neighbour)
        super().announced(neighbour)

    def synced(self, neighbour: str) -> None:
        """See `Telling.synced`."""
        super().announced(neighbour)
        super().synced(neighbour)

    def tick(self) -> None:
        """See `Telling.tick`; whoever is not there is waited for without end, as publications are held for it anyway."""
        if self._unannounced and self._waits:
            self._waits -= self._unannounced <= self._met
        elif self.unsynced and self._waits_for_wants:
            self._waits_for_wants -= self.unsynced <= self._met
        elif not self.unsynced and self._settles:
            self._settles -= 1

    def marks(self, neighbour: str) -> list[Word]:
        """See `Telling.marks`."""
        marks: list[Word] = []
        if neighbour not in self._announced_to and (not self._waits or self._unannounced <= {neighbour}):
            self._announced_to.add(neighbour)
            marks.append(Announced())
        if neighbour not in self._announced_to:
            return marks
        knows = neighbour not in self._unannounced and self.knows_all_but(neighbour)
        if self._ticks and neighbour not in self._complete_to and (knows or not self._waits_for_wants):
            self._complete_to.add(neighbour)
            marks.append(Announced())
        if neighbour not in self._synced_to and not self.unsynced and not self._settles:
            self._synced_to.add(neighbour)
            marks.append(Synced())
        return marks


class TellingByRouting(Telling):
    """Where routing itself finds out who has told what."""

    def add(self, neighbour: str) -> None:
        """See `Telling.add`; nobody waits."""

    def marks(self, neighbour: str) -> list[Word]:  # noqa: ARG002
        """See `Telling.marks`."""
        return []
