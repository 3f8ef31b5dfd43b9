"""The text of a journal: a header, then one record a line, each with a checksum.

::

    overweave-journal 2 SALT LENGTH
    CRC SYNCED {"kind":"subscription","id":"c/s1","client":"c","filter":"[x,>,1]"}

SALT is a random number of this file. LENGTH is the length of its initial snapshot. CRC covers the salt, the offset of the line
in the file and the rest of the line: a line of another file, or at another offset, is no record. SYNCED is the number of
durable bytes of the file when the record was written. So everything before the largest SYNCED must be sound. Everything after it
may be torn by a crash, and was not acknowledged. All numbers are hexadecimal. An earlier format, lines of JSON, is read too.
"""

import re
import zlib
from collections.abc import Iterable, Iterator

import msgspec

_HEADER = re.compile(rb"overweave-journal 2 ([0-9a-f]{8}) ([0-9a-f]{16})\n")
_HEADER_BYTES = 46
_LINE = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]+) (.*)", re.DOTALL)


class Contents(msgspec.Struct):
    """The contents of a journal: the sound records in order, and the damage after them."""

    salt: int
    #: The text of each record, with the number of its line.
    records: list[tuple[int, bytes]]
    #: The number of sound bytes, and the known number of durable bytes.
    sound_bytes: int
    synced_bytes: int
    #: Whether sound records follow, so that this is no torn end.
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
    """The contents of a journal; None if it is neither a journal nor the beginning of one."""
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
    """The complete lines after the header, with their numbers and offsets."""
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
