"""Partitions: which filters a publication can match at all.

Each filter lies in one partition, named by its access key: the rarest of its equalities; without one, the presence of a
column that few others mention; without that, none (the universal partition). Equalities that are not a filter's access key are
counted here too, to know which are rare.

Within a partition, the filters of each link form a segment, so that a search can stop at the first that matches. Where that would
make many segments that are scanned, as of a broker with many clients, or where filters go by broker and not by neighbour,
links share one: they are its members, until one has so many filters that it gets a segment of its own.
"""

import numpy as np

from overweave.matching.kernels.blocks import add_to_blocks, end_blocks, is_taken, remove_from_blocks, start_blocks
from overweave.matching.kernels.compile import bits_of, inlined, kernel
from overweave.matching.kernels.handle import state_at
from overweave.matching.kernels.rows import ROWS_FIRST, add_row, end_rows, remove_row, start_rows
from overweave.matching.kernels.state import (
    BLOCK,
    BLOCKS,
    EQUAL,
    GONE,
    HASH_SEED,
    MEMBER,
    NONE,
    PARTITION_TABLE_USED,
    PARTITIONS_FREE,
    PARTITIONS_LIVE,
    PARTITIONS_USED,
    PRESENT,
    ROW_EXTENTS,
    ROWS,
    ROWS_MAX,
    ROWS_MIN,
    ROWS_USED,
    SEGMENTS_FREE,
    SEGMENTS_USED,
    SHARED,
    TEXT,
    UNIVERSAL,
    give_extent,
)
from overweave.matching.kernels.texts import release_text


@inlined
def find_equality(state, column, value, fine):
    """The partition of an equality, or NONE."""
    table = state.partition_table
    mask = np.uint64(len(table) - 1)
    at = _hash(state.counters[HASH_SEED], column, value, fine) & mask
    while True:
        number = table[at]
        if number == NONE:
            return np.int32(NONE)
        if number >= 0:
            found = state.partitions[number]
            if found.column == column and found.value == value and found.fine == fine:
                return number
        at = (at + np.uint64(1)) & mask


@kernel
def mention_equality(state, column, value, fine):
    """Count one more filter with this equality; its partition."""
    number = find_equality(state, column, value, fine)
    if number == NONE:
        number = _new_partition(state, EQUAL, column, value, fine)
        state.columns[column].keys += 1
        if state.columns[column].kind == TEXT:
            state.texts[np.int32(value)].references += 1
        state.counters[PARTITIONS_LIVE] += 1
        _enter(state.partition_table, state.partitions, number, state.counters)
    state.partitions[number].mentions += 1
    return number


@kernel
def unmention_equality(state, number):
    """Count one filter less; an equality that nobody asks for goes, with its text."""
    partition = state.partitions[number]
    partition.mentions -= 1
    if partition.mentions > 0:
        return
    mask = np.uint64(len(state.partition_table) - 1)
    at = _hash(state.counters[HASH_SEED], partition.column, partition.value, partition.fine) & mask
    while state.partition_table[at] != number:
        at = (at + np.uint64(1)) & mask
    state.partition_table[at] = GONE
    state.counters[PARTITIONS_LIVE] -= 1
    state.columns[partition.column].keys -= 1
    if state.columns[partition.column].kind == TEXT:
        release_text(state, np.int32(partition.value))
    _free_partition(state, number)


@kernel
def presence_partition(state, column):
    """The partition of the filters that need a value in this column; made when it is new."""
    if state.columns[column].present == NONE:
        state.columns[column].present = _new_partition(state, PRESENT, column, 0.0, 0)
    return state.columns[column].present


@kernel
def add_to_partition(state, number, link, slot):
    """Put a filter into the segment of its link, or into the shared one if its link is a member."""
    partition = state.partitions[number]
    segment = _find_link(state, partition.first, link)
    if segment == NONE:
        segment = _find_link(state, partition.members, link)
    if segment == NONE:
        segment = _new_member(state, number, link) if partition.shared != NONE else _new_segment(state, number, link)
    if state.segments[segment].kind == MEMBER and state.segments[segment].count == ROWS_MAX:
        _leave_shared(state, segment)
    state.slots[slot].segment = segment
    if state.segments[segment].kind == MEMBER:
        _add(state, partition.shared, slot)
        state.segments[segment].count += 1
        return
    partition.scanned += _add(state, segment, slot)
    if partition.scanned > ROWS_MAX and partition.shared == NONE:
        _share(state, number)


@kernel
def remove_from_partition(state, slot):
    """Take a filter out of its segment; the partition it was in."""
    number = state.slots[slot].segment
    segment = state.segments[number]
    partition = segment.partition
    found = state.partitions[partition]
    if segment.kind == MEMBER:
        segment.count -= 1
        _remove(state, found.shared, slot)
        if state.segments[found.shared].count == 0:
            _free_segment(state, found.shared)
            found.shared = NONE
    else:
        found.scanned += _remove(state, number, slot)
    if segment.count == 0:
        _free_segment(state, number)
    if found.first == NONE and found.kind == PRESENT:
        state.columns[found.column].present = NONE
        _free_partition(state, partition)
        return np.int32(NONE)
    return partition


@kernel
def rebuild_partitions(address, table):
    """Enter all equalities into an empty ``table``."""
    state = state_at(address)
    state.counters[PARTITION_TABLE_USED] = 0
    for number in range(state.counters[PARTITIONS_USED]):
        if state.partitions[number].kind == EQUAL:
            _enter(table, state.partitions, number, state.counters)


@kernel
def _find_link(state, segment, link):
    """The segment of a link among one and those that follow it, or NONE."""
    while segment != NONE and state.segments[segment].link != link:
        segment = state.segments[segment].next
    return segment


@kernel
def _add(state, number, slot):
    """Put a filter into rows or blocks; how many more filters are scanned then."""
    scanned = 1
    if state.segments[number].kind == ROWS and state.segments[number].count == ROWS_MAX:
        _rows_to_blocks(state, number)
        scanned = -ROWS_MAX
    if state.segments[number].kind == ROWS:
        add_row(state, number, slot)
        return scanned
    add_to_blocks(state, number, slot)
    return min(scanned, 0)


@kernel
def _remove(state, number, slot):
    """Take a filter out of rows or blocks; how many more filters are scanned then."""
    segment = state.segments[number]
    if segment.kind == ROWS:
        remove_row(state, number, slot)
        return -1
    remove_from_blocks(state, number, slot)
    if segment.count < ROWS_MIN and state.counters[ROWS_USED] + 2 * ROWS_MIN <= len(state.rows):
        _blocks_to_rows(state, number)
        return np.int64(segment.count)
    return 0


@kernel
def _share(state, number):
    """Have the links whose filters are scanned share one segment, as many as one block has room for."""
    partition = state.partitions[number]
    segment, own = partition.first, np.int32(NONE)
    partition.first = NONE
    partition.shared = _new_segment(state, number, SHARED)
    end_rows(state, partition.shared)
    start_blocks(state, partition.shared)
    while segment != NONE:
        after, count = state.segments[segment].next, state.segments[segment].count
        if state.segments[segment].kind == ROWS and state.segments[partition.shared].count + count <= BLOCK:
            first, capacity = state.segments[segment].first, state.segments[segment].capacity
            for at in range(first, first + count):
                add_to_blocks(state, partition.shared, state.rows[at].slot)
            give_extent(state.rows, state.counters, ROW_EXTENTS, first, capacity)
            partition.scanned -= count
            state.segments[segment].kind = MEMBER
            state.segments[segment].next = partition.members
            partition.members = segment
        else:
            state.segments[segment].next = own
            own = segment
        segment = after
    state.segments[partition.shared].next = own


@kernel
def _leave_shared(state, number):
    """Give a member a segment of its own, of blocks."""
    segment = state.segments[number]
    shared, count = state.partitions[segment.partition].shared, segment.count
    _list_member(state, shared, number)
    for i in range(count):
        _remove(state, shared, state.found[i])
    _unchain(state, number)
    start_blocks(state, number)
    segment.next = state.partitions[segment.partition].first
    state.partitions[segment.partition].first = number
    for i in range(count):
        add_to_blocks(state, number, state.found[i])
    if state.segments[shared].count == 0:
        state.partitions[segment.partition].shared = NONE
        _free_segment(state, shared)


@kernel
def _list_member(state, shared, member):
    """Write the slots of a member's filters to `found`."""
    count = 0
    if state.segments[shared].kind == ROWS:
        for at in range(state.segments[shared].first, state.segments[shared].first + state.segments[shared].count):
            if state.slots[state.rows[at].slot].segment == member:
                state.found[count] = state.rows[at].slot
                count += 1
        return
    block = state.segments[shared].first
    while block != NONE:
        for position in range(state.blocks[block].words * 64):
            slot = state.block_slots[block, position]
            if is_taken(state, block, position) and state.slots[slot].segment == member:
                state.found[count] = slot
                count += 1
        block = state.blocks[block].next


@kernel
def _rows_to_blocks(state, number):
    first, count, capacity = state.segments[number].first, state.segments[number].count, state.segments[number].capacity
    start_blocks(state, number)
    for at in range(first, first + count):
        add_to_blocks(state, number, state.rows[at].slot)
    give_extent(state.rows, state.counters, ROW_EXTENTS, first, capacity)


@kernel
def _blocks_to_rows(state, number):
    first = state.segments[number].first
    start_rows(state, number, 2 * ROWS_MIN)
    block = first
    while block != NONE:
        for position in range(state.blocks[block].words * 64):
            if is_taken(state, block, position):
                add_row(state, number, state.block_slots[block, position])
        block = state.blocks[block].next
    end_blocks(state, first)


@kernel
def _new_segment(state, partition, link):
    """An empty one of rows."""
    number = _take_segment(state, partition, link)
    state.segments[number].next = state.partitions[partition].first
    state.partitions[partition].first = number
    start_rows(state, number, ROWS_FIRST)
    return number


@kernel
def _new_member(state, partition, link):
    number = _take_segment(state, partition, link)
    state.segments[number].kind = MEMBER
    state.segments[number].count = 0
    state.segments[number].next = state.partitions[partition].members
    state.partitions[partition].members = number
    return number


@kernel
def _take_segment(state, partition, link):
    fresh = state.counters[SEGMENTS_FREE]
    if fresh == NONE:
        fresh = state.counters[SEGMENTS_USED]
        state.counters[SEGMENTS_USED] += 1
    else:
        state.counters[SEGMENTS_FREE] = state.segments[fresh].next
    state.segments[fresh].partition = partition
    state.segments[fresh].link = link
    return np.int32(fresh)


@kernel
def _free_segment(state, number):
    segment = state.segments[number]
    if segment.kind == ROWS:
        end_rows(state, number)
    elif segment.kind == BLOCKS:
        end_blocks(state, segment.first)
    _unchain(state, number)
    segment.next = state.counters[SEGMENTS_FREE]
    state.counters[SEGMENTS_FREE] = number


@kernel
def _unchain(state, number):
    """Take a segment out of those of its partition."""
    segment = state.segments[number]
    partition = state.partitions[segment.partition]
    before = partition.members if segment.kind == MEMBER else partition.first
    if before != number:
        while state.segments[before].next != number:
            before = state.segments[before].next
        state.segments[before].next = segment.next
    elif segment.kind == MEMBER:
        partition.members = segment.next
    else:
        partition.first = segment.next


@kernel
def _new_partition(state, kind, column, value, fine):
    fresh = state.counters[PARTITIONS_FREE]
    if fresh == NONE:
        fresh = state.counters[PARTITIONS_USED]
        state.counters[PARTITIONS_USED] += 1
    else:
        state.counters[PARTITIONS_FREE] = state.partitions[fresh].first
    partition = state.partitions[fresh]
    partition.value = value
    partition.fine = fine
    partition.column = column
    partition.kind = kind
    partition.mentions = 0
    partition.first = NONE
    partition.shared = NONE
    partition.members = NONE
    partition.scanned = 0
    return np.int32(fresh)


@kernel
def _free_partition(state, number):
    state.partitions[number].kind = UNIVERSAL  # not found by `rebuild_partitions`
    state.partitions[number].first = state.counters[PARTITIONS_FREE]
    state.counters[PARTITIONS_FREE] = number


@inlined
def _hash(seed, column, value, fine):
    digest = bits_of(value) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(np.int64(column) * 65_536 + fine)
    digest = (digest ^ np.uint64(seed) ^ (digest >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    digest = (digest ^ np.uint64(seed) ^ (digest >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return digest ^ (digest >> np.uint64(31))


@kernel
def _enter(table, partitions, number, counters):
    partition = partitions[number]
    mask = np.uint64(len(table) - 1)
    at = _hash(counters[HASH_SEED], partition.column, partition.value, partition.fine) & mask
    while table[at] >= 0:
        at = (at + np.uint64(1)) & mask
    if table[at] == NONE:
        counters[PARTITION_TABLE_USED] += 1
    table[at] = number
