"""Kernels that read publications in the text syntax; see `overweave.pipeline.encode_texts`."""

from typing import Any

import numpy as np

from overweave.language.codec import FLOAT, INTEGER, TEXT, TEXT_BYTES_MAX
from overweave.language.values import NAME_BYTES_MAX
from overweave.matching.kernels.compile import kernel

#: Attributes are compared with each other; texts with more go to the parser.
_ATTRIBUTES_MAX = 64
#: Exact in a 64-bit integer, whatever the digits.
_DIGITS_MAX = 18
_OPEN, _CLOSE, _COMMA, _QUOTE, _BACKSLASH, _BLANK = (ord(sign) for sign in "[],'\\ ")
_MINUS, _PLUS, _POINT, _ZERO, _NINE, _SMALL_E, _LARGE_E = (ord(sign) for sign in "-+.09eE")
_DELETE = 0x7F
UNKNOWN = -1


@kernel
def read_texts(source: Any, offsets: Any, target: Any, starts: Any, ends: Any, decimals: Any) -> int:
    """Write the wire form of each text to ``target``, without the values of ``decimals``; how many of those there are.

    Decimals have a row each: where they begin in ``source``, their length, and their place in ``target``. A text that is not
    plain has the end UNKNOWN, and leaves nothing behind.
    """
    at, count = 0, 0
    for row in range(len(starts)):
        starts[row] = at
        end, more = _read_text(source, offsets[row], offsets[row + 1], target, at, decimals, count)
        ends[row] = end
        if end != UNKNOWN:
            at, count = end, more
    return count


@kernel
def _read_text(source: Any, at: int, stop: int, target: Any, start: int, decimals: Any, count: int) -> tuple[int, int]:
    """Write one text; its end in ``target`` or UNKNOWN, and how many decimals there are now."""
    place, attributes = start + 2, 0
    while True:
        at = _skip(source, at, stop, _BLANK)
        if at >= stop or source[at] != _OPEN or attributes == _ATTRIBUTES_MAX:
            return UNKNOWN, count
        name = _skip(source, at + 1, stop, _BLANK)
        at = _name_end(source, name, stop)
        length = at - name
        at = _skip(source, at, stop, _BLANK)
        if length == 0 or length > NAME_BYTES_MAX or at >= stop or source[at] != _COMMA:
            return UNKNOWN, count
        target[place + 1] = length
        for i in range(length):
            target[place + 2 + i] = source[name + i]
        if _given_before(target, start + 2, place, length):
            return UNKNOWN, count
        value = _skip(source, at + 1, stop, _BLANK)
        type_, at = _value_end(source, value, stop)
        content = place + 2 + length
        if type_ == UNKNOWN:
            return UNKNOWN, count
        target[place] = type_
        if type_ == TEXT:
            size = at - value - 2
            _put(target, content, size, 4)
            for i in range(size):
                target[content + 4 + i] = source[value + 1 + i]
            place = content + 4 + size
        elif type_ == INTEGER:
            _put(target, content, _integer(source, value, at), 8)
            place = content + 8
        else:
            decimals[count, 0], decimals[count, 1], decimals[count, 2] = value, at - value, content
            count += 1
            place = content + 8
        attributes += 1
        at = _skip(source, at, stop, _BLANK)
        if at >= stop or source[at] != _CLOSE:
            return UNKNOWN, count
        at = _skip(source, at + 1, stop, _BLANK)
        if at == stop:
            _put(target, start, attributes, 2)
            return place, count
        if source[at] != _COMMA:
            return UNKNOWN, count
        at += 1


@kernel
def _skip(source: Any, at: int, stop: int, sign: int) -> int:
    while at < stop and source[at] == sign:
        at += 1
    return at


@kernel
def _name_end(source: Any, at: int, stop: int) -> int:
    """Where the characters end that a name may have and that are ASCII."""
    while at < stop:
        sign = source[at]
        if sign <= _BLANK or sign >= _DELETE or sign in (_COMMA, _OPEN, _CLOSE, _QUOTE):
            break
        at += 1
    return at


@kernel
def _given_before(target: Any, at: int, place: int, length: int) -> bool:
    """Whether one of the attributes from ``at`` to ``place`` has the name of the one at ``place``."""
    while at < place:
        same, size = target[at + 1] == length, _taken(target, at + 1, 1)
        for i in range(size if same else 0):
            same = same and target[at + 2 + i] == target[place + 2 + i]
        if same:
            return True
        content = at + 2 + size
        at = content + 4 + _taken(target, content, 4) if target[at] == TEXT else content + 8
    return False


@kernel
def _value_end(source: Any, at: int, stop: int) -> tuple[int, int]:
    """The type of the value at ``at`` and where it ends."""
    if at < stop and source[at] == _QUOTE:
        first = at + 1
        at = first
        while at < stop and source[at] != _QUOTE:
            if source[at] == _BACKSLASH or source[at] > _DELETE:
                return UNKNOWN, at
            at += 1
        if at == stop or at - first > TEXT_BYTES_MAX:
            return UNKNOWN, at
        return TEXT, at + 1
    if at < stop and source[at] == _MINUS:
        at += 1
    first = at
    at = _digits_end(source, at, stop)
    if at == first or at - first > _DIGITS_MAX:
        return UNKNOWN, at
    type_ = INTEGER
    if at < stop and source[at] == _POINT:
        type_, first = FLOAT, at + 1
        at = _digits_end(source, first, stop)
        if at == first:
            return UNKNOWN, at
    if at < stop and (source[at] == _SMALL_E or source[at] == _LARGE_E):
        type_ = FLOAT
        at += 1
        if at < stop and (source[at] == _MINUS or source[at] == _PLUS):
            at += 1
        first = at
        at = _digits_end(source, first, stop)
        # Two digits: what may be too large for a float, and is wrong then, is left to the parser.
        if at == first or at - first > 2:
            return UNKNOWN, at
    return type_, at


@kernel
def _digits_end(source: Any, at: int, stop: int) -> int:
    while at < stop and _ZERO <= source[at] <= _NINE:
        at += 1
    return at


@kernel
def _integer(source: Any, at: int, end: int) -> int:
    negative = source[at] == _MINUS
    number: Any = np.int64(0)
    for i in range(at + 1 if negative else at, end):
        number = number * 10 + np.int64(source[i] - _ZERO)
    return -number if negative else number  # type: ignore[no-any-return]


@kernel
def _put(target: Any, at: int, number: int, length: int) -> None:
    """Write a number in little-endian bytes."""
    for i in range(length):
        target[at + i] = np.uint8((number >> (8 * i)) & 0xFF)


@kernel
def _taken(target: Any, at: int, length: int) -> int:
    """What `_put` wrote."""
    number: Any = np.int64(0)
    for i in range(length):
        number |= np.int64(target[at + i]) << (8 * i)
    return number  # type: ignore[no-any-return]
