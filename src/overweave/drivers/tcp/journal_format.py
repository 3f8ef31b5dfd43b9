"""The text of a journal: a header, then one record a line, each with a checksum.

::

    overweave-journal 2 SALT LENGTH
    CRC SYNCED {"kind":"subscription","id":"c/s1","client":"c","filter":"[x,>,1]"}

SALT is a random number of this file. LENGTH says how long the snapshot is that the file began with. CRC is of the salt, the
offset of the line in the file, and all after it: a line left over from another file, or in another place, is no record.
SYNCED says how many bytes of the file were durable when the record was written. So whatever is before the largest SYNCED must be
sound, and whatever is after it may be torn: a crash leaves there what it likes, and none of it was acknowledged.
All numbers are hexadecimal. An earlier form, lines of JSON alone, is read too.
"""

import re
import zlib
from collections.abc import Iterable, Iterator

import msgspec

_HEADER = re.compile(rb"overweave-journal 2 ([0-9a-f]{8}) ([0-9a-f]{16})\n")
_HEADER_BYTES = 46
_LINE = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]+) (.*)", re.DOTALL)


class Contents(msgspec.Struct):
    """What is in a journal: the records that are sound and in order, and what is wrong after them."""

    salt: int
    #: The text of each record, with the number of its line.
    records: list[tuple[int, bytes]]
    #: How many bytes are sound, and how many were durable as far as is known.
    sound_bytes: int
    synced_bytes: int
    #: Whether records follow that are sound, so that this is no torn end.
    is_damaged: bool = False
    #: Without checksums.
    is_old: bool = False


def encode_journal(records: Iterable[bytes], salt: int) -> bytes:
    """A whole journal that begins with a snapshot.

    >>> read(encode_journal([b"{}"], 7)).records
    [(2, b'{}')]
    """
    body, end = encode_records(records, salt, _HEADER_BYTES, 0)
    return b"overweave-journal 2 %08x %016x\n" % (salt, end) + body


def encode_records(records: Iterable[bytes], salt: int, at: int, synced_bytes: int) -> tuple[bytes, int]:
    """Records as lines from an offset on, and the offset after them."""
    lines = []
    for record in records:
        body = b"%x %b\n" % (synced_bytes, record)
        lines.append(b"%08x " % _checksum(body, salt, at))
        lines.append(body)
        at += 9 + len(body)
    return b"".join(lines), at


def read(data: bytes) -> Contents | None:
    """What is in a journal; None when it is none, nor one of which only the beginning was written."""
    header = _HEADER.match(data)
    if header is None:
        if data.startswith(b"{"):
            return _read_old(data)
        rest = data.rstrip(b"\0")
        return Contents(0, [], 0, 0) if _is_begun(rest) else None
    salt = int(header[1], 16)
    contents = Contents(salt, [], _HEADER_BYTES, int(header[2], 16))
    is_sound = True
    for number, at, line in _lines(data):
        record = _LINE.fullmatch(line)
        if record is None or int(record[1], 16) != _checksum(line[9:], salt, at):
            is_sound = False
            continue
        synced_bytes = int(record[2], 16)
        if is_sound:
            contents.records.append((number, record[3][:-1]))
            contents.sound_bytes = at + len(line)
        elif contents.sound_bytes < max(contents.synced_bytes, synced_bytes):
            contents.is_damaged = True
        contents.synced_bytes = max(contents.synced_bytes, synced_bytes)
    return contents


def _lines(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """The lines after the header that have an end, with their number and offset."""
    number, at = 2, _HEADER_BYTES
    while (end := data.find(b"\n", at) + 1) > 0:
        yield number, at, data[at:end]
        number, at = number + 1, end


def _read_old(data: bytes) -> Contents:
    records = [(number, line) for number, line in enumerate(data.split(b"\n"), 1) if line]
    return Contents(0, records, len(data), 0, is_old=True)


def _is_begun(data: bytes) -> bool:
    """Whether this is the beginning of a header, or nothing."""
    return _HEADER.fullmatch(data + b"overweave-journal 2 00000000 0000000000000000\n"[len(data) :]) is not None


def _checksum(body: bytes, salt: int, at: int) -> int:
    return zlib.crc32(body, zlib.crc32(at.to_bytes(8, "little"), salt))
