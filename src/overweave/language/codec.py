"""The wire form of content: what brokers exchange, matchers read and traces keep, little-endian throughout.

::

    publication := u16 count, then per attribute:             u8 type, u8 n, n bytes name, value
    filter      := u16 count, then per predicate: u8 operator, u8 type, u8 n, n bytes name, value
    value       := i64 (type 0) | f64 (type 1) | u32 length, UTF-8 bytes (type 2)

Nothing refers to anything outside, so bytes can be forwarded, stored and matched without being decoded; the kernels
of `overweave.matching` walk exactly this layout. An attribute occurs once.
"""

import functools
import struct
from collections.abc import Callable
from itertools import accumulate
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from overweave.errors import InvalidInput, WireError
from overweave.language.predicates import Filter, Operator, Predicate
from overweave.language.publications import Publication
from overweave.language.values import Value

T = TypeVar("T")

INTEGER, FLOAT, TEXT = 0, 1, 2
#: What a filter and a publication may hold. Each predicate of a filter costs every broker memory and time; a publication's
#: attributes cost only those that carry it, so there the limit is what a count of two bytes can say.
PREDICATES_MAX = 1_024
ATTRIBUTES_MAX = 65_535
#: No text is longer; a megabyte belongs into a payload.
TEXT_BYTES_MAX = 1 << 20

_U16 = struct.Struct("<H")
_U32 = struct.Struct("<I")
_I64 = struct.Struct("<q")
_F64 = struct.Struct("<d")
#: How far behind the beginning of a bytes object its bytes lie.
_BYTES_START = np.frombuffer(_PROBE := b"probe", np.uint8).ctypes.data - id(_PROBE)
_pack_i64, _pack_f64 = _I64.pack, _F64.pack


def encode_publication(publication: Publication) -> bytes:
    """The wire form of ``publication``; computed once per publication.

    >>> encode_publication(Publication({"volume": 7})).hex(" ")
    '01 00 00 06 76 6f 6c 75 6d 65 07 00 00 00 00 00 00 00'
    """
    encoded = publication._encoded
    if encoded is None:
        parts = [_count(len(publication), ATTRIBUTES_MAX, "attributes")]
        for name, value in publication._attributes.items():
            _append_value(parts, None, name, value)
        encoded = publication._encoded = b"".join(parts)
    return encoded


def address_of_publication(publication: Publication) -> tuple[int, int]:
    """Where the wire form of ``publication`` lies, as address and length; it lies there as long as the publication is kept.

    >>> address_of_publication(Publication({"volume": 7}))[1]
    18
    """
    place = publication._address
    if place is None:
        place = publication._address = address_of_bytes(encode_publication(publication))
    return place


def address_of_bytes(encoded: bytes) -> tuple[int, int]:
    """Where bytes lie, as address and length: what a kernel can be given much faster than an array.

    >>> import ctypes
    >>> ctypes.string_at(*address_of_bytes(b"abc"))
    b'abc'
    """
    return id(encoded) + _BYTES_START, len(encoded)


def decode_publication(data: bytes) -> Publication:
    """The publication that ``data`` is the wire form of.

    >>> decode_publication(encode_publication(Publication({"symbol": "YHOO"})))
    Publication({'symbol': 'YHOO'})
    """
    reader = _Reader(data)
    attributes: dict[str, Value] = {}
    for _ in range(reader.count(ATTRIBUTES_MAX)):
        type_, name = reader.byte(), reader.name()
        if name in attributes:
            raise WireError(reader.at, f"an attribute that was not given before, got {name!r}")
        attributes[name] = reader.value(type_)
    return reader.finished(lambda: Publication(attributes))


def encode_filter(filter: Filter) -> bytes:
    """The wire form of ``filter``.

    >>> from overweave.language.syntax import parse_filter
    >>> encode_filter(parse_filter("[x,>,7]")).hex(" ")
    '01 00 05 00 01 78 07 00 00 00 00 00 00 00'
    """
    parts = [_count(len(filter.predicates), PREDICATES_MAX, "predicates")]
    for predicate in filter.predicates:
        _append_value(parts, predicate.operator, predicate.attribute, predicate.value)
    return b"".join(parts)


def decode_filter(data: bytes) -> Filter:
    """The filter that ``data`` is the wire form of.

    >>> from overweave.language.syntax import parse_filter
    >>> str(decode_filter(encode_filter(parse_filter("[symbol,str-prefix,'Y']"))))
    "[symbol,str-prefix,'Y']"
    """
    reader = _Reader(data)
    parts: list[tuple[str, Operator, Value]] = []
    for _ in range(reader.count(PREDICATES_MAX)):
        operator, type_, name = reader.operator(), reader.byte(), reader.name()
        parts.append((name, operator, reader.value(type_)))
    return reader.finished(lambda: Filter(tuple(Predicate(*part) for part in parts)))


def join_encoded(encoded: list[bytes]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Many wire forms as one buffer and their offsets (one more than there are forms), as kernels read them.

    >>> data, offsets = join_encoded([b"ab", b"c"])
    >>> data.tobytes(), offsets.tolist()
    (b'abc', [0, 2, 3])
    """
    offsets = np.array([0, *accumulate(map(len, encoded))], np.int64)
    return np.frombuffer(encoded[0] if len(encoded) == 1 else b"".join(encoded), np.uint8), offsets


def _count(count: int, most: int, what: str) -> bytes:
    if count > most:
        raise InvalidInput(f"expected at most {most:,} {what}, got {count:,}")
    return _U16.pack(count)


def _append_value(parts: list[bytes], operator: Operator | None, name: str, value: Value) -> None:
    if isinstance(value, float):
        parts.append(_head(operator, FLOAT, name) + _pack_f64(value))
    elif isinstance(value, str):
        text = value.encode()
        if len(text) > TEXT_BYTES_MAX:
            raise InvalidInput(f"attribute {name!r}: expected text of at most {TEXT_BYTES_MAX:,} bytes, got {len(text):,}")
        parts += (_head(operator, TEXT, name), _U32.pack(len(text)), text)
    else:
        parts.append(_head(operator, INTEGER, name) + _pack_i64(value))


@functools.lru_cache(maxsize=8192)
def _head(operator: Operator | None, type_: int, name: str) -> bytes:
    encoded = name.encode()
    before = b"" if operator is None else bytes([operator])
    return before + bytes([type_, len(encoded)]) + encoded


class _Reader:
    """A cursor over bytes from outside: whatever does not fit is a `WireError` with its offset."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.at = 0

    def count(self, most: int) -> int:
        count = int(_U16.unpack(self._take(2, "a count of two bytes"))[0])
        if count > most:
            raise WireError(0, f"at most {most:,} entries, got {count:,}")
        return count

    def byte(self) -> int:
        return self._take(1, "one more byte")[0]

    def operator(self) -> Operator:
        code = self.byte()
        if not 1 <= code <= len(Operator):
            raise WireError(self.at - 1, f"the code of an operator, got {code}")
        return Operator(code)

    def name(self) -> str:
        return self._text(self.byte(), "an attribute name")

    def value(self, type_: int) -> Value:
        if type_ == INTEGER:
            return int(_I64.unpack(self._take(8, "an integer of eight bytes"))[0])
        if type_ == FLOAT:
            return float(_F64.unpack(self._take(8, "a float of eight bytes"))[0])
        if type_ == TEXT:
            return self._text(_U32.unpack(self._take(4, "a length of four bytes"))[0], "text")
        raise WireError(self.at, f"a value of type 0, 1 or 2, got type {type_}")

    def finished(self, make: Callable[[], T]) -> T:
        if self.at != len(self._data):
            raise WireError(self.at, f"the end, got {len(self._data) - self.at} more bytes")
        try:
            return make()
        except InvalidInput as error:
            raise WireError(0, f"content that can exist: {error}") from None

    def _text(self, length: int, what: str) -> str:
        start = self.at
        if length > TEXT_BYTES_MAX:
            raise WireError(start, f"{what} of at most {TEXT_BYTES_MAX:,} bytes, got {length:,}")
        try:
            return self._take(length, f"{what} of {length} bytes").decode()
        except UnicodeDecodeError:
            raise WireError(start, f"{what} in UTF-8") from None

    def _take(self, length: int, expected: str) -> bytes:
        if self.at + length > len(self._data):
            raise WireError(self.at, expected)
        self.at += length
        return self._data[self.at - length : self.at]
