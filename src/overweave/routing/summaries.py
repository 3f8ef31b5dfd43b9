"""Summaries: the filters that a neighbour needs, so that it sends every wanted publication.

A filter is wanted or not; its users count by how many. Every change has the filters to forward, and those to withdraw after them.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from overweave.language.poset import Poset
from overweave.language.predicates import Filter


class Change(NamedTuple):
    """The filters to forward to a neighbour first, and those to withdraw then."""

    forwarded: list[Filter]
    withdrawn: list[Filter]


class Summary(Protocol):
    """The filters forwarded to one neighbour."""

    def add(self, filter: Filter) -> Change:
        """Add a wanted filter."""

    def remove(self, filter: Filter) -> Change:
        """Remove a filter that is no longer wanted."""

    def forwarded(self) -> Iterable[Filter]:
        """The forwarded filters."""


class Identical:
    """All wanted filters, identical ones once (STOCH 2)."""

    def __init__(self) -> None:
        self._forwarded: dict[Filter, None] = {}

    def add(self, filter: Filter) -> Change:
        """See `Summary.add`."""
        self._forwarded[filter] = None
        return Change([filter], [])

    def remove(self, filter: Filter) -> Change:
        """See `Summary.remove`."""
        del self._forwarded[filter]
        return Change([], [filter])

    def forwarded(self) -> Iterable[Filter]:
        """See `Summary.forwarded`."""
        return self._forwarded


class Covering:
    """Only the widest filters: one that another covers is not forwarded, and withdrawn when the other is added (STOCH 6).

    >>> from overweave.language.syntax import parse_filter
    >>> wide, narrow, summary = parse_filter("[x,>,1]"), parse_filter("[x,>,5]"), Covering()
    >>> summary.add(narrow) == ([narrow], []), summary.add(wide) == ([wide], [narrow]), summary.remove(wide) == ([narrow], [wide])
    (True, True, True)
    """

    def __init__(self) -> None:
        #: Each filter subscribes to its own node, so that a node has all equal forms.
        self._poset: Poset[Filter, Filter] = Poset()

    def add(self, filter: Filter) -> Change:
        """See `Summary.add`."""
        poset = self._poset
        poset.insert(filter, filter)
        if filter not in poset.css:
            return Change([], [])
        # A forwarded filter whose only parent is the new one is now covered.
        return Change([filter], [child for child in poset.children(filter) if len(poset.parents(child)) == 1])

    def remove(self, filter: Filter) -> Change:
        """See `Summary.remove`."""
        poset = self._poset
        if filter not in poset.css:
            poset.delete(filter, filter)
            return Change([], [])
        uncovered = [*poset.subscribers(filter), *poset.children(filter)]
        poset.delete(filter, filter)
        return Change([each for each in uncovered if each in poset.css], [filter])

    def forwarded(self) -> Iterable[Filter]:
        """See `Summary.forwarded`."""
        return self._poset.css
