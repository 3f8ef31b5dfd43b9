"""Columns: an attribute as numbers, or as text (by code), with buckets that follow the quantiles of the bounds on it.

A column's edges cut its values into buckets: bucket k holds edge[k-1] <= value < edge[k]. A value that many filters name
gets a bucket of its own, so that equality with it needs no further check.
"""

import numpy as np

from overweave.matching.kernels.compile import inlined, kernel
from overweave.matching.kernels.handle import state_at
from overweave.matching.kernels.numbers import EXACT_LIMIT, FINE_MAX, FINE_NAN, INFINITY, below
from overweave.matching.kernels.state import (
    ABSENT,
    COLUMNS_FREE,
    COLUMNS_USED,
    EDGES,
    NAN_BUCKET,
    NONE,
    SLOTS_USED,
    TEXT,
    TILE,
)
from overweave.matching.kernels.texts import release_text

#: The additions after which the buckets of a column are first checked; later after four times its number.
_FIRST_LOOK = 128
BOUNDS_SAMPLED = 16_384


@kernel
def column_of(state, name, kind):
    """The column of the attribute whose name has the code ``name``; made when it is new."""
    text = state.texts[name]
    column = text.text_column if kind == TEXT else text.number_column
    if column != NONE:
        return column
    fresh = state.counters[COLUMNS_FREE]
    if fresh == NONE:
        fresh = state.counters[COLUMNS_USED]
        state.counters[COLUMNS_USED] += 1
    else:
        state.counters[COLUMNS_FREE] = state.columns[fresh].references
    made = state.columns[fresh]
    made.references = 0
    made.additions = 0
    made.next_look = _FIRST_LOOK
    made.name = name
    made.keys = 0
    made.present = NONE
    made.kind = kind
    state.edges[fresh, :] = INFINITY
    for i in range(TILE):
        state.values[fresh, i].bucket = ABSENT
    text.references += 1
    if kind == TEXT:
        text.text_column = fresh
    else:
        text.number_column = fresh
    return np.int32(fresh)


@kernel
def release_column(state, number):
    """Give one reference back; a column that nobody mentions goes."""
    column = state.columns[number]
    column.references -= 1
    if column.references > 0:
        return
    name = column.name
    if column.kind == TEXT:
        state.texts[name].text_column = NONE
    else:
        state.texts[name].number_column = NONE
    column.references = state.counters[COLUMNS_FREE]
    column.name = NONE
    state.counters[COLUMNS_FREE] = number
    release_text(state, name)


@inlined
def bucket_of(edges, column, value, fine):
    """The bucket of a value."""
    if fine == FINE_NAN:
        return NAN_BUCKET
    low, high = 0, EDGES
    while low < high:
        middle = (low + high) >> 1
        if edges[column, middle] <= value:
            low = middle + 1
        else:
            high = middle
    return low


@inlined
def covers_bucket(edges, column, bucket, low, low_fine, high, high_fine):
    """Whether the interval covers the whole ``bucket`` (not NaN's)."""
    first, first_fine = -INFINITY, 0
    if bucket > 0:
        first = edges[column, bucket - 1]
        first_fine = 0 if -EXACT_LIMIT < first < EXACT_LIMIT or first == INFINITY else -FINE_MAX
    last, last_fine = INFINITY, 0
    if bucket < EDGES:
        last = np.nextafter(edges[column, bucket], -INFINITY)
        last_fine = 0 if -EXACT_LIMIT < last < EXACT_LIMIT else FINE_MAX
    return not below(first, first_fine, low, low_fine) and not below(high, high_fine, last, last_fine)


@kernel
def sample_bounds(address, number, sample):
    """Fill ``sample`` with finite bounds that filters set on a column, evenly chosen; how many."""
    state = state_at(address)
    column = state.columns[number]
    column.next_look = column.additions + max(4 * column.references, 128, state.counters[SLOTS_USED] // 8)
    stride, count = 2 * column.references // len(sample) + 1, 0
    for slot in range(0, state.counters[SLOTS_USED], stride):
        first = state.slots[slot].constraints
        for i in range(first, first + state.slots[slot].constraint_count):
            constraint = state.constraints[i]
            if constraint.column != number:
                continue
            for bound in (constraint.low, constraint.high):
                if -INFINITY < bound < INFINITY and count < len(sample):
                    sample[count] = bound
                    count += 1
    return count


@kernel
def cut_column(address, number, bounds):
    """Choose the edges of a column by a sorted sample of ``bounds``; False when those it has are still good."""
    state = state_at(address)
    edges = state.edges[number]
    if _even(edges, bounds):
        return False
    edges[:] = INFINITY
    at, made, filled = 0, 0, 0
    while at < len(bounds) and made < EDGES:
        value, run = bounds[at], _run(bounds, at)
        share = (len(bounds) - at + filled) // (EDGES - made) + 1
        heavy = run >= 2 * share
        if heavy or filled + run > share:
            made, filled = _add_edge(edges, made, value), 0
        if heavy:
            made = _add_edge(edges, made, np.nextafter(value, INFINITY))
        else:
            filled += run
        at += run
    return True


@kernel
def _even(edges, bounds):
    """Whether no bucket holds far more bounds than its share, unless they are all one value."""
    limit = max(4 * len(bounds) // EDGES, 8)
    at = 0
    for bucket in range(EDGES + 1):
        start = at
        while at < len(bounds) and (bucket == EDGES or bounds[at] < edges[bucket]):
            at += 1
        if at - start > limit and bounds[start] != bounds[at - 1]:
            return False
        if at - start > limit and (bucket == EDGES or edges[bucket] > np.nextafter(bounds[start], INFINITY)):
            return False
    return True


@kernel
def _run(bounds, at):
    """How many equal values begin at ``at``."""
    end = at + 1
    while end < len(bounds) and bounds[end] == bounds[at]:
        end += 1
    return end - at


@kernel
def _add_edge(edges, made, value):
    if made == EDGES or (made > 0 and edges[made - 1] >= value):
        return made
    edges[made] = value
    return made + 1
