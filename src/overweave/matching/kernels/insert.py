"""Taking filters in, from their wire form.

The predicates on one column become one interval; what an interval cannot say (``<>``, prefix, suffix, contains, order of
text) becomes a residual, which is checked on survivors. Until all predicates are read, both lie behind the used ends of
their pools.
"""

import numpy as np

from overweave.language.codec import PREDICATES_MAX
from overweave.language.codec import TEXT as WIRE_TEXT
from overweave.language.predicates import Operator
from overweave.matching.kernels.columns import column_of
from overweave.matching.kernels.compile import kernel
from overweave.matching.kernels.exact import read_number, read_u16, read_u32, value_end
from overweave.matching.kernels.handle import bytes_at, state_at
from overweave.matching.kernels.numbers import FINE_UNBOUNDED, INFINITY, below
from overweave.matching.kernels.partitions import mention_equality, presence_partition
from overweave.matching.kernels.segments import add_to_segment
from overweave.matching.kernels.state import (
    CONSTRAINT_EXTENTS,
    CONSTRAINTS_USED,
    DRAFT_CONSTRAINTS,
    DRAFT_RESIDUALS,
    FILTERS,
    FILTERS_WITHOUT_EQUALITY,
    NONE,
    NUMBER,
    PAGES_MAX,
    PARTITION_TABLE_USED,
    PLANES_MAX,
    RESIDUAL_EXTENTS,
    RESIDUALS_USED,
    ROWS_MAX,
    SLOTS_FREE,
    SLOTS_USED,
    TEXT,
    TEXT_TABLE_USED,
    lacks_room,
    take_extent,
)
from overweave.matching.kernels.texts import find_text, intern_text, release_text

_EQ, _NE, _PRESENT = int(Operator.EQ), int(Operator.NE), int(Operator.PRESENT)
_LT, _LE, _GT, _GE = int(Operator.LT), int(Operator.LE), int(Operator.GT), int(Operator.GE)
_OPERATORS = len(Operator)
#: A column is worth an access key of its own when fewer than one in so many filters without equality mention it.
_RARE = 32

#: Why `insert_filters` stopped.
DONE, NO_ROOM, MALFORMED, REBALANCE = 0, 1, 2, 3


@kernel
def insert_filters(address, data, offsets, links, slots, start):
    """Take the filters from ``start`` on in; (why it stopped, how many are in), with their ``slots``.

    It stops, to be called again, when a pool lacks room and when the buckets of a column of the last one are due to be looked at.
    """
    state = state_at(address)
    for i in range(start, len(slots)):
        why, slots[i] = _insert_one(state, data, offsets[i], offsets[i + 1], links[i])
        if why == REBALANCE:
            return why, i + 1
        if why != DONE:
            return why, i
    return DONE, len(slots)


@kernel
def insert_filter(address, place, length, link):
    """Take in the one filter that lies at ``place``: why it stopped, and where it is in, four times its slot more."""
    why, slot = _insert_one(state_at(address), bytes_at(place, length), 0, length, link)
    return why + 4 * np.int64(slot)


@kernel
def _insert_one(state, data, start, end, link):
    count = _count_predicates(data, start, end)
    if count == NONE:
        return MALFORMED, np.int32(0)
    _estimate(state, count, end - start)
    if lacks_room(state) or _tables_full(state):
        return NO_ROOM, np.int32(0)
    slot = _insert(state, data, start, count, link)
    return DONE if _due_column(state, slot) == NONE else REBALANCE, slot


@kernel
def _estimate(state, count, length):
    """The most that one filter of ``count`` predicates can take from each pool; a small index has no blocks."""
    needed, blocks = state.needed, 1 if state.counters[FILTERS] >= ROWS_MAX else 0
    needed[0] = 1
    needed[1] = 2 * count
    needed[2] = length
    needed[3] = count
    needed[4] = count + 1
    needed[5] = 2
    needed[6] = min(ROWS_MAX, 2 * state.counters[FILTERS] + 2)
    needed[7] = max(2 * count, 1)
    needed[8] = max(2 * count, 1)
    needed[9] = blocks
    needed[10] = blocks * PLANES_MAX
    needed[11] = blocks * PAGES_MAX


@kernel
def _tables_full(state):
    needed = state.needed
    return 2 * (state.counters[TEXT_TABLE_USED] + needed[1]) > len(state.text_table) or 2 * (
        state.counters[PARTITION_TABLE_USED] + needed[4]
    ) > len(state.partition_table)


@kernel
def _count_predicates(data, start, end):
    """How many predicates the wire form has, or NONE when its bytes do not follow it."""
    if start + 2 > end:
        return NONE
    count, at = read_u16(data, start), start + 2
    if count > PREDICATES_MAX:
        return NONE
    for _ in range(count):
        if at + 3 > end or not 1 <= data[at] <= _OPERATORS:
            return NONE
        type_, text_only = np.int64(data[at + 1]), not (data[at] <= _GE or data[at] == _PRESENT)
        if text_only and type_ != WIRE_TEXT:
            return NONE
        at = at + 3 + np.int64(data[at + 2])
        if at > end:
            return NONE
        at = value_end(data, at, end, type_)
        if at == NONE:
            return NONE
    return count if at == end and count > 0 else NONE


@kernel
def due_column(address, slot):
    """A column of the filter in ``slot`` whose buckets are due to be looked at, or NONE."""
    return _due_column(state_at(address), slot)


@kernel
def _due_column(state, slot):
    found = state.slots[slot]
    for i in range(found.constraints, found.constraints + found.constraint_count):
        column = state.columns[state.constraints[i].column]
        if column.additions >= column.next_look:
            return state.constraints[i].column
    return np.int32(NONE)


@kernel
def _insert(state, data, start, count, link):
    state.counters[DRAFT_CONSTRAINTS] = 0
    state.counters[DRAFT_RESIDUALS] = 0
    at = start + 2
    for _ in range(count):
        at = _take_predicate(state, data, at)
    key, partition = _access_key(state)
    slot = _new_slot(state)
    _write_slot(state, slot, key)
    add_to_segment(state, partition, link, slot)
    _release_texts(state, data, start, count)
    state.counters[FILTERS] += 1
    return slot


@kernel
def _release_texts(state, data, start, count):
    """Let go of the texts of equalities; those that count are now held by their partitions."""
    at = start + 2
    for _ in range(count):
        operator, type_, content = data[at], np.int64(data[at + 1]), at + 3 + np.int64(data[at + 2])
        at = value_end(data, content, len(data), type_)
        if operator == _EQ and type_ == WIRE_TEXT:
            release_text(state, find_text(state, data, content + 4, at - content - 4))


@kernel
def _take_predicate(state, data, at):
    """Narrow the draft by the predicate at ``at``; where the next one begins."""
    operator, type_, length = np.int64(data[at]), np.int64(data[at + 1]), np.int64(data[at + 2])
    content = at + 3 + length
    column = column_of(state, intern_text(state, data, at + 3, length), TEXT if type_ == WIRE_TEXT else NUMBER)
    interval = _interval(state, column)
    if type_ != WIRE_TEXT:
        value, fine = read_number(data, content, type_)
        if operator == _NE:
            _add_residual(state, column, operator, value, fine, NONE)
        elif operator != _PRESENT:
            _narrow(interval, operator, value, fine)
        return content + 8
    size = read_u32(data, content)
    if operator != _PRESENT:
        code = intern_text(state, data, content + 4, size)
        if operator == _EQ:
            _narrow(interval, operator, float(code), 0)
            state.texts[code].references += 1  # until `_release_texts`: another equality may contradict this one
        else:
            _add_residual(state, column, operator, float(code), 0, code)
    return content + 4 + size


@kernel
def _interval(state, column):
    """The interval of a column in the draft; unbounded when it is new."""
    first, count = state.counters[CONSTRAINTS_USED], state.counters[DRAFT_CONSTRAINTS]
    for i in range(first, first + count):
        if state.constraints[i].column == column:
            return state.constraints[i]
    interval = state.constraints[first + count]
    interval.column = column
    interval.low = -INFINITY
    interval.low_fine = 0
    interval.high = INFINITY
    interval.high_fine = FINE_UNBOUNDED
    state.counters[DRAFT_CONSTRAINTS] += 1
    state.columns[column].references += 1
    state.columns[column].additions += 1
    return interval


@kernel
def _narrow(interval, operator, value, fine):
    """Cut the interval down to what ``operator value`` admits; an open bound is the closed one beside it."""
    low, low_fine, high, high_fine = -INFINITY, 0, INFINITY, 0
    if operator == _EQ:
        low, low_fine, high, high_fine = value, fine, value, fine
    elif operator == _LT:
        high, high_fine = value, fine - 1
    elif operator == _LE:
        high, high_fine = value, fine
    elif operator == _GT:
        low, low_fine = value, fine + 1
    else:
        low, low_fine = value, fine
    if below(interval.low, interval.low_fine, low, low_fine):
        interval.low = low
        interval.low_fine = low_fine
    if below(high, high_fine, interval.high, interval.high_fine):
        interval.high = high
        interval.high_fine = high_fine


@kernel
def _add_residual(state, column, operator, value, fine, text):
    residual = state.residuals[state.counters[RESIDUALS_USED] + state.counters[DRAFT_RESIDUALS]]
    residual.column = column
    residual.operator = operator
    residual.value = value
    residual.fine = fine
    residual.text = text
    state.counters[DRAFT_RESIDUALS] += 1
    state.columns[column].references += 1
    if text != NONE:
        state.texts[text].references += 1


@kernel
def _access_key(state):
    """The draft's rarest equality (the later of two as rare) and its partition; NONE and another partition without one."""
    first, best, partition, fewest = state.counters[CONSTRAINTS_USED], np.int64(NONE), np.int32(0), np.int64(0)
    for i in range(state.counters[DRAFT_CONSTRAINTS]):
        interval = state.constraints[first + i]
        if interval.low == interval.high and interval.low_fine == interval.high_fine:
            number = mention_equality(state, interval.column, interval.low, interval.low_fine)
            mentions = state.partitions[number].mentions
            if best == NONE or mentions <= fewest:
                best, partition, fewest = np.int64(i), number, mentions
    if best == NONE:
        partition = _partition_without_equality(state)
    return best, partition


@kernel
def _partition_without_equality(state):
    """That of the rarest column of the draft if it is rare enough, else the universal one."""
    state.counters[FILTERS_WITHOUT_EQUALITY] += 1
    first = state.counters[CONSTRAINTS_USED]
    rarest = state.constraints[first].column
    for i in range(first + 1, first + state.counters[DRAFT_CONSTRAINTS]):
        column = state.constraints[i].column
        if state.columns[column].references < state.columns[rarest].references:
            rarest = column
    if state.columns[rarest].references * _RARE < state.counters[FILTERS_WITHOUT_EQUALITY]:
        return presence_partition(state, rarest)
    return np.int32(0)


@kernel
def _new_slot(state):
    slot = state.counters[SLOTS_FREE]
    if slot == NONE:
        slot = state.counters[SLOTS_USED]
        state.counters[SLOTS_USED] += 1
    else:
        state.counters[SLOTS_FREE] = state.slots[slot].position
    return np.int32(slot)


@kernel
def _write_slot(state, slot, key):
    """Move the draft to where it stays, but for the access key, which the partition stands for."""
    found = state.slots[slot]
    constraints, residuals = state.counters[DRAFT_CONSTRAINTS], state.counters[DRAFT_RESIDUALS]
    first = state.counters[CONSTRAINTS_USED]
    found.constraint_count = constraints - (1 if key != NONE else 0)
    at = take_extent(state.constraints, state.counters, CONSTRAINTS_USED, CONSTRAINT_EXTENTS, found.constraint_count)
    found.constraints = at
    for i in range(constraints):
        if i != key:
            state.constraints[at] = state.constraints[first + i]
            at += 1
    first = state.counters[RESIDUALS_USED]
    found.residual_count = residuals
    at = take_extent(state.residuals, state.counters, RESIDUALS_USED, RESIDUAL_EXTENTS, residuals)
    found.residuals = at
    for i in range(residuals):
        state.residuals[at + i] = state.residuals[first + i]
