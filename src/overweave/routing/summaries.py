"""Summaries: which of the filters that are wanted a neighbour has to know, so that it sends all that is wanted.

A filter is wanted or not; how many want it is for others to count. Every change says which filters the neighbour is to be told,
and which it may forget after that.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from overweave.language.poset import Poset
from overweave.language.predicates import Filter


class Change(NamedTuple):
    """What a neighbour is told first, and what it may forget then."""

    told: list[Filter]
    forgotten: list[Filter]


class Summary(Protocol):
    """The filters that one neighbour knows."""

    def add(self, filter: Filter) -> Change:
        """One more filter is wanted."""

    def remove(self, filter: Filter) -> Change:
        """A filter is not wanted any more."""

    def told(self) -> Iterable[Filter]:
        """All that the neighbour knows."""


class Identical:
    """Everything that is wanted, identical filters once (STOCH 2)."""

    def __init__(self) -> None:
        self._told: dict[Filter, None] = {}

    def add(self, filter: Filter) -> Change:
        """See `Summary.add`."""
        self._told[filter] = None
        return Change([filter], [])

    def remove(self, filter: Filter) -> Change:
        """See `Summary.remove`."""
        del self._told[filter]
        return Change([], [filter])

    def told(self) -> Iterable[Filter]:
        """See `Summary.told`."""
        return self._told


class Covering:
    """Only the widest filters: what another one covers is not told, and forgotten when the other comes (STOCH 6).

    >>> from overweave.language.syntax import parse_filter
    >>> wide, narrow, summary = parse_filter("[x,>,1]"), parse_filter("[x,>,5]"), Covering()
    >>> summary.add(narrow) == ([narrow], []), summary.add(wide) == ([wide], [narrow]), summary.remove(wide) == ([narrow], [wide])
    (True, True, True)
    """

    def __init__(self) -> None:
        #: Everybody is a subscriber of their own node: so a node names all its forms.
        self._poset: Poset[Filter, Filter] = Poset()

    def add(self, filter: Filter) -> Change:
        """See `Summary.add`."""
        poset = self._poset
        poset.insert(filter, filter)
        if filter not in poset.css:
            return Change([], [])
        # Who was told and has one parent now, this one, is covered.
        return Change([filter], [child for child in poset.children(filter) if len(poset.parents(child)) == 1])

    def remove(self, filter: Filter) -> Change:
        """See `Summary.remove`."""
        poset = self._poset
        if filter not in poset.css:
            poset.delete(filter, filter)
            return Change([], [])
        heirs = [*poset.subscribers(filter), *poset.children(filter)]
        poset.delete(filter, filter)
        return Change([heir for heir in heirs if heir in poset.css], [filter])

    def told(self) -> Iterable[Filter]:
        """See `Summary.told`."""
        return self._poset.css
