"""Planes: per block and column, which filters reject a bucket and which have a bound in it; and pages, with those bounds.

Each plane of a block has a lane: its place among the block's planes, and so in the pages. A freed lane is used again.
"""

import numpy as np

from overweave.matching.kernels.columns import bucket_of, covers_bucket
from overweave.matching.kernels.compile import LANES, WORDS, inlined, kernel
from overweave.matching.kernels.handle import state_at
from overweave.matching.kernels.numbers import FINE_NAN, INFINITY
from overweave.matching.kernels.state import (
    ABSENT,
    BLOCKS_USED,
    EDGES,
    NAN_BUCKET,
    NONE,
    PAGES_FREE,
    PAGES_USED,
    PLANES_FREE,
    PLANES_MAX,
    PLANES_USED,
)

_ONE = np.uint64(1)
_ZERO = np.uint64(0)


@kernel
def redraw_column(address, column):
    """Redraw the planes of a column after its edges have changed."""
    state = state_at(address)
    for block in range(state.counters[BLOCKS_USED]):
        if state.blocks[block].segment == NONE:
            continue
        plane = find_plane(state, block, column)
        if plane == NONE:
            continue
        state.planes[plane, :ABSENT] = _ZERO
        for position in range(state.blocks[block].words * 64):
            if state.planes[plane, ABSENT, position >> 6] & bit_of(position):
                slot = state.slots[state.block_slots[block, position]]
                for i in range(slot.constraints, slot.constraints + slot.constraint_count):
                    if state.constraints[i].column == column:
                        draw(state, plane, position, state.constraints[i])


@inlined
def find_plane(state, block, column):
    """The block's plane for a column, or NONE."""
    i = _find_lane(state, block, column)
    return np.int32(NONE) if i == NONE else state.block_planes[block, 1, i]


@kernel
def plane_of(state, block, column):
    """The block's plane for a column, made when it is new; NONE when there is no room for one."""
    plane = find_plane(state, block, column)
    if plane != NONE:
        return plane
    i = _find_lane(state, block, NONE)
    if i == NONE:
        i = np.int64(state.blocks[block].planes)
    if i == PLANES_MAX or (state.counters[PLANES_FREE] == NONE and state.counters[PLANES_USED] == len(state.planes)):
        return plane
    if i == state.blocks[block].planes and not _page_for(state, block, i):
        return plane
    fresh = state.counters[PLANES_FREE]
    if fresh != NONE:
        state.counters[PLANES_FREE] = state.plane_counts[fresh]
    else:
        fresh = state.counters[PLANES_USED]
        state.counters[PLANES_USED] += 1
    state.planes[fresh] = _ZERO
    state.plane_counts[fresh] = 0
    state.block_planes[block, 0, i] = column
    state.block_planes[block, 1, i] = fresh
    state.blocks[block].planes = max(state.blocks[block].planes, i + 1)
    return np.int32(fresh)


@kernel
def free_plane(state, block, plane):
    """Give a plane of the block back."""
    for i in range(state.blocks[block].planes):
        if state.block_planes[block, 1, i] == plane:
            state.block_planes[block, 0, i] = NONE
            state.block_planes[block, 1, i] = NONE
    state.plane_counts[plane] = state.counters[PLANES_FREE]
    state.counters[PLANES_FREE] = plane


@kernel
def draw(state, plane, position, constraint):
    """Enter one constraint into a plane: what it rejects, and where its bounds lie."""
    word, bit, edges, column = position >> 6, bit_of(position), state.edges, constraint.column
    low, low_fine, high, high_fine = constraint.low, constraint.low_fine, constraint.high, constraint.high_fine
    first = bucket_of(edges, column, low, low_fine)
    last = bucket_of(edges, column, high, high_fine)
    for bucket in range(first):
        state.planes[plane, bucket, word] |= bit
    for bucket in range(last + 1, EDGES + 1):
        state.planes[plane, bucket, word] |= bit
    if not covers_bucket(edges, column, first, low, low_fine, high, high_fine):
        state.planes[plane, first, WORDS + word] |= bit
    if not covers_bucket(edges, column, last, low, low_fine, high, high_fine):
        state.planes[plane, last, WORDS + word] |= bit
    if not (high == INFINITY and high_fine >= FINE_NAN):
        state.planes[plane, NAN_BUCKET, word] |= bit
    state.planes[plane, ABSENT, word] |= bit


@kernel
def keep_bounds(state, block, position, column, low, high):
    """Write a filter's bounds in a column, rounded, into the block's pages."""
    i = _find_lane(state, block, column)
    bounds = state.pages[state.block_pages[block, i // LANES], position]
    bounds[i % LANES] = low
    bounds[LANES + i % LANES] = high


@inlined
def bit_of(position):
    """The bit of a position within its word."""
    return _ONE << np.uint64(position & 63)


@inlined
def _find_lane(state, block, column):
    """Which of the block's planes is that of the column, or NONE; to look for NONE is to look for an unused one."""
    for i in range(state.blocks[block].planes):
        if state.block_planes[block, 0, i] == column:
            return i
    return NONE


@kernel
def _page_for(state, block, i):
    """Make sure that the block has a page for the bounds of plane ``i``; False when there is no room for one."""
    if i % LANES != 0:
        return True
    fresh = state.counters[PAGES_FREE]
    if fresh != NONE:
        state.counters[PAGES_FREE] = np.int64(state.pages[fresh, 0, 0])
    elif state.counters[PAGES_USED] < len(state.pages):
        fresh = state.counters[PAGES_USED]
        state.counters[PAGES_USED] += 1
    else:
        return False
    state.pages[fresh, :, :LANES] = -INFINITY
    state.pages[fresh, :, LANES:] = INFINITY
    state.block_pages[block, i // LANES] = fresh
    return True
