"""Small segments: a row per filter, with its first constraint beside it, scanned from first to last."""

from overweave.matching.kernels.compile import inlined, kernel
from overweave.matching.kernels.exact import inside, satisfied
from overweave.matching.kernels.state import NONE, ROW_EXTENTS, ROWS, ROWS_USED, give_extent, take_extent

ROWS_FIRST = 2


@kernel
def start_rows(state, number, capacity):
    """Make the segment an empty one of rows."""
    segment = state.segments[number]
    segment.kind = ROWS
    segment.count = 0
    segment.capacity = capacity
    segment.first = take_extent(state.rows, state.counters, ROWS_USED, ROW_EXTENTS, capacity)


@kernel
def end_rows(state, number):
    """Give the rows of the segment back."""
    segment = state.segments[number]
    give_extent(state.rows, state.counters, ROW_EXTENTS, segment.first, segment.capacity)


@kernel
def add_row(state, number, slot):
    """Put a filter at the end; twice the room when there is none left."""
    segment = state.segments[number]
    if segment.count == segment.capacity:
        first = take_extent(state.rows, state.counters, ROWS_USED, ROW_EXTENTS, 2 * segment.capacity)
        for i in range(segment.count):
            state.rows[first + i] = state.rows[segment.first + i]
        end_rows(state, number)
        segment.first = first
        segment.capacity *= 2
    _write_row(state, segment.first + segment.count, slot)
    state.slots[slot].position = segment.count
    segment.count += 1


@kernel
def remove_row(state, number, slot):
    """Take a filter out; the last one takes its place."""
    segment = state.segments[number]
    position = state.slots[slot].position
    segment.count -= 1
    last = state.rows[segment.first + segment.count]
    state.rows[segment.first + position] = last
    state.slots[last.slot].position = position


@inlined
def row_matches(state, which, data, at):
    """Whether the publication satisfies the filter in this row."""
    row = state.rows[at]
    if row.column != NONE and not inside(state, which, row):
        return False
    return row.more == 0 or satisfied(state, which, data, row.slot)


@kernel
def _write_row(state, at, slot):
    row, found = state.rows[at], state.slots[slot]
    row.slot = slot
    row.more = 1 if found.constraint_count > 1 or found.residual_count > 0 else 0
    row.column = NONE
    if found.constraint_count > 0:
        constraint = state.constraints[found.constraints]
        row.column = constraint.column
        row.low = constraint.low
        row.low_fine = constraint.low_fine
        row.high = constraint.high
        row.high_fine = constraint.high_fine
