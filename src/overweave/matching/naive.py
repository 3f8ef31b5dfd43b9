"""The oracle: every publication against every filter, by the definition of matching and nothing else."""

from collections.abc import Iterable, Sequence

from overweave.errors import DuplicateId, UnknownId
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.matching.base import Entry, Id, Link


class NaiveMatcher:
    """A `Matcher` without any idea; linear in everything.

    >>> from overweave.language.syntax import parse_filter, parse_publication
    >>> matcher = NaiveMatcher()
    >>> matcher.add("s1", parse_filter("[volume,>,1000]"), link="B2")
    >>> matcher.match(parse_publication("[volume,1200]")), matcher.next_hops(parse_publication("[volume,900]"))
    ({'s1'}, set())
    """

    def __init__(self) -> None:
        self._entries: dict[Id, tuple[Filter, Link]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: object) -> bool:
        return id in self._entries

    def add(self, id: Id, filter: Filter, link: Link = None) -> None:
        """See `Matcher.add`."""
        if id in self._entries:
            raise DuplicateId(f"id {id!r}: expected one that is not in use")
        self._entries[id] = (filter, link)

    def add_many(self, entries: Iterable[Entry]) -> None:
        """See `Matcher.add_many`."""
        for id, filter, link in entries:
            self.add(id, filter, link)

    def remove(self, id: Id) -> None:
        """See `Matcher.remove`."""
        if id not in self._entries:
            raise UnknownId(f"id {id!r}: expected one that was added")
        del self._entries[id]

    def match(self, publication: Publication) -> set[Id]:
        """See `Matcher.match`."""
        return {id for id, (filter, _) in self._entries.items() if matches(filter, publication)}

    def match_batch(self, publications: Sequence[Publication]) -> list[set[Id]]:
        """See `Matcher.match_batch`."""
        return [self.match(publication) for publication in publications]

    def next_hops(self, publication: Publication) -> set[Link]:
        """See `Matcher.next_hops`."""
        return {link for filter, link in self._entries.values() if link is not None and matches(filter, publication)}

    def next_hops_batch(self, publications: Sequence[Publication]) -> list[set[Link]]:
        """See `Matcher.next_hops_batch`."""
        return [self.next_hops(publication) for publication in publications]
