"""The intersection index: which of many advertisements a subscription intersects, or of many subscriptions an advertisement.

It answers as `overweave.language.relations.intersects` asked of each filter would, in the order in which filters were added. A
filter with equalities lies in the partition of one of them, the smallest at that time, and a query enters only partitions that it
can meet; where these are large, blocks of filters that lie close. There a kernel compares outer bounds, and what these leave open
is decided by the relation itself.
"""

from collections import Counter
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from overweave.errors import DuplicateId, UnknownId
from overweave.language.predicates import Filter
from overweave.language.relations import intersects
from overweave.matching.intersection_rows import Rows
from overweave.matching.kernels.intersect import NO, PERHAPS, YES, find_slots, reach_links
from overweave.matching.outer_bounds import outer_bounds

Id = TypeVar("Id", bound=Hashable)
Link = Hashable
#: The number of removed filters, beyond those that are left, before the rest is packed.
_GONE_MORE = 64


class IntersectionIndex(Generic[Id]):
    """Advertisements to be asked about subscriptions, or subscriptions to be asked about advertisements.

    >>> from overweave.language.syntax import parse_filter
    >>> index = IntersectionIndex[str](holds_advertisements=True)
    >>> index.add("a1", parse_filter("[class,eq,'STOCK'],[volume,>,0]"), link="B2")
    >>> index.add("a2", parse_filter("[class,eq,'STOCK'],[price,>,0]"), link="B3")
    >>> wanted = parse_filter("[class,eq,'STOCK'],[volume,>,1000]")
    >>> index.intersecting(wanted), index.links(wanted), index.reaches("B3", wanted)
    (['a1'], {'B2'}, False)
    """

    def __init__(self, holds_advertisements: bool) -> None:
        self._holds_advertisements = holds_advertisements
        self._filters: dict[Id, Filter] = {}
        #: The slots of filters that can be satisfied, and the ids of all slots.
        self._slots: dict[Id, int] = {}
        self._ids: list[Id] = []
        self._rows = Rows()
        #: Links by number, with how many slots each has.
        self._links: list[Link] = []
        self._link_numbers: dict[Link, int] = {}
        self._link_counts: list[int] = []

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id: object) -> bool:
        return id in self._filters

    def add(self, id: Id, filter: Filter, link: Link = None) -> None:
        """Take ``filter`` in. An id that is there already is a `DuplicateId`."""
        if id in self._filters:
            raise DuplicateId(f"id {id!r}: expected one that is not in use")
        self._filters[id] = filter
        bounds = outer_bounds(filter)
        if bounds is None:  # it intersects nothing
            return
        self._slots[id] = len(self._ids)
        self._ids.append(id)
        self._rows.append(bounds, self._link_number(link))

    def remove(self, id: Id) -> None:
        """Forget the filter with this id. One that is not there is an `UnknownId`."""
        if self._filters.pop(id, None) is None:
            raise UnknownId(f"id {id!r}: expected one that was added")
        slot = self._slots.pop(id, None)
        if slot is None:
            return
        self._link_counts[self._rows.remove(slot)] -= 1
        if len(self._ids) > 2 * len(self._slots) + _GONE_MORE:
            self._ids = [self._ids[slot] for slot in self._rows.pack().tolist()]
            self._slots = {id: slot for slot, id in enumerate(self._ids)}

    def validate(self, entries: Mapping[Id, tuple[Filter, Link]]) -> None:
        """Check that these filters with these links are all that is in it, in any order."""
        assert self._filters == {id: filter for id, (filter, _) in entries.items()}
        slots = {id: slot for slot, id in enumerate(self._ids) if self._slots.get(id) == slot}
        assert slots == self._slots
        links = Counter(entries[id][1] for id in slots)
        assert links == Counter({link: count for link, count in zip(self._links, self._link_counts, strict=True) if count})

    def intersecting(self, filter: Filter) -> list[Id]:
        """The ids of all that ``filter`` intersects, in the order in which they were added."""
        if not self._slots:
            return []
        slots, certain = self._candidates(filter)
        ids = [self._ids[slot] for slot in slots.tolist()]
        if certain.all():
            return ids
        return [id for id, sure in zip(ids, certain.tolist(), strict=True) if sure or self._intersects(id, filter)]

    def links(self, filter: Filter, exclude: Link = None) -> set[Link]:
        """The links, but ``exclude``, from which something came that ``filter`` intersects."""
        asked = [number for number, count in enumerate(self._link_counts) if count and self._links[number] != exclude]
        reached = self._reached(filter, asked) if asked else []
        return {self._links[number] for number in asked if reached[number]}

    def reaches(self, link: Link, filter: Filter) -> bool:
        """Whether ``filter`` intersects something that came from ``link``."""
        number = self._link_numbers.get(link)
        return number is not None and self._link_counts[number] > 0 and self._reached(filter, [number])[number]

    def _reached(self, filter: Filter, asked: list[int]) -> list[bool]:
        """Of every link that is asked for by its number, whether it is reached."""
        reached = np.full(len(self._links), YES, np.uint8)
        reached[asked] = NO
        bounds = outer_bounds(filter)
        if bounds is not None and self._rows.compare(reach_links, bounds, self._holds_advertisements, reached):
            self._decide(filter, reached)
        return reached.astype(np.bool_).tolist()

    def _decide(self, filter: Filter, reached: NDArray[np.uint8]) -> None:
        """Have no link left in doubt."""
        slots, _ = self._candidates(filter)
        links = self._rows.links[slots]
        for slot, link in zip(slots.tolist(), links.tolist(), strict=True):
            if reached[link] == PERHAPS and self._intersects(self._ids[slot], filter):
                reached[link] = YES
        reached[reached == PERHAPS] = NO

    def _candidates(self, filter: Filter) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The slots that may intersect ``filter``, in order, and of which that is certain."""
        bounds, count = outer_bounds(filter), 0
        found = np.empty(len(self._rows), np.int64)
        if bounds is not None:
            count = self._rows.compare(find_slots, bounds, self._holds_advertisements, found)
        found = np.sort(found[:count])
        return found >> 1, (found & 1).astype(np.bool_)

    def _intersects(self, id: Id, filter: Filter) -> bool:
        own = self._filters[id]
        return intersects(own, filter) if self._holds_advertisements else intersects(filter, own)

    def _link_number(self, link: Link) -> int:
        """The number of a link, of which one more filter is there."""
        number = self._link_numbers.get(link)
        if number is None:
            number = self._link_numbers[link] = len(self._links)
            self._links.append(link)
            self._link_counts.append(0)
        self._link_counts[number] += 1
        return number
