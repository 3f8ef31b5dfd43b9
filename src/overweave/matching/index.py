"""The compiled index: a `Matcher` whose work grows with what matches, not with what is there.

It keeps no filter objects: filters go in by their wire form and become arrays (see `overweave.matching.kernels`), a few hundred
bytes each. Publications are matched in batches by one compiled call. An index belongs to one thread at a time.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from overweave.errors import DuplicateId, UnknownId, WireError
from overweave.language.codec import address_of_bytes, address_of_publication, encode_filter, encode_publication, join_encoded
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.matching.base import Entry, Id, Link
from overweave.matching.kernels import state as layout
from overweave.matching.kernels.columns import BOUNDS_SAMPLED, cut_column, sample_bounds
from overweave.matching.kernels.compile import direct
from overweave.matching.kernels.handle import address_of, table_of
from overweave.matching.kernels.insert import DONE, LOOK, MALFORMED, due_column, insert_filter, insert_filters
from overweave.matching.kernels.match import (
    HOW_MANY,
    NOTHING,
    WHETHER,
    WHICH,
    count_matches,
    first_bad_range,
    group_by_link,
    hit_filters,
    hit_links,
    hit_links_each,
    match_publications,
    rows_by_mask,
)
from overweave.matching.kernels.partitions import rebuild_partitions
from overweave.matching.kernels.planes import redraw_column
from overweave.matching.kernels.remove import remove_filter
from overweave.matching.kernels.texts import rebuild_texts

_CHUNK = 4096
#: So many matches are listed at once, or those of one publication if they can be more.
_LISTED = 1 << 24
_NO_SLOTS = np.empty(0, np.int32)
_NO_ROOM_TO_LIST = np.empty((1, 0), np.int32), _NO_SLOTS
#: So many sets of links are remembered by their mask.
_MASKS_MAX = 4096
#: What makes an index; the rest follows from it.
_KEPT = ("_state", "_slots", "_ids", "_links", "_link_numbers", "_link_counts", "_free_links")


Number = TypeVar("Number", np.uint8, np.int64)


class Found(NamedTuple):
    """What a batch matched: per row and link whether a filter did, and the slots of those that were listed, row after row.

    The slots are lent: they hold until the index is asked again.
    """

    hits: NDArray[np.bool_]
    slots: NDArray[np.int32]
    ends: NDArray[np.int64]

    def rows(self) -> Iterator[NDArray[np.int32]]:
        """The listed slots of each row."""
        start = 0
        for end in self.ends.tolist():
            yield self.slots[start:end]
            start = end


class Index:
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
        self._hold(layout.new_state(hash_seed))
        self._slots: dict[Id, int] = {}
        self._ids: list[Id] = []
        #: Links by number, with how many filters each has; number 0 is the broker itself.
        self._links: list[Link] = [None]
        self._link_numbers: dict[Link, int] = {None: 0}
        self._link_counts: list[int] = [0]
        self._free_links: list[int] = []
        self._prepare()

    @classmethod
    def over(cls, arrays: Mapping[str, NDArray[Any]]) -> "Index":
        """An index over what `arrays` gave, perhaps in another process; the ids are slots, and nothing may be added or removed.

        The arrays are not copied. Kernels write to some of them, so what is mapped from a file has to be mapped copy-on-write.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"))
        >>> mapped = Index.over({name: array.copy() for name, array in index.arrays().items()})
        >>> len(mapped), mapped.match(Publication({"x": 1}))
        (1, {0})
        """
        index = cls()
        index._hold(layout.State(**arrays))
        index._ids = cast("list[Id]", range(int(index._state.counters[layout.SLOTS_USED])))
        index._links = [None] * len(index._state.link_hits)
        return index

    def arrays(self) -> dict[str, NDArray[Any]]:
        """All that is known of the filters, by name, to be saved; the ids are apart (`id_of`). They are lent, as they are now.

        >>> sorted(Index().arrays())[:3]
        ['block_bits', 'block_checks', 'block_doubt']
        """
        return dict(self._state._asdict())

    def slot_ids(self) -> Sequence[Id]:
        """The id of every slot, as `id_of` knows them; None where there is none (any more).

        >>> Index().slot_ids()
        ()
        """
        return tuple(self._ids)

    def __len__(self) -> int:
        return int(self._state.counters[layout.FILTERS])

    def __contains__(self, id: object) -> bool:
        return isinstance(id, Hashable) and id in self._slots

    def add(self, id: Id, filter: Filter, link: Link = None) -> None:
        """See `Matcher.add`.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[volume,>,1000]"), link="B2")
        >>> "s1" in index
        True
        """
        if id in self._slots:
            raise DuplicateId(f"id {id!r}: expected one that is not in use")
        encoded = encode_filter(filter)
        number = self._link_number(link)
        try:
            slot = self._insert_one(encoded, number)
        except BaseException:
            self._release_link(number)
            raise
        self._name(id, slot)

    def add_many(self, entries: Iterable[Entry]) -> None:
        """See `Matcher.add_many`; the entries are consumed in pieces and not kept.

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
        finally:  # also when the source fails: what it gave is in
            self._add_chunk(chunk)

    def add_encoded(self, data: NDArray[np.uint8], offsets: NDArray[np.int64]) -> NDArray[np.int32]:
        """Add filters in their wire form without ids or links, for indexes that are saved; answers with their slots.

        Filter i is ``data[offsets[i]:offsets[i + 1]]``.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add_encoded(*join_encoded([encode_filter(parse_filter(f"[x,>,{i}]")) for i in range(2)])).tolist()
        [0, 1]
        """
        slots = np.empty(len(offsets) - 1, np.int32)
        self._insert(data, offsets, np.zeros(len(slots), np.int32), slots)
        return slots

    def remove_slots(self, slots: Iterable[int]) -> None:
        """Remove filters that `add_encoded` added."""
        for slot in slots:
            self._remove_filter(self._address, slot)

    def remove(self, id: Id) -> None:
        """See `Matcher.remove`.

        >>> index = Index()
        >>> index.remove("s1")
        Traceback (most recent call last):
        overweave.errors.UnknownId: id 's1': expected one that was added
        """
        slot = self._slots.pop(id, None)
        if slot is None:
            raise UnknownId(f"id {id!r}: expected one that was added")
        self._ids[slot] = None
        self._release_link(self._remove_filter(self._address, slot))

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
        found = self.search(*encoded_batch(publications), np.full(len(self._links), WHICH, np.int8))
        ids = self._ids
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
        wanted = np.full(len(self._links), WHETHER, np.int8)
        wanted[0] = NOTHING
        hits = self.search(*encoded_batch(publications), wanted).hits
        links = self._links
        return [{links[number] for number in np.flatnonzero(row).tolist()} for row in hits]

    def links(self, publication: Publication, exclude: Link = None) -> Sequence[Link]:
        """The next hops of one publication but ``exclude``: `next_hops` for those who ask at every hop of every publication.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> for id, link in (("s1", "B2"), ("s2", "B3"), ("s3", None)):
        ...     index.add(id, parse_filter("[x,>,0]"), link)
        >>> index.links(Publication({"x": 1}), exclude="B2")
        ('B3',)
        """
        place, length = publication._place or address_of_publication(publication)
        mask = self._hit_links(self._address, place, length, self._link_numbers.get(exclude, 0))
        links = self._masks.get(mask)
        return self._links_in(mask) if links is None else links

    def links_of_places(self, places: NDArray[np.int64], exclude: Link = None) -> list[tuple[Link, NDArray[np.int64]]]:
        """`links` of publications that lie at several places (`address_of_publication`): each link with the rows that go there.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"), link="B2")
        >>> several = [Publication({"x": x}) for x in (1, 0, 2)]
        >>> places = np.array([address_of_publication(publication) for publication in several])
        >>> [(link, rows.tolist()) for link, rows in index.links_of_places(places)]
        [('B2', [0, 2])]
        """
        masks = np.empty(len(places), np.int64)
        united = hit_links_each(self._address, places, self._link_numbers.get(exclude, 0), masks)
        if united < 0:
            return self._links_of_many(places, exclude)
        links, ends = np.empty((2, united.bit_count()), np.int64)
        rows = np.empty(len(masks) * len(links), np.int64)
        rows_by_mask(masks, united, links, ends, rows)
        found, start = [], 0
        for link, end in zip(links.tolist(), ends.tolist(), strict=True):
            found.append((self._links[link], rows[start:end]))
            start = end
        return found

    def ids(self, publication: Publication) -> list[Id]:
        """The ids of all filters that one publication satisfies, in any order: `match` for those who ask as often.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"), link="B2")
        >>> index.ids(Publication({"x": 1})), index.ids(Publication({"x": 0}))
        (['s1'], [])
        """
        count = self._hit_filters(self._address, *(publication._place or address_of_publication(publication)))
        if count <= 0:
            _refuse_if(count == layout.NONE)
            return []
        ids = self._ids
        return [ids[slot] for slot in self._state.found[:count].tolist()]

    def links_of_rows(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], exclude: Link = None
    ) -> list[tuple[Link, NDArray[np.int64]]]:
        """`links` of many publications, turned round: each link with the rows, in order, that have to go there.

        Row i is the wire form in ``data[starts[i]:ends[i]]``; what lies between rows does not matter.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"), link="B2")
        >>> several = encoded_batch([Publication({"x": x}) for x in (1, 0, 2)])
        >>> [(link, rows.tolist()) for link, rows in index.links_of_rows(*several)]
        [('B2', [0, 2])]
        """
        wanted = np.full(len(self._links), WHETHER, np.int8)
        wanted[0] = wanted[self._link_numbers.get(exclude, 0)] = NOTHING
        positions = np.flatnonzero(self.search(data, starts, ends, wanted).hits)
        rows, stops = np.empty_like(positions), np.zeros(len(wanted), np.int64)
        group_by_link(positions, len(wanted), stops, rows)
        grouped, start = [], 0
        for link, stop in zip(self._links, stops.tolist(), strict=True):
            if stop > start:
                grouped.append((link, rows[start:stop]))
                start = stop
        return grouped

    def ids_of_rows(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[list[Id], NDArray[np.int64]]:
        """`ids` of many publications, given as to `links_of_rows`: all in a row, and where those of each row end.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"), link="B2")
        >>> ids, ends = index.ids_of_rows(*encoded_batch([Publication({"x": x}) for x in (1, 0, 2)]))
        >>> ids, ends.tolist()
        (['s1', 's1'], [1, 1, 2])
        """
        found = self.search(data, starts, ends, np.full(len(self._links), WHICH, np.int8))
        ids = self._ids
        return [ids[slot] for slot in found.slots.tolist()], found.ends

    def slots_of_rows(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]
    ) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """`ids_of_rows` as numbers, which `id_of` knows until filters come or go.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"))
        >>> slots, ends = index.slots_of_rows(*encoded_batch([Publication({"x": 1})]))
        >>> index.id_of(slots[0]), ends.tolist()
        ('s1', [1])
        """
        found = self.search(data, starts, ends, np.full(len(self._links), WHICH, np.int8))
        return found.slots.copy(), found.ends

    def counts_of_rows(self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.int64]:
        """How many filters each of many publications satisfies, given as to `links_of_rows`; quicker than to list them.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"))
        >>> index.counts_of_rows(*encoded_batch([Publication({"x": x}) for x in (1, 0)])).tolist()
        [1, 0]
        """
        data, starts, stops = _borrowed(data, np.uint8), _borrowed(starts, np.int64), _borrowed(ends, np.int64)
        _check_ranges(len(data), starts, stops)
        counts, links = np.zeros(len(starts), np.int64), len(self._links)
        hits = np.zeros((layout.TILE, links), np.bool_)
        done = count_matches(self._address, data, starts, stops, np.full(links, HOW_MANY, np.int8), hits, counts)
        _refuse_row(done, starts)
        return counts

    def id_of(self, slot: int | np.integer) -> Id:
        """The id of a filter by the number that `slots_of_rows` gave."""
        return self._ids[slot]

    def search(
        self, data: NDArray[np.uint8], starts: NDArray[np.int64], ends: NDArray[np.int64], wanted: NDArray[np.int8]
    ) -> Found:
        """What publications, given as to `links_of_rows`, match, per link as ``wanted``: NOTHING, WHETHER or WHICH.

        >>> from overweave.language.syntax import parse_filter
        >>> index = Index()
        >>> index.add("s1", parse_filter("[x,>,0]"))
        >>> found = index.search(*encoded_batch([Publication({"x": 1}), Publication({"x": 0})]), np.array([WHICH], np.int8))
        >>> [len(row) for row in found.rows()]
        [1, 0]
        """
        if len(wanted) != len(self._links):
            raise ValueError(f"wanted: expected an answer for each of {len(self._links)} links, got {len(wanted)}")
        data, starts, stops = _borrowed(data, np.uint8), _borrowed(starts, np.int64), _borrowed(ends, np.int64)
        _check_ranges(len(data), starts, stops)
        rows = len(starts)
        hits = np.zeros((rows, len(self._links)), np.bool_)
        ends = np.zeros(rows, np.int64)
        pieces: list[NDArray[np.int32]] = []
        row = 0
        while row < rows:
            found, slots = self._scratch()
            done = match_publications(self._address, data, starts, stops, row, wanted, hits, found, slots, ends)
            if done < rows and ends[done] == layout.NONE:
                _refuse_row(done, starts)
            piece = slots[: ends[done - 1]]
            pieces.append(piece if done == rows else piece.copy())
            ends[row:done] += sum(map(len, pieces[:-1]))
            row = done
        return Found(hits, pieces[0] if len(pieces) == 1 else np.concatenate([_NO_SLOTS, *pieces]), ends)

    def __getstate__(self) -> dict[str, object]:
        """All but addresses and what is there for speed alone, so that a copy stands on its own."""
        return {name: self.__dict__[name] for name in _KEPT}

    def __setstate__(self, kept: dict[str, object]) -> None:
        self.__dict__.update(kept)
        self._hold(layout.State._make(array.copy() for array in self._state))
        self._slots, self._ids = dict(self._slots), list(self._ids)
        self._links, self._link_counts, self._free_links = list(self._links), list(self._link_counts), list(self._free_links)
        self._link_numbers = dict(self._link_numbers)
        self._prepare()

    def memory_bytes(self) -> int:
        """How much room the arrays take; it grows with the filters and is kept for new ones when they go.

        >>> Index().memory_bytes() < 1_000_000
        True
        """
        return sum(array.nbytes for array in self._state)

    def _prepare(self) -> None:
        """Make what an index has for speed alone."""
        self._hit_links, self._hit_filters = direct(hit_links), direct(hit_filters)
        self._insert_filter, self._remove_filter = direct(insert_filter), direct(remove_filter)
        #: Links by the mask of their numbers, as long as the links stay the same.
        self._masks: dict[int, tuple[Link, ...]] = {}
        #: Where kernels list what matches: for each of the publications matched together, and all in a row.
        self._listed = _NO_ROOM_TO_LIST

    def _add_chunk(self, chunk: list[Entry]) -> None:
        encoded: list[bytes] = []
        numbers = np.empty(len(chunk), np.int32)
        fresh: set[Id] = set()
        try:
            for id, filter, link in chunk:
                if id in self._slots or id in fresh:
                    raise DuplicateId(f"id {id!r}: expected one that is not in use")
                data = encode_filter(filter)
                numbers[len(encoded)] = self._link_number(link)
                encoded.append(data)
                fresh.add(id)
        finally:  # also when one was refused: those before it are in
            self._take_in(chunk[: len(encoded)], encoded, numbers[: len(encoded)])

    def _take_in(self, entries: list[Entry], encoded: list[bytes], numbers: NDArray[np.int32]) -> None:
        slots = np.empty(len(encoded), np.int32)
        self._insert(*join_encoded(encoded), numbers, slots)
        for (id, _, _), slot in zip(entries, slots.tolist(), strict=True):
            self._name(id, slot)

    def _insert(
        self, data: NDArray[np.uint8], offsets: NDArray[np.int64], numbers: NDArray[np.int32], slots: NDArray[np.int32]
    ) -> None:
        why, done = insert_filters(self._address, data, offsets, numbers, slots, 0)
        while why != DONE:
            if why == MALFORMED:
                raise WireError(int(offsets[done]), "a filter in its wire form")
            if why == LOOK:
                self._look_at_buckets(int(slots[done - 1]))
            else:
                self._make_room()
            why, done = insert_filters(self._address, data, offsets, numbers, slots, done)

    def _insert_one(self, encoded: bytes, number: int) -> int:
        while True:
            slot: int
            slot, why = divmod(self._insert_filter(self._address, *address_of_bytes(encoded), number), 4)
            if why == MALFORMED:
                raise WireError(0, "a filter in its wire form")
            if why == LOOK:
                self._look_at_buckets(slot)
            if why in (DONE, LOOK):
                return slot
            self._make_room()

    def _name(self, id: Id, slot: int) -> None:
        if slot >= len(self._ids):
            self._ids.extend([None] * (slot + 1 - len(self._ids)))
        self._slots[id] = slot
        self._ids[slot] = id

    def _links_in(self, mask: int) -> tuple[Link, ...]:
        """The links of an answer of `hit_links`; what it says by mask is kept."""
        _refuse_if(mask == layout.NONE)
        links = self._links
        if mask < 0:
            return tuple([links[number] for number in self._state.link_found[: layout.NONE - 1 - mask].tolist()])
        if len(self._masks) >= _MASKS_MAX:
            self._masks.clear()
        found, rest = [], mask
        while rest:  # few links of many
            found.append(links[(rest & -rest).bit_length() - 1])
            rest &= rest - 1
        made = self._masks[mask] = tuple(found)
        return made

    def _links_of_many(self, places: NDArray[np.int64], exclude: Link) -> list[tuple[Link, NDArray[np.int64]]]:
        """`links_of_places` where links are too many for a mask, or a publication is malformed."""
        found: dict[Link, list[int]] = {}
        for row, (place, length) in enumerate(places.tolist()):
            for link in self._links_in(self._hit_links(self._address, place, length, self._link_numbers.get(exclude, 0))):
                found.setdefault(link, []).append(row)
        return [(link, np.array(rows)) for link, rows in found.items()]

    def _scratch(self) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Room for kernels to list all filters, several times over; only what is written to takes memory."""
        if self._listed[0].shape[1] < max(len(self), 1):
            self._listed = _room_to_list(max(len(self) * 5 // 4, 16))
        return self._listed

    def _look_at_buckets(self, slot: int) -> None:
        """Have the buckets of the filter's columns follow the quantiles of the bounds."""
        while (column := due_column(self._address, slot)) != layout.NONE:
            sample = np.empty(BOUNDS_SAMPLED, np.float64)
            sample = np.sort(sample[: sample_bounds(self._address, column, sample)])
            if cut_column(self._address, column, sample):
                redraw_column(self._address, column)

    def _make_room(self) -> None:
        """Grow what is short; the dictionary's bytes are first cleared of garbage, and the hash tables rebuilt."""
        state, counters, needed = self._state, self._state.counters, self._state.needed
        texts = int(counters[layout.TEXTS_LIVE] + needed[1])
        if 2 * (counters[layout.TEXT_TABLE_USED] + needed[1]) > len(state.text_table) or (
            2 * counters[layout.HEAP_GARBAGE] > len(state.heap)
        ):
            table, heap = _empty_table(texts), np.empty_like(state.heap)
            rebuild_texts(self._address, table, heap)
            state = self._hold(state._replace(text_table=table, heap=heap))
        if 2 * (counters[layout.PARTITION_TABLE_USED] + needed[4]) > len(state.partition_table):
            table = _empty_table(int(counters[layout.PARTITIONS_LIVE] + needed[4]))
            rebuild_partitions(self._address, table)
            state = self._hold(state._replace(partition_table=table))
        try:
            layout.make_room(state)
        finally:  # also when memory ran out half-way: arrays may have moved
            self._hold(state)

    def _hold(self, state: layout.State) -> layout.State:
        """Make ``state`` the one that kernels see."""
        self._state = state
        self._table = table_of(state)
        self._address = address_of(self._table)
        return state

    def _link_number(self, link: Link) -> int:
        number = self._link_numbers.get(link)
        if number is None:
            if self._free_links:
                number = self._free_links.pop()
            else:
                number = len(self._links)
                self._links.append(link)
                self._link_counts.append(0)
                if number >= len(self._state.link_hits):
                    layout.make_room_for_links(self._state, number + 1)
                    self._hold(self._state)
            self._links[number] = link
            self._link_numbers[link] = number
            self._links_changed()
        self._link_counts[number] += 1
        return number

    def _release_link(self, number: int) -> None:
        self._link_counts[number] -= 1
        if self._link_counts[number] == 0 and number > 0:
            del self._link_numbers[self._links[number]]
            self._links[number] = None
            self._free_links.append(number)
            self._links_changed()

    def _links_changed(self) -> None:
        self._masks.clear()


def encoded_batch(publications: Sequence[Publication]) -> tuple[NDArray[np.uint8], NDArray[np.int64], NDArray[np.int64]]:
    """Publications as one buffer in their wire form, with where each starts and ends.

    >>> data, starts, ends = encoded_batch([Publication({"x": 1}), Publication({"x": "a"})])
    >>> len(data), starts.tolist(), ends.tolist()
    (23, [0, 13], [13, 23])
    """
    data, offsets = join_encoded([encode_publication(publication) for publication in publications])
    return data, offsets[:-1], offsets[1:]


def _refuse_if(malformed: bool) -> None:
    if malformed:
        raise WireError(0, "a publication in its wire form")


def _refuse_row(row: int, starts: NDArray[np.int64]) -> None:
    """Refuse the publication of a row, unless there is none."""
    if row < len(starts):
        raise WireError(int(starts[row]), f"a publication in its wire form (row {row} of the batch)")


def _borrowed(array: NDArray[Number], kind: type[Number]) -> NDArray[Number]:
    """The array as kernels take it: they are compiled for one kind, in a row and not to be written to."""
    flags = array.flags
    if array.dtype != kind or not flags.c_contiguous or not flags.aligned:
        array = np.require(array, kind, ("C", "A"))
    view = array.view()
    view.flags.writeable = False
    return view


def _check_ranges(length: int, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
    if starts.ndim != 1 or starts.shape != ends.shape:
        raise ValueError(f"starts and ends: expected one of each for every row, got {starts.shape} and {ends.shape}")
    row = first_bad_range(length, starts, ends)
    if row < len(starts):
        raise ValueError(f"row {row}: expected a range within {length} bytes, got {starts[row]} to {ends[row]}")


def _empty_table(members: int) -> NDArray[np.int32]:
    """An open-addressing table that is at most a quarter full with ``members``."""
    return np.full(1 << max(8, (4 * members).bit_length()), layout.NONE, np.int32)


def _room_to_list(filters: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    together = min(max(_LISTED // filters, 1), layout.TILE)
    return np.empty((together, filters), np.int32), np.empty(max(filters, min(_LISTED, 1024 * filters)), np.int32)
