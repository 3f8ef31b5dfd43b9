"""Whom publications are meant for where several ways lead to a subscription: the shortest, and others when these end (DEST IV).

What comes from a cluster does not go back there, so that ways differ by where publications come from.
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
    """A broker that leads to a subscription: through how many clusters, and whether only if nobody else does (DEST IV)."""

    number: int
    filter: Filter
    length: int
    backup: bool


class PathSet:
    """The shortest ways to each subscription, all that are as short; those that are spare apart, for there are no others then.

    >>> from overweave.language.syntax import parse_filter
    >>> any, choices = parse_filter("[x,>,1]"), PathSet()
    >>> choices.set("s", [Path(2, any, 1, True), Path(4, any, 3, False), Path(5, any, 2, False)])
    >>> list(choices.main.of("s")), list(choices.backup.of("s"))
    ([5], [])
    """

    def __init__(self, hold_down_ticks: int = 1) -> None:
        #: For this long some brokers may not know that a path has changed.
        self._hold_down_ticks = hold_down_ticks
        self.main, self.backup = DestinationTable(), DestinationTable()
        #: Where publications go that come because the main way was here, which not all may have heard yet; for so many beats.
        self.since = DestinationTable()
        self._beats: dict[str, int] = {}

    def set(self, id: str, ways: Iterable[Path], back: Callable[[], Iterable[Path]] | None = None) -> None:
        """Choose for a subscription among the ways there are now; ``back`` tells those that lead where publications came from."""
        was_here = bool(self.main.of(id))
        main, backup = _shortest(ways)
        self.main.set(id, main)
        self.backup.set(id, backup)
        if main:
            self._beats.pop(id, None)
        elif was_here and back is not None:
            self._beats[id] = self._hold_down_ticks
        if id not in self._beats:
            self.since.set(id, {})
        elif back is not None:
            self.since.set(id, backup or next(filter(None, _shortest(back())), {}))

    def tick(self) -> None:
        """Some time has passed, and who did not know of changes may do so now."""
        for id, left in list(self._beats.items()):
            self._beats[id] = left - 1
            if left == 1:
                del self._beats[id]
                self.since.set(id, {})

    def addressed(self, batch: Batch, detours: bool) -> Iterator[Batch]:
        """The rows that some want, with their destination lists; on a detour, if it may be, those that go spare ways.

        What is on a detour stays on it: it may come where it was before, and what was passed over then must not be dropped.
        """
        main = self.main.destinations_of(batch)
        others = [*(self.backup.destinations_of(batch) if detours else ()), *self.since.destinations_of(batch)]
        for wanting, tag in ((main, batch.tag), (others, DETOUR)):
            bound = with_destinations(batch, wanting) if wanting else None
            if bound is not None:
                yield bound.with_tag(tag)


def _shortest(ways: Iterable[Path]) -> tuple[dict[int, Filter], dict[int, Filter]]:
    """The brokers of the shortest ways; and likewise of spare ones, if there are no others."""
    known = list(ways)
    backup, length = min(((way.backup, way.length) for way in known), default=(False, 0))
    chosen = {way.number: way.filter for way in known if (way.backup, way.length) == (backup, length)}
    return ({}, chosen) if backup else (chosen, {})


#: A cluster that publications come from; None: they come from clients.
Source = str | None


class PathTables:
    """The choices by where publications come from, made for those from where some have come.

    ``ways`` tells who leads to a subscription, and ``ids`` all that somebody leads to.
    """

    def __init__(
        self, ways: Callable[[str, Source], Iterable[Path]], ids: Callable[[], Iterable[str]], hold_down_ticks: int
    ) -> None:
        self._ways, self._ids, self._hold_down_ticks = ways, ids, hold_down_ticks
        self._choices: dict[Source, PathSet] = {}
        #: Who leads to a subscription no more, as long as what is on its way there may have to go elsewhere.
        self._lost: dict[Source, dict[str, set[int]]] = {}
        #: Whether links are watched, for else they do not fail.
        self.watched = False

    def of(self, source: Source) -> PathSet:
        """The choices for what comes from there."""
        if source not in self._choices:
            choices = self._choices[source] = PathSet(self._hold_down_ticks)
            self._lost[source] = {}
            for id in self._ids():
                choices.set(id, self._ways(id, source))
        return self._choices[source]

    def choose(self, id: str) -> None:
        """Choose anew for a subscription."""
        for source, choices in self._choices.items():
            may_be_late = self.watched and source is not None and id in self._lost[source]
            choices.set(id, self._ways(id, source), partial(self._ways, id, None) if may_be_late else None)

    def tick(self) -> None:
        """Some time has passed."""
        self.watched = True
        for choices in self._choices.values():
            choices.tick()

    def mark_lost(self, id: str, *brokers: int) -> None:
        """Brokers lead to a subscription no more, or only as a spare; none: this one does so."""
        for lost in self._lost.values():
            lost.setdefault(id, set()).update(brokers)

    @property
    def has_lost(self) -> bool:
        """Whether some lead to subscriptions no more."""
        return any(self._lost.values())

    def redirects(self, settled: bool) -> dict[Source, dict[int, PathSet]]:
        """For what is on its way to brokers that were lost, by these, where it goes instead; each is told once.

        Until it is ``settled`` who leads where, those are kept for whom there is no other way yet.
        """
        found: dict[Source, dict[int, PathSet]] = {}
        for source, lost in self._lost.items():
            choices = self._choices[source]
            for id, numbers in list(lost.items()):
                main, backup = choices.main.of(id), choices.backup.of(id)
                for number in numbers:
                    others = {other: filter for other, filter in main.items() if other != number}
                    if others or backup:
                        instead = found.setdefault(source, {}).setdefault(number, PathSet())
                        instead.main.set(id, others)
                        instead.backup.set(id, backup)
                if main or backup or settled:
                    del lost[id]
        return found
