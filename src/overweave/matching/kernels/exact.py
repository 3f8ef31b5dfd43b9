"""One filter against one publication, exactly.

The publications at hand are unpacked into ``state.values``: one place per column, with the bucket ABSENT where they say nothing.
"""

import numpy as np

from overweave.language.codec import FLOAT, INTEGER, TEXT
from overweave.language.predicates import Operator
from overweave.matching.kernels.columns import bucket_of
from overweave.matching.kernels.compile import float_of, inlined, kernel
from overweave.matching.kernels.numbers import below, key_of_float, key_of_integer
from overweave.matching.kernels.state import ABSENT, NONE
from overweave.matching.kernels.texts import find_text

_NE = int(Operator.NE)
_LT, _LE, _GT = int(Operator.LT), int(Operator.LE), int(Operator.GT)
_PREFIX, _SUFFIX, _CONTAINS = int(Operator.PREFIX), int(Operator.SUFFIX), int(Operator.CONTAINS)

_BASE = np.uint64(1099511628211)


@inlined
def clear_values(state, which):
    """Forget publication ``which`` of those at hand."""
    for i in range(state.value_counts[which]):
        state.values[state.values[i, which].present, which].bucket = ABSENT
    state.value_counts[which] = 0


@inlined
def read_u16(data, at):
    """Two bytes, little-endian."""
    return np.int64(data[at]) | (np.int64(data[at + 1]) << 8)


@inlined
def read_u32(data, at):
    """Four bytes, little-endian."""
    return read_u16(data, at) | (read_u16(data, at + 2) << 16)


@inlined
def read_u64(data, at):
    """Eight bytes, little-endian."""
    word = np.uint64(0)
    for i in range(8):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@inlined
def read_number(data, at, type_):
    """The key of the integer or float at ``at``."""
    word = read_u64(data, at)
    if type_ == INTEGER:
        return key_of_integer(np.int64(word))
    return key_of_float(float_of(word))


@inlined
def value_end(data, at, end, type_):
    """Where the value at ``at`` ends, or NONE when it does not lie before ``end``."""
    if type_ == TEXT:
        if at + 4 > end:
            return NONE
        at += 4 + read_u32(data, at)
    elif type_ == INTEGER or type_ == FLOAT:
        at += 8
    else:
        return NONE
    return at if at <= end else NONE


@kernel
def unpack_publication(state, which, data, start, end):
    """Have publication ``which`` at hand, from its wire form; False when the bytes before ``end`` do not follow it."""
    if start + 2 > end or read_u16(data, start) == 0:
        return False
    at = start + 2
    for _ in range(read_u16(data, start)):
        if at + 2 > end:
            return False
        type_, name, length = np.int64(data[at]), at + 2, np.int64(data[at + 1])
        content = name + length
        if content > end:
            return False
        at = value_end(data, content, end, type_)
        if at == NONE:
            return False
        code = find_text(state, data, name, length)
        if code != NONE and not _take_value(state, which, state.texts[code], data, content, at, type_):
            return False
    return at == end


@inlined
def _take_value(state, which, attribute, data, content, end, type_):
    """Enter one value, if some filter asks for it; False when the publication has given the attribute before."""
    number_column, text_column = attribute.number_column, attribute.text_column
    column = text_column if type_ == TEXT else number_column
    if column == NONE:
        return True
    other = number_column if type_ == TEXT else text_column
    if state.values[column, which].bucket != ABSENT or (other != NONE and state.values[other, which].bucket != ABSENT):
        return False  # the attribute was given before
    taken = state.values[column, which]
    if type_ == TEXT:
        taken.offset = content + 4
        taken.length = end - content - 4
        value, fine = float(find_text(state, data, content + 4, end - content - 4)), 0
    else:
        value, fine = read_number(data, content, type_)
    taken.value = value
    taken.fine = fine
    taken.bucket = bucket_of(state.edges, column, value, fine)
    state.values[state.value_counts[which], which].present = column
    state.value_counts[which] += 1
    return True


@inlined
def inside(state, which, interval):
    """Whether the publication has a value in the column of ``interval`` (a constraint or a row), inside it."""
    given = state.values[interval.column, which]
    return (
        given.bucket != ABSENT
        and not below(given.value, given.fine, interval.low, interval.low_fine)
        and not below(interval.high, interval.high_fine, given.value, given.fine)
    )


@inlined
def satisfied(state, which, data, slot):
    """Whether the publication satisfies all that the filter in ``slot`` asks beyond its access key."""
    found = state.slots[slot]
    for i in range(found.constraints, found.constraints + found.constraint_count):
        if not inside(state, which, state.constraints[i]):
            return False
    for i in range(found.residuals, found.residuals + found.residual_count):
        if not _residual_holds(state, which, data, state.residuals[i]):
            return False
    return True


@kernel
def _residual_holds(state, which, data, residual):
    given, operator = state.values[residual.column, which], residual.operator
    if given.bucket == ABSENT:
        return False
    if operator == _NE:
        return given.value != residual.value or given.fine != residual.fine
    text = state.texts[residual.text]
    start, length = given.offset, given.length
    if operator == _PREFIX:
        return length >= text.length and _equal(state.heap, text.offset, data, start, text.length)
    if operator == _SUFFIX:
        return length >= text.length and _equal(state.heap, text.offset, data, start + length - text.length, text.length)
    if operator == _CONTAINS:
        return _contains(data, start, length, state.heap, text.offset, text.length)
    order = _compare(data, start, length, state.heap, text.offset, text.length)
    if operator == _LT:
        return order < 0
    if operator == _LE:
        return order <= 0
    if operator == _GT:
        return order > 0
    return order >= 0


@kernel
def _equal(a, a_start, b, b_start, length):
    for i in range(length):
        if a[a_start + i] != b[b_start + i]:
            return False
    return True


@kernel
def _contains(data, start, length, part, part_start, part_length):
    """Whether the part occurs; by a rolling hash (Rabin and Karp), because texts and parts come from strangers."""
    if part_length > length:
        return False
    wanted, rolling, highest = np.uint64(0), np.uint64(0), np.uint64(1)
    for i in range(part_length):
        wanted = wanted * _BASE + np.uint64(part[part_start + i])
        rolling = rolling * _BASE + np.uint64(data[start + i])
        highest *= _BASE
    for at in range(start, start + length - part_length + 1):
        if rolling == wanted and _equal(part, part_start, data, at, part_length):
            return True
        if at + part_length < start + length:
            rolling = rolling * _BASE + np.uint64(data[at + part_length]) - highest * np.uint64(data[at])
    return False


@kernel
def _compare(a, a_start, a_length, b, b_start, b_length):
    """Negative, zero or positive as bytes ``a`` come before, with or after ``b``; in UTF-8 that is the order of code points."""
    for i in range(min(a_length, b_length)):
        difference = np.int64(a[a_start + i]) - np.int64(b[b_start + i])
        if difference != 0:
            return difference
    return np.int64(a_length) - np.int64(b_length)
