"""Letting filters go: what was taken by `insert` is given back, texts and columns too."""

from overweave.matching.kernels.columns import release_column
from overweave.matching.kernels.compile import kernel
from overweave.matching.kernels.handle import state_at
from overweave.matching.kernels.partitions import find_equality, remove_from_partition, unmention_equality
from overweave.matching.kernels.state import (
    CONSTRAINT_EXTENTS,
    EQUAL,
    FILTERS,
    FILTERS_WITHOUT_EQUALITY,
    NONE,
    RESIDUAL_EXTENTS,
    SLOTS_FREE,
    give_extent,
)
from overweave.matching.kernels.texts import release_text


@kernel
def remove_filter(address, slot):
    """Let the filter in ``slot`` go; the link it was for."""
    state = state_at(address)
    link = state.segments[state.slots[slot].segment].link
    partition = remove_from_partition(state, slot)
    if partition != NONE and state.partitions[partition].kind == EQUAL:
        column = state.partitions[partition].column
        unmention_equality(state, partition)
        release_column(state, column)
    else:
        state.counters[FILTERS_WITHOUT_EQUALITY] -= 1
    found = state.slots[slot]
    for i in range(found.constraints, found.constraints + found.constraint_count):
        constraint = state.constraints[i]
        if constraint.low == constraint.high and constraint.low_fine == constraint.high_fine:
            unmention_equality(state, find_equality(state, constraint.column, constraint.low, constraint.low_fine))
        release_column(state, constraint.column)
    for i in range(found.residuals, found.residuals + found.residual_count):
        residual = state.residuals[i]
        if residual.text != NONE:
            release_text(state, residual.text)
        release_column(state, residual.column)
    give_extent(state.constraints, state.counters, CONSTRAINT_EXTENTS, found.constraints, found.constraint_count)
    give_extent(state.residuals, state.counters, RESIDUAL_EXTENTS, found.residuals, found.residual_count)
    found.constraint_count = 0
    found.residual_count = 0
    found.position = state.counters[SLOTS_FREE]
    state.counters[SLOTS_FREE] = slot
    state.counters[FILTERS] -= 1
    return link
