"""Whom publications are meant for where several ways lead to a subscription: the shortest, and others when these end (DEST IV).

What comes from a cluster does not go back there, so that ways differ by where publications come from.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from overweave.contract.batches import Batch
from overweave.language.predicates import Filter
from overweave.routing.choice import Choice

#: For so many beats some may not know that a way has changed.
_SINCE_BEATS = 20


class Way(NamedTuple):
    """A broker that leads to a subscription: through how many clusters, and whether only if nobody else does (DEST IV)."""

    number: int
    filter: Filter
    length: int
    spare: bool


class Choices:
    """The shortest ways to each subscription, all that are as short; those that are spare apart, for there are no others then.

    >>> from overweave.language.syntax import parse_filter
    >>> any, choices = parse_filter("[x,>,1]"), Choices()
    >>> choices.set("s", [Way(2, any, 1, True), Way(4, any, 3, False), Way(5, any, 2, False)])
    >>> list(choices.main.of("s")), list(choices.spare.of("s"))
    ([5], [])
    """

    def __init__(self) -> None:
        self.main, self.spare = Choice(), Choice()
        #: Where publications go that come because the main way was here, which not all may have heard yet; for so many beats.
        self.since = Choice()
        self._beats: dict[str, int] = {}

    def set(self, id: str, ways: Iterable[Way], back: Callable[[], Iterable[Way]] | None = None) -> None:
        """Choose for a subscription among the ways there are now; ``back`` tells those that lead where publications came from."""
        was_here = bool(self.main.of(id))
        main, spare = _shortest(ways)
        self.main.set(id, main)
        self.spare.set(id, spare)
        if main:
            self._beats.pop(id, None)
        elif was_here and back is not None:
            self._beats[id] = _SINCE_BEATS
        if id not in self._beats:
            self.since.set(id, {})
        elif back is not None:
            self.since.set(id, spare or next(filter(None, _shortest(back())), {}))

    def beat(self) -> None:
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
        main = self.main.wanting(batch)
        others = [*(self.spare.wanting(batch) if detours else ()), *self.since.wanting(batch)]
        for wanting, detour in ((main, batch.detour), (others, True)):
            bound = batch.addressed(wanting) if wanting else None
            if bound is not None:
                yield bound.diverted(detour)


def _shortest(ways: Iterable[Way]) -> tuple[dict[int, Filter], dict[int, Filter]]:
    """The brokers of the shortest ways; and likewise of spare ones, if there are no others."""
    known = list(ways)
    spare, length = min(((way.spare, way.length) for way in known), default=(False, 0))
    chosen = {way.number: way.filter for way in known if (way.spare, way.length) == (spare, length)}
    return ({}, chosen) if spare else (chosen, {})


#: A cluster that publications come from; None: they come from clients.
Source = str | None


class Addresses:
    """The choices by where publications come from, made for those from where some have come.

    ``ways`` tells who leads to a subscription, and ``ids`` all that somebody leads to.
    """

    def __init__(self, ways: Callable[[str, Source], Iterable[Way]], ids: Callable[[], Iterable[str]]) -> None:
        self._ways, self._ids = ways, ids
        self._choices: dict[Source, Choices] = {}
        #: Who leads to a subscription no more, as long as what is on its way there may have to go elsewhere.
        self._lost: dict[Source, dict[str, set[int]]] = {}
        #: Whether links are watched, for else they do not fail.
        self.watched = False

    def of(self, source: Source) -> Choices:
        """The choices for what comes from there."""
        if source not in self._choices:
            choices = self._choices[source] = Choices()
            self._lost[source] = {}
            for id in self._ids():
                choices.set(id, self._ways(id, source))
        return self._choices[source]

    def choose(self, id: str) -> None:
        """Choose anew for a subscription."""
        for source, choices in self._choices.items():
            may_be_late = self.watched and source is not None and id in self._lost[source]
            choices.set(id, self._ways(id, source), partial(self._ways, id, None) if may_be_late else None)

    def beat(self) -> None:
        """Some time has passed."""
        self.watched = True
        for choices in self._choices.values():
            choices.beat()

    def lose(self, id: str, *brokers: int) -> None:
        """Brokers lead to a subscription no more, or only as a spare; none: this one does so."""
        for lost in self._lost.values():
            lost.setdefault(id, set()).update(brokers)

    @property
    def lost(self) -> bool:
        """Whether some lead to subscriptions no more."""
        return any(self._lost.values())

    def anew(self, settled: bool) -> dict[Source, dict[int, Choices]]:
        """For what is on its way to brokers that were lost, by these, where it goes instead; each is told once.

        Until it is ``settled`` who leads where, those are kept for whom there is no other way yet.
        """
        found: dict[Source, dict[int, Choices]] = {}
        for source, lost in self._lost.items():
            choices = self._choices[source]
            for id, numbers in list(lost.items()):
                main, spare = choices.main.of(id), choices.spare.of(id)
                for number in numbers:
                    others = {other: filter for other, filter in main.items() if other != number}
                    if others or spare:
                        instead = found.setdefault(source, {}).setdefault(number, Choices())
                        instead.main.set(id, others)
                        instead.spare.set(id, spare)
                if main or spare or settled:
                    del lost[id]
        return found
