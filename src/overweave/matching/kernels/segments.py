"""Segments: where the filters of a partition lie.

The filters of each link form a segment, so that a search can stop at the first that matches. Where that would make many segments
that are scanned, as of a broker with many clients, or where filters go by broker and not by neighbour, links share one: they are
its members, until one has enough filters that it gets a segment of its own.
"""

import numpy as np

from overweave.matching.kernels.blocks import add_to_blocks, end_blocks, is_taken, remove_from_blocks, start_blocks
from overweave.matching.kernels.compile import kernel
from overweave.matching.kernels.rows import ROWS_FIRST, add_row, end_rows, remove_row, start_rows
from overweave.matching.kernels.state import (
    BLOCK,
    BLOCKS,
    MEMBER,
    NONE,
    ROW_EXTENTS,
    ROWS,
    ROWS_MAX,
    ROWS_MIN,
    ROWS_USED,
    SEGMENTS_FREE,
    SEGMENTS_USED,
    SHARED,
    give_extent,
)


@kernel
def add_to_segment(state, number, link, slot):
    """Put a filter of a partition into the segment of its link, or into the shared one if its link is a member."""
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
def take_from_segment(state, slot):
    """Take a filter out of where it lies; the partition it was in."""
    number = state.slots[slot].segment
    segment = state.segments[number]
    partition = state.partitions[segment.partition]
    if segment.kind == MEMBER:
        segment.count -= 1
        _remove(state, partition.shared, slot)
        if state.segments[partition.shared].count == 0:
            _free_segment(state, partition.shared)
            partition.shared = NONE
    else:
        partition.scanned += _remove(state, number, slot)
    found = segment.partition
    if segment.count == 0:
        _free_segment(state, number)
    return found


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
