"""What every matcher offers; `overweave.testing.matching` checks that all of them answer alike."""

from collections.abc import Hashable, Iterable, Sequence
from typing import Protocol

from overweave.language.predicates import Filter
from overweave.language.publications import Publication

#: An id names one filter in one matcher. A link names where the filter came from; None is the broker itself (its local clients).
Id = Hashable
Link = Hashable
Entry = tuple[Id, Filter, Link]


class Matcher(Protocol):
    """A set of filters, each with an id and a link, that can be asked about publications at any time.

    >>> from overweave.language.syntax import parse_filter
    >>> from overweave.matching.naive import NaiveMatcher
    >>> matcher: Matcher = NaiveMatcher()
    >>> matcher.add("s1", parse_filter("[x,>,0]"), link="B2")
    >>> matcher.match(Publication({"x": 1})), matcher.next_hops(Publication({"x": 1}))
    ({'s1'}, {'B2'})
    """

    def __len__(self) -> int:
        """How many filters are in it."""

    def __contains__(self, id: object) -> bool:
        """Whether a filter with this id is in it."""

    def add(self, id: Id, filter: Filter, link: Link = None) -> None:
        """Take ``filter`` in. An id that is there already is a `DuplicateId`."""

    def add_many(self, entries: Iterable[Entry]) -> None:
        """Take many filters in, much faster than one by one; all of them, or those before the one that was refused."""

    def remove(self, id: Id) -> None:
        """Forget the filter with this id. One that is not there is an `UnknownId`."""

    def match(self, publication: Publication) -> set[Id]:
        """The ids of all filters that ``publication`` satisfies."""

    def match_batch(self, publications: Sequence[Publication]) -> list[set[Id]]:
        """`match` for each of ``publications``."""

    def next_hops(self, publication: Publication) -> set[Link]:
        """The links (not None) from which at least one filter came that ``publication`` satisfies."""

    def next_hops_batch(self, publications: Sequence[Publication]) -> list[set[Link]]:
        """`next_hops` for each of ``publications``."""
