"""The compiled index: a `Matcher` whose work grows with what matches, not with what is there.

It holds no filter objects: filters are inserted by their wire form and become arrays (`overweave.matching.growth`), a few hundred
bytes each. Publications are matched in batches by one compiled call. An index belongs to one thread at a time.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from overweave.errors import DuplicateId
from overweave.language.codec import encode_filter, join_encoded
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.matching.base import Entry, Id, Link
from overweave.matching.growth import FilterArrays
from overweave.matching.kernels import state as layout
from overweave.matching.kernels.match import ALL, ANY, SKIP
from overweave.matching.queries import IndexQueries
from overweave.matching.registry import IdRegistry, LinkRegistry
from overweave.matching.search import view_of

_CHUNK = 4096


class Index(IndexQueries):
    """Filters by id and link, matched by compiled kernels.

    >>> from overweave.language.syntax import parse_filter, parse_publication
    >>> index = Index()
    >>> index.add("s1", parse_filter("[class,eq,'STOCK'],[volume,>,1000]"), link="B2")
    >>> index.add("s2", parse_filter("[class,eq,'STOCK'],[volume,<,5000]"))
    >>> quote = parse_publication("[class,'STOCK'],[volume,1200]")
    >>> sorted(index.match(quote)), index.next_hops(quote)
    (['s1', 's2'], {'B2'})
    >>> index.remove("s1")
    >>> index.match(quote), len(index)
    ({'s2'}, 1)
    """

    def __init__(self, hash_seed: int = 0) -> None:
        self._init(FilterArrays(layout.new_state(hash_seed)), IdRegistry(), LinkRegistry())

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> "Index":
        """An index over `arrays` of another one, perhaps of another process; its ids are slots, and it is not to be changed.

        The arrays are not copied. Kernels write to some of them, so a file is to be mapped copy-on-write.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"))
        >>> mapped = Index.from_arrays({name: array.copy() for name, array in index.arrays().items()})
        >>> len(mapped), mapped.match(Publication({"x": 1}))
        (1, {0})
        """
        index, filters = cls(), FilterArrays(layout.State(**arrays))
        index._ids.number_slots(filters.slots_used)
        index._links.reserve(len(filters.state.link_hits))
        index._init(filters, index._ids, index._links)
        return index

    def arrays(self) -> dict[str, NDArray[Any]]:
        """The arrays of all filters by name, to be saved; without ids (`slot_ids`). They are lent, in their present state.

        >>> sorted(Index().arrays())[:3]
        ['block_bits', 'block_checks', 'block_doubt']
        """
        return dict(self._filters.state._asdict())

    def slot_ids(self) -> Sequence[Id]:
        """The id of every slot; None in a slot without a filter.

        >>> Index().slot_ids()
        ()
        """
        return tuple(self._ids.by_slot)

    def memory_bytes(self) -> int:
        """The size of the arrays; it grows with the filters and does not shrink.

        >>> Index().memory_bytes() < 1_000_000
        True
        """
        return sum(array.nbytes for array in self._filters.state)

    def __len__(self) -> int:
        return len(self._filters)

    def __contains__(self, id: object) -> bool:
        return id in self._ids

    # ---- changes

    def add(self, id: Id, filter: Filter, link: Link = None) -> None:
        """See `Matcher.add`.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[volume,>,1000]"), link="B2")
        >>> "s1" in index
        True
        """
        self._ids.check_unused(id)
        encoded = encode_filter(filter)
        number = self._acquire_link(link)
        try:
            slot = self._filters.insert(encoded, number)
        except BaseException:
            self._links.release(number)
            raise
        self._ids.add(id, slot)

    def add_many(self, entries: Iterable[Entry]) -> None:
        """See `Matcher.add_many`; the entries are consumed in chunks.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add_many((i, parse_filter(f"[volume,>,{i}]"), None) for i in range(1000))
        >>> len(index), len(index.match(Publication({"volume": 600})))
        (1000, 600)
        """
        chunk: list[Entry] = []
        try:
            for entry in entries:
                chunk.append(entry)
                if len(chunk) == _CHUNK:
                    full, chunk = chunk, []
                    self._add_chunk(full)
        finally:  # also when the source fails: the entries before are added
            self._add_chunk(chunk)

    def add_encoded(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
        """Add filters in their wire form without ids or links, for indexes that are saved; their slots.

        Filter i is ``data[offsets[i]:offsets[i + 1]]``.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add_encoded(*join_encoded([encode_filter(parse_filter(f"[x,>,{i}]")) for i in range(2)])).tolist()
        [0, 1]
        """
        slots = np.empty(len(offsets) - 1, np.int32)
        self._filters.insert_bulk(data, offsets, np.zeros(len(slots), np.int32), slots)
        return slots

    def remove_slots(self, slots: Iterable[int]) -> None:
        """Remove filters that `add_encoded` added."""
        for slot in slots:
            self._filters.remove(slot)

    def remove(self, id: Id) -> None:
        """See `Matcher.remove`.

        >>> index = Index()
        >>> index.remove("s1")
        Traceback (most recent call last):
        overweave.errors.UnknownId: id 's1': expected one that was added
        """
        self._links.release(self._filters.remove(self._ids.remove(id)))

    # ---- queries of a matcher

    def match(self, publication: Publication) -> set[Id]:
        """See `Matcher.match`.

        >>> Index().match(Publication({"volume": 7}))
        set()
        """
        return self.match_batch((publication,))[0]

    def match_batch(self, publications: Sequence[Publication]) -> list[set[Id]]:
        """See `Matcher.match_batch`.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[volume,>,1000]"))
        >>> index.match_batch([Publication({"volume": 1200}), Publication({"volume": 800})])
        [{'s1'}, set()]
        """
        found, ids = self.search(view_of(publications), self._modes(ALL)), self._ids.by_slot
        return [{ids[slot] for slot in row.tolist()} for row in found.rows()]

    def next_hops(self, publication: Publication) -> set[Link]:
        """See `Matcher.next_hops`.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[volume,>,1000]"), link="B2")
        >>> index.next_hops(Publication({"volume": 1200}))
        {'B2'}
        """
        return self.next_hops_batch((publication,))[0]

    def next_hops_batch(self, publications: Sequence[Publication]) -> list[set[Link]]:
        """See `Matcher.next_hops_batch`.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[volume,>,1000]"), link="B2")
        >>> index.next_hops_batch([Publication({"volume": 1200}), Publication({"volume": 800})])
        [{'B2'}, set()]
        """
        modes = self._modes(ANY)
        modes[0] = SKIP
        hits = self.search(view_of(publications), modes).hits
        return [set(self._links.at(np.flatnonzero(row).tolist())) for row in hits]

    # ---- copies, and helpers

    def __getstate__(self) -> tuple[layout.State, IdRegistry, LinkRegistry]:
        """The arrays and registries, without addresses and caches."""
        return self._filters.state, self._ids, self._links

    def __setstate__(self, kept: tuple[layout.State, IdRegistry, LinkRegistry]) -> None:
        state, ids, links = kept
        self._init(FilterArrays(layout.State._make(array.copy() for array in state)), ids.copy(), links.copy())

    def _add_chunk(self, chunk: list[Entry]) -> None:
        encoded: list[bytes] = []
        numbers = np.empty(len(chunk), np.int32)
        fresh: set[Id] = set()
        try:
            for id, filter, link in chunk:
                self._ids.check_unused(id)
                if id in fresh:
                    raise DuplicateId(f"id {id!r}: expected one that is not in use")
                data = encode_filter(filter)
                numbers[len(encoded)] = self._acquire_link(link)
                encoded.append(data)
                fresh.add(id)
        finally:  # also when an entry was refused: those before it are added
            self._insert_bulk(chunk[: len(encoded)], encoded, numbers[: len(encoded)])

    def _insert_bulk(self, entries: list[Entry], encoded: list[bytes], numbers: NDArray[np.int32]) -> None:
        slots = np.empty(len(encoded), np.int32)
        self._filters.insert_bulk(*join_encoded(encoded), numbers, slots)
        for (id, _, _), slot in zip(entries, slots.tolist(), strict=True):
            self._ids.add(id, slot)

    def _acquire_link(self, link: Link) -> int:
        number = self._links.acquire(link)
        self._filters.grow_links(number + 1)
        return number
