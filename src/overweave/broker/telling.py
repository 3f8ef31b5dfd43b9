"""Telling: who among the neighbours has told all it knows and wants, and to whom we have (docs/decisions/0004).

In a tree, what is told in one direction waits only for what comes from behind, and subscriptions for the advertisements
ahead: nobody waits in a circle, whoever restarts. Where there are cycles a broker waits until each neighbour has said that
it knows all, or that it has just started and has said all it knows.
"""

from overweave.contract.frames import Announced, Synced, Word

#: 1.5 to 2 s at the usual heartbeat.
_HOLD_TICKS = 4


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
    """Likewise where the overlay has cycles; ``Announced`` stands for all that a broker which has just started knows.

    There the waits may form a circle, so they end after some ticks; without ticks nobody waits. ``Synced``, after which neighbours
    drop what an earlier incarnation of this broker said, comes as much later: until then its subscriptions are in force again.
    """

    def __init__(self, ticks: bool = False) -> None:
        super().__init__()
        #: How many ticks are left until a broker that has just started waits for nobody, and until what it learned is in force.
        self._waits = self._settles = _HOLD_TICKS if ticks else 0

    def announced(self, neighbour: str) -> None:
        """See `Telling.announced`; it may not know more for long, so nobody waits for it."""
        super().announced(neighbour)
        self.unsynced.discard(neighbour)

    def tick(self) -> None:
        """See `Telling.tick`."""
        self._waits = max(self._waits - 1, 0)
        if not self.unsynced:
            self._settles = max(self._settles - 1, 0)

    def marks(self, neighbour: str) -> list[Word]:
        """See `Telling.marks`."""
        marks: list[Word] = []
        if neighbour not in self._announced_to and (not self._waits or self._unannounced <= {neighbour}):
            self._announced_to.add(neighbour)
            marks.append(Announced())
        if neighbour in self._announced_to and neighbour not in self._synced_to and not self.unsynced and not self._settles:
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
