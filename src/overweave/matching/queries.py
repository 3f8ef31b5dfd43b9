"""The queries of an index: of one publication at the speed of a single compiled call, or of several."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from overweave.language.codec import address_of_publication
from overweave.language.publications import Publication
from overweave.matching.base import Id, Link
from overweave.matching.growth import FilterArrays
from overweave.matching.kernels import state as layout
from overweave.matching.kernels.compile import direct
from overweave.matching.kernels.match import (
    ALL,
    ANY,
    SKIP,
    group_by_link,
    hit_filters,
    hit_links,
    hit_links_each,
    rows_by_mask,
)
from overweave.matching.registry import IdRegistry, LinkRegistry
from overweave.matching.search import Found, PublicationView, Scratch, count_view, refuse_if, search_view


class IndexQueries:
    """Filters with ids and links that can be queried; `overweave.matching.index.Index` is the whole of it."""

    def _init(self, filters: FilterArrays, ids: IdRegistry, links: LinkRegistry) -> None:
        self._filters, self._ids, self._links = filters, ids, links
        self._scratch = Scratch()
        # Read at every publication, hence at hand.
        self._hit_links, self._hit_filters = direct(hit_links), direct(hit_filters)
        self._link_numbers, self._links_by_mask = links.numbers, links.by_mask

    def links(self, publication: Publication, exclude: Link = None) -> Sequence[Link]:
        """The next hops of one publication except one: `next_hops` at the speed of a single compiled call.

        >>> from overweave.language.syntax import parse_filter
        >>> from overweave.matching.index import Index, view_of
        >>> index = Index()
        >>> for id, link in (("s1", "B2"), ("s2", "B3"), ("s3", None)):
        ...     index.add(id, parse_filter("[x,>,0]"), link)
        >>> index.links(Publication({"x": 1}), exclude="B2")
        ('B3',)
        """
        address, length = publication._address or address_of_publication(publication)
        mask = self._hit_links(self._filters.address, address, length, self._link_numbers.get(exclude, 0))
        links = self._links_by_mask.get(mask)
        return self._links_in(mask) if links is None else links

    def ids(self, publication: Publication) -> list[Id]:
        """The ids of all filters that one publication matches, in any order: `match` at the speed of a single compiled call.

        >>> from overweave.language.syntax import parse_filter
        >>> from overweave.matching.index import Index, view_of
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"), link="B2")
        >>> index.ids(Publication({"x": 1})), index.ids(Publication({"x": 0}))
        (['s1'], [])
        """
        count = self._hit_filters(self._filters.address, *(publication._address or address_of_publication(publication)))
        if count <= 0:
            refuse_if(count == layout.NONE)
            return []
        ids = self._ids.by_slot
        return [ids[slot] for slot in self._filters.state.found[:count].tolist()]

    def rows_by_link(self, publications: PublicationView, exclude: Link = None) -> list[tuple[Link, NDArray[np.int64]]]:
        """`links` of several publications by link: each link with the rows, in order, that match there.

        >>> from overweave.language.syntax import parse_filter
        >>> from overweave.matching.index import Index, view_of
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"), link="B2")
        >>> several = view_of([Publication({"x": x}) for x in (1, 0, 2)])
        >>> [(link, rows.tolist()) for link, rows in index.rows_by_link(several)]
        [('B2', [0, 2])]
        """
        modes = self._modes(ANY)
        modes[0] = modes[self._link_numbers.get(exclude, 0)] = SKIP
        positions = np.flatnonzero(self.search(publications, modes).hits)
        rows, ends = np.empty_like(positions), np.zeros(len(modes), np.int64)
        group_by_link(positions, len(modes), ends, rows)
        grouped, start = [], 0
        for link, end in zip(self._links.links, ends.tolist(), strict=True):
            if end > start:
                grouped.append((link, rows[start:end]))
                start = end
        return grouped

    def addresses_by_link(self, addresses: NDArray[np.int64], exclude: Link = None) -> list[tuple[Link, NDArray[np.int64]]]:
        """`rows_by_link` of publications apart in memory, given by their addresses and lengths (`address_of_publication`).

        >>> from overweave.language.syntax import parse_filter
        >>> from overweave.matching.index import Index, view_of
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"), link="B2")
        >>> several = [Publication({"x": x}) for x in (1, 0, 2)]
        >>> addresses = np.array([address_of_publication(publication) for publication in several])
        >>> [(link, rows.tolist()) for link, rows in index.addresses_by_link(addresses)]
        [('B2', [0, 2])]
        """
        masks, excluded = np.empty(len(addresses), np.int64), self._link_numbers.get(exclude, 0)
        united = hit_links_each(self._filters.address, addresses, excluded, masks)
        if united < 0:  # too many links for a mask, or a malformed publication
            return self._by_link_one_by_one(addresses, excluded)
        numbers, ends = np.empty((2, united.bit_count()), np.int64)
        rows = np.empty(len(masks) * len(numbers), np.int64)
        rows_by_mask(masks, united, numbers, ends, rows)
        found, links, start = [], self._links.links, 0
        for number, end in zip(numbers.tolist(), ends.tolist(), strict=True):
            found.append((links[number], rows[start:end]))
            start = end
        return found

    def slots(self, publications: PublicationView) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """The slots of all filters that several publications match (`id_of`), row after row, and the end of each row.

        >>> from overweave.language.syntax import parse_filter
        >>> from overweave.matching.index import Index, view_of
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"))
        >>> slots, ends = index.slots(view_of([Publication({"x": 1})]))
        >>> index.id_of(slots[0]), ends.tolist()
        ('s1', [1])
        """
        found = self.search(publications, self._modes(ALL))
        return found.slots.copy(), found.ends

    def counts(self, publications: PublicationView) -> NDArray[np.int64]:
        """The number of filters that each of several publications matches; faster than `slots`.

        >>> from overweave.language.syntax import parse_filter
        >>> from overweave.matching.index import Index, view_of
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"))
        >>> index.counts(view_of([Publication({"x": x}) for x in (1, 0)])).tolist()
        [1, 0]
        """
        return count_view(self._filters, len(self._links.links), publications)

    def search(self, publications: PublicationView, modes: NDArray[np.int8]) -> Found:
        """The matches of several publications, by the mode of each link: SKIP, ANY or ALL.

        >>> from overweave.language.syntax import parse_filter
        >>> from overweave.matching.index import Index, view_of
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"))
        >>> found = index.search(view_of([Publication({"x": 1}), Publication({"x": 0})]), np.array([ALL], np.int8))
        >>> [len(row) for row in found.rows()]
        [1, 0]
        """
        if len(modes) != len(self._links.links):
            raise ValueError(f"modes: expected one for each of {len(self._links.links)} links, got {len(modes)}")
        return search_view(self._filters, self._scratch, publications, modes)

    def id_of(self, slot: int | np.integer) -> Id:
        """The id of the filter in a slot (`slots`)."""
        return self._ids.by_slot[slot]

    def _modes(self, mode: int) -> NDArray[np.int8]:
        """One mode for all links."""
        return np.full(len(self._links.links), mode, np.int8)

    def _links_in(self, mask: int) -> tuple[Link, ...]:
        """The links in an answer of `hit_links`."""
        refuse_if(mask == layout.NONE)
        if mask >= 0:
            return self._links.in_mask(mask)
        return self._links.at(self._filters.state.link_found[: layout.NONE - 1 - mask].tolist())

    def _by_link_one_by_one(self, addresses: NDArray[np.int64], excluded: int) -> list[tuple[Link, NDArray[np.int64]]]:
        found: dict[Link, list[int]] = {}
        for row, (address, length) in enumerate(addresses.tolist()):
            for link in self._links_in(self._hit_links(self._filters.address, address, length, excluded)):
                found.setdefault(link, []).append(row)
        return [(link, np.array(rows)) for link, rows in found.items()]
