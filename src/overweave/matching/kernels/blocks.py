"""Large segments: blocks of 1,024 filters, matched 64 at a time.

Per column that its filters constrain, a block has a plane: for every bucket the set of filters that reject all of it,
and the set of those with a bound inside. A publication rules filters out by OR-ing one row per column; of the
survivors only those with a bound in one of its buckets are checked, against that bound. Planes are a means of speed alone:
where a block has no plane for a column, its filters are always checked.
"""

import numpy as np

from overweave.matching.kernels.compile import LANES, WORDS, compare_lanes, inlined, kernel, ones, trailing_zeros, unite_rows
from overweave.matching.kernels.exact import satisfied
from overweave.matching.kernels.numbers import INFINITY
from overweave.matching.kernels.planes import bit_of, draw, find_plane, free_plane, keep_bounds, plane_of
from overweave.matching.kernels.state import (
    ABSENT,
    BLOCK,
    BLOCKS,
    BLOCKS_FREE,
    BLOCKS_USED,
    BUCKETS,
    NONE,
    PAGES_FREE,
)

_ONE = np.uint64(1)
_ZERO = np.uint64(0)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)


@kernel
def start_blocks(state, number):
    """Make the segment an empty one of blocks."""
    segment = state.segments[number]
    segment.kind = BLOCKS
    segment.count = 0
    segment.capacity = 0
    segment.first = NONE
    segment.open = NONE


@kernel
def add_to_blocks(state, number, slot):
    """Put a filter into a block with room, a new one when there is none."""
    segment = state.segments[number]
    if segment.open == NONE or state.blocks[segment.open].count == BLOCK:
        segment.open = _block_with_room(state, number)
    place(state, segment.open, slot)
    segment.count += 1


@kernel
def remove_from_blocks(state, number, slot):
    """Take a filter out; a block that is no longer needed goes."""
    segment = state.segments[number]
    block = np.int32(state.slots[slot].position // BLOCK)
    _lift(state, block, slot)
    segment.count -= 1
    if segment.capacity - segment.count >= BLOCK + BLOCK // 4:
        _dissolve(state, number, _emptiest(state, number))


@kernel
def end_blocks(state, block):
    """Give ``block`` and those after it back."""
    while block != NONE:
        after = state.blocks[block].next
        _free_block(state, block)
        block = after


@inlined
def block_has_match(state, which, data, block):
    """Whether the publication satisfies any filter of the block; certain ones are looked for first."""
    if not _find_survivors(state, which, block):
        return False
    left, doubt, certain = state.block_left, state.block_doubt, _ZERO
    for word in range(WORDS):
        certain |= left[word] & ~(doubt[word] | state.block_bits[block, 1, word])
    if certain != _ZERO:
        return True
    for word in range(WORDS):
        bits = left[word]
        while bits != _ZERO:
            if satisfied(state, which, data, state.block_slots[block, word * 64 + trailing_zeros(bits)]):
                return True
            bits &= bits - _ONE
    return False


@inlined
def list_block(state, which, data, block, found, count):
    """Write the slots of all matching filters of the block to ``found`` from ``count`` on; the new count."""
    if not find_matches(state, which, data, block):
        return count
    for word in range(WORDS):
        bits = state.block_left[word]
        while bits != _ZERO:
            found[count] = state.block_slots[block, word * 64 + trailing_zeros(bits)]
            count += 1
            bits &= bits - _ONE
    return count


@inlined
def count_block(state, which, data, block):
    """How many filters of the block the publication satisfies."""
    if not find_matches(state, which, data, block):
        return 0
    count = 0
    for word in range(WORDS):
        count += ones(state.block_left[word])
    return count


@inlined
def find_matches(state, which, data, block):
    """Have in `block_left` the filters of the block that the publication satisfies; False when there are certainly none."""
    if not _find_survivors(state, which, block):
        return False
    _decide_doubts(state, which, data, block)
    return True


@inlined
def _find_survivors(state, which, block):
    """Find the filters that no column rejects, and those in doubt because a bound lies in the bucket; False when none survive."""
    rows = 0
    for i in range(state.blocks[block].planes):
        plane = state.block_planes[block, 1, i]
        if plane != NONE:
            value = state.values[state.block_planes[block, 0, i], which]
            state.block_values[i] = value.value if value.bucket != ABSENT else 0.0
            state.block_rows[rows] = (np.int64(plane) * BUCKETS + value.bucket) * (2 * WORDS)
            rows += 1
    left, some, planes = state.block_left, _ZERO, state.planes.reshape(state.planes.size)
    unite_rows(planes, state.block_rows, rows, 0, left)
    for word in range(WORDS):
        left[word] = state.block_bits[block, 0, word] & ~left[word]
        some |= left[word]
    if some == _ZERO:
        return False
    unite_rows(planes, state.block_rows, rows, WORDS, state.block_doubt)
    return True


@inlined
def _decide_doubts(state, which, data, block):
    """Take those out of the survivors that a closer look rejects.

    Rounding keeps the order, so rounded bounds decide unless one equals the rounded value; then the exact check does. There is no
    branch on a bound: the processor can fetch the next ones while it waits for one.
    """
    left, checks, count, exact = state.block_left, state.block_checks, 0, _ZERO
    for word in range(WORDS):
        bits = left[word] & state.block_doubt[word]
        state.block_doubt[word] = left[word] & state.block_bits[block, 1, word]
        exact |= state.block_doubt[word]
        while bits != _ZERO:
            checks[count] = word * 64 + trailing_zeros(bits)
            count += 1
            bits &= bits - _ONE
    pages, values = state.pages.reshape(state.pages.size), state.block_values
    for i in range(count):
        position, compared = checks[i], 0
        for page in range((state.blocks[block].planes + LANES - 1) // LANES):
            at = (np.int64(state.block_pages[block, page]) * BLOCK + position) * (2 * LANES)
            compared |= compare_lanes(pages, at, values, page * LANES)
        word, shift = position >> 6, np.uint64(position & 63)
        left[word] &= ~(np.uint64((compared & 0xFF) != 0) << shift)
        state.block_doubt[word] |= np.uint64((compared >> 32) != 0) << shift
        exact |= np.uint64(compared >> 32)
    if exact != _ZERO:
        _decide_exactly(state, which, data, block)


@kernel
def _decide_exactly(state, which, data, block):
    for word in range(WORDS):
        bits = state.block_left[word] & state.block_doubt[word]
        while bits != _ZERO:
            if not satisfied(state, which, data, state.block_slots[block, word * 64 + trailing_zeros(bits)]):
                state.block_left[word] ^= bits & (~bits + _ONE)
            bits &= bits - _ONE


@inlined
def is_taken(state, block, position):
    """Whether there is a filter at a position of a block."""
    return state.block_bits[block, 0, position >> 6] >> np.uint64(position & 63) & _ONE != _ZERO


@kernel
def place(state, block, slot):
    """Put a filter at the first free position of a block that has one."""
    word = 0
    while state.block_bits[block, 0, word] == _ALL:
        word += 1
    position = word * 64 + trailing_zeros(~state.block_bits[block, 0, word])
    bit = bit_of(position)
    state.block_bits[block, 0, word] |= bit
    state.block_slots[block, position] = slot
    state.block_links[block, position] = state.segments[state.slots[slot].segment].link
    state.blocks[block].count += 1
    state.blocks[block].words = max(state.blocks[block].words, word + 1)
    found = state.slots[slot]
    found.position = block * BLOCK + position
    always = found.residual_count > 0
    for i in range(found.constraints, found.constraints + found.constraint_count):
        constraint = state.constraints[i]
        plane = plane_of(state, block, constraint.column)
        if plane == NONE:
            always = True
        else:
            state.plane_counts[plane] += 1
            draw(state, plane, position, constraint)
            keep_bounds(state, block, position, constraint.column, constraint.low, constraint.high)
    if always:
        state.block_bits[block, 1, word] |= bit


@kernel
def _lift(state, block, slot):
    """Take a filter out of its block."""
    found = state.slots[slot]
    position = found.position - block * BLOCK
    word, bit = position >> 6, bit_of(position)
    state.block_bits[block, 0, word] &= ~bit
    state.block_bits[block, 1, word] &= ~bit
    state.blocks[block].count -= 1
    for i in range(found.constraints, found.constraints + found.constraint_count):
        plane = find_plane(state, block, state.constraints[i].column)
        # A filter that came before the plane did is not in it.
        if plane != NONE and state.planes[plane, ABSENT, word] & bit:
            for bucket in range(BUCKETS):
                state.planes[plane, bucket, word] &= ~bit
                state.planes[plane, bucket, WORDS + word] &= ~bit
            keep_bounds(state, block, position, state.constraints[i].column, -INFINITY, INFINITY)
            state.plane_counts[plane] -= 1
            if state.plane_counts[plane] == 0:
                free_plane(state, block, plane)


@kernel
def _block_with_room(state, number):
    segment = state.segments[number]
    block = segment.first
    while block != NONE:
        if state.blocks[block].count < BLOCK:
            return block
        block = state.blocks[block].next
    fresh = state.counters[BLOCKS_FREE]
    if fresh == NONE:
        fresh = state.counters[BLOCKS_USED]
        state.counters[BLOCKS_USED] += 1
    else:
        state.counters[BLOCKS_FREE] = state.blocks[fresh].next
    made = state.blocks[fresh]
    made.segment = number
    made.next = segment.first
    made.count = 0
    made.planes = 0
    made.words = 0
    state.block_bits[fresh] = _ZERO
    segment.first = fresh
    segment.capacity += BLOCK
    return np.int32(fresh)


@kernel
def _emptiest(state, number):
    block = state.segments[number].first
    least = block
    while block != NONE:
        if state.blocks[block].count < state.blocks[least].count:
            least = block
        block = state.blocks[block].next
    return least


@kernel
def _dissolve(state, number, block):
    """Move the filters of a block into the others of its segment, which have room for them, and free it."""
    segment = state.segments[number]
    before = segment.first
    if before == block:
        segment.first = state.blocks[block].next
    else:
        while state.blocks[before].next != block:
            before = state.blocks[before].next
        state.blocks[before].next = state.blocks[block].next
    segment.capacity -= BLOCK
    segment.open = NONE
    for word in range(WORDS):
        while state.block_bits[block, 0, word] != _ZERO:
            slot = state.block_slots[block, word * 64 + trailing_zeros(state.block_bits[block, 0, word])]
            _lift(state, block, slot)
            if segment.open == NONE or state.blocks[segment.open].count == BLOCK:
                segment.open = _block_with_room(state, number)
            place(state, segment.open, slot)
    _free_block(state, block)


@kernel
def _free_block(state, block):
    for i in range(state.blocks[block].planes):
        if state.block_planes[block, 1, i] != NONE:
            free_plane(state, block, state.block_planes[block, 1, i])
        if i % LANES == 0:
            page = state.block_pages[block, i // LANES]
            state.pages[page, 0, 0] = state.counters[PAGES_FREE]
            state.counters[PAGES_FREE] = page
    state.blocks[block].segment = NONE
    state.blocks[block].next = state.counters[BLOCKS_FREE]
    state.counters[BLOCKS_FREE] = block
