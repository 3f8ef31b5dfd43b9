"""The interface of matchers; `overweave.testing.matching` checks that all of them give the same answers."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from overweave.language.predicates import Filter
from overweave.language.publications import Publication

#: An id names one filter in one matcher. A link is the key by which filters are grouped: a neighbour,
#: a client, a broker number; None is the broker itself.
Id = Hashable
Link = Hashable
Entry = tuple[Id, Filter, Link]


class Matcher(Protocol):
    """A set of filters, each with an id and a link, to match publications against.

    >>> from overweave.language.syntax import parse_filter
    >>> from overweave.matching.naive import NaiveMatcher
    >>> matcher: Matcher = NaiveMatcher()
    >>> matcher.add("s1", parse_filter("[x,>,0]"), link="B2")
    >>> matcher.match(Publication({"x": 1})), matcher.next_hops(Publication({"x": 1}))
    ({'s1'}, {'B2'})
    """

    def __len__(self) -> int:
        """The number of filters."""

    def __contains__(self, id: object) -> bool:
        """Whether there is a filter with this id."""

    def add(self, id: Id, filter: Filter, link: Link = None) -> None:
        """Add ``filter``. An id that is in use is a `DuplicateId`."""

    def add_many(self, entries: Iterable[Entry]) -> None:
        """Add many filters, much faster than one by one; all of them, or those before the first refused one."""

    def remove(self, id: Id) -> None:
        """Remove the filter with this id. An id that is not in use is an `UnknownId`."""

    def match(self, publication: Publication) -> set[Id]:
        """The ids of all filters that ``publication`` satisfies."""

    def match_batch(self, publications: Sequence[Publication]) -> list[set[Id]]:
        """`match` for each of ``publications``."""

    def next_hops(self, publication: Publication) -> set[Link]:
        """The links (not None) from which at least one filter came that ``publication`` satisfies."""

    def next_hops_batch(self, publications: Sequence[Publication]) -> list[set[Link]]:
        """`next_hops` for each of ``publications``."""
