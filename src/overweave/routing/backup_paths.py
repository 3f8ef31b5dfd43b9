"""Paths to subscriptions where there are several: the shortest, and backups for when these end (DEST IV).

Publications do not return to the cluster they came from, so paths differ by the source of publications.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from overweave.batches.base import Batch
from overweave.batches.destinations import with_destinations
from overweave.language.predicates import Filter
from overweave.routing.destination_table import DestinationTable

#: The tag of batches that take backup paths: a broker may receive them twice.
DETOUR = 1


class Path(NamedTuple):
    """A broker on the path to a subscription, with the number of clusters behind it (DEST IV)."""

    number: int
    filter: Filter
    length: int
    backup: bool


class PathSet:
    """The shortest paths to each subscription, all of equal length; backup paths only where there are no others.

    >>> from overweave.language.syntax import parse_filter
    >>> any, paths = parse_filter("[x,>,1]"), PathSet()
    >>> paths.set("s", [Path(2, any, 1, True), Path(4, any, 3, False), Path(5, any, 2, False)])
    >>> list(paths.main.of("s")), list(paths.backup.of("s"))
    ([5], [])
    """

    def __init__(self, hold_down_ticks: int = 1) -> None:
        #: The ticks for which other brokers may not know of a changed path.
        self._hold_down_ticks = hold_down_ticks
        self.main, self.backup = DestinationTable(), DestinationTable()
        #: The paths of publications that still arrive because the main path led here, for some ticks.
        self.hold_down = DestinationTable()
        self._ticks_left: dict[str, int] = {}

    def set(self, id: str, paths: Iterable[Path], back: Callable[[], Iterable[Path]] | None = None) -> None:
        """Choose among the present paths to a subscription; ``back`` returns those to the source of publications."""
        was_main = bool(self.main.of(id))
        main, backup = _shortest(paths)
        self.main.set(id, main)
        self.backup.set(id, backup)
        if main:
            self._ticks_left.pop(id, None)
        elif was_main and back is not None:
            self._ticks_left[id] = self._hold_down_ticks
        if id not in self._ticks_left:
            self.hold_down.set(id, {})
        elif back is not None:
            self.hold_down.set(id, backup or next(filter(None, _shortest(back())), {}))

    def tick(self) -> None:
        """A heartbeat period has passed."""
        for id, left in list(self._ticks_left.items()):
            self._ticks_left[id] = left - 1
            if left == 1:
                del self._ticks_left[id]
                self.hold_down.set(id, {})

    def with_destinations(self, batch: Batch, backups: bool) -> Iterator[Batch]:
        """The rows with destinations; those on backup paths, if allowed, are tagged as detours.

        Rows on a detour stay on it: they may visit a broker twice, and must not be dropped there as duplicates.
        """
        main = self.main.destinations_of(batch)
        others = [*(self.backup.destinations_of(batch) if backups else ()), *self.hold_down.destinations_of(batch)]
        for found, tag in ((main, batch.tag), (others, DETOUR)):
            some = with_destinations(batch, found) if found else None
            if some is not None:
                yield some.with_tag(tag)

    def validate(self) -> None:
        """Check the invariants: backups only where there is no main path; what is held down is so for some ticks."""
        main, backup, held = self.main.ids(), self.backup.ids(), self.hold_down.ids()
        assert main.isdisjoint(backup)
        assert main.isdisjoint(self._ticks_left)
        assert held <= self._ticks_left.keys()
        assert all(1 <= left <= self._hold_down_ticks for left in self._ticks_left.values())


def _shortest(paths: Iterable[Path]) -> tuple[dict[int, Filter], dict[int, Filter]]:
    """The brokers of the shortest paths; and of the shortest backup paths if there are no others."""
    known = list(paths)
    backup, length = min(((path.backup, path.length) for path in known), default=(False, 0))
    chosen = {path.number: path.filter for path in known if (path.backup, path.length) == (backup, length)}
    return ({}, chosen) if backup else (chosen, {})


#: The cluster that publications come from; None: they come from clients.
Source = str | None


class PathTables:
    """The paths by source, for the sources that have occurred.

    ``paths`` returns the paths to a subscription from a source, and ``ids`` the subscriptions with a path.
    """

    def __init__(
        self, paths: Callable[[str, Source], Iterable[Path]], ids: Callable[[], Iterable[str]], hold_down_ticks: int
    ) -> None:
        self._paths, self._ids, self._hold_down_ticks = paths, ids, hold_down_ticks
        self._tables: dict[Source, PathSet] = {}
        #: The brokers that no longer lead to a subscription, while publications in flight to them may be redirected.
        self._lost: dict[Source, dict[str, set[int]]] = {}
        #: Whether there are ticks; without failure detection links do not fail.
        self.has_ticks = False

    def of(self, source: Source) -> PathSet:
        """The paths for publications of a source."""
        if source not in self._tables:
            table = self._tables[source] = PathSet(self._hold_down_ticks)
            self._lost[source] = {}
            for id in self._ids():
                table.set(id, self._paths(id, source))
        return self._tables[source]

    def update(self, id: str) -> None:
        """Choose the paths to a subscription again."""
        for source, table in self._tables.items():
            may_be_late = self.has_ticks and source is not None and id in self._lost[source]
            table.set(id, self._paths(id, source), partial(self._paths, id, None) if may_be_late else None)

    def tick(self) -> None:
        """A heartbeat period has passed."""
        self.has_ticks = True
        for table in self._tables.values():
            table.tick()

    def mark_lost(self, id: str, *brokers: int) -> None:
        """Brokers no longer lead to a subscription, or only as a backup; none: this broker does so."""
        for lost in self._lost.values():
            lost.setdefault(id, set()).update(brokers)

    @property
    def has_lost(self) -> bool:
        """Whether some brokers no longer lead to a subscription."""
        return any(self._lost.values())

    def redirects(self, converged: bool) -> dict[Source, dict[int, PathSet]]:
        """The new paths of publications in flight to lost brokers, by source and broker; each is returned once.

        Until routing has ``converged``, lost brokers without another path are kept.
        """
        found: dict[Source, dict[int, PathSet]] = {}
        for source, lost in self._lost.items():
            table = self._tables[source]
            for id, numbers in list(lost.items()):
                main, backup = table.main.of(id), table.backup.of(id)
                for number in numbers:
                    others = {other: filter for other, filter in main.items() if other != number}
                    if others or backup:
                        redirect = found.setdefault(source, {}).setdefault(number, PathSet())
                        redirect.main.set(id, others)
                        redirect.backup.set(id, backup)
                if main or backup or converged:
                    del lost[id]
        return found

    def validate(self) -> None:
        """Check the invariants."""
        assert self._tables.keys() == self._lost.keys()
        for table in self._tables.values():
            table.validate()
