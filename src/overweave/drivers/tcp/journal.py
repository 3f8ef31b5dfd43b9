"""The journal of a broker: what its clients said, kept in one file that survives the crash of the process.

Lines of JSON, appended and handed to the operating system before the broker says another word; written anew, without what was
withdrawn, when the broker starts. A line that a crash cut short is dropped with a word to the log.
"""

import os
from pathlib import Path
from typing import IO

import msgspec

from overweave.broker.registry import Journal
from overweave.errors import InvalidInput
from overweave.language.predicates import Filter
from overweave.language.syntax import parse_filter


class _Line(msgspec.Struct, omit_defaults=True):
    """What a client said (or, without a filter, withdrew)."""

    kind: str
    id: str
    client: str = ""
    filter: str | None = None


class JournalFile:
    """One broker's journal in a directory."""

    def __init__(self, directory: Path, broker: str) -> None:
        self._path = directory / f"{''.join(c if c.isalnum() or c in '._-' else '-' for c in broker)}.journal"
        self._entries: dict[tuple[str, str], tuple[str, Filter]] = {}
        self._file: IO[bytes] | None = None

    def open(self) -> Journal:
        """Read what was kept, and be ready to keep more."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        if self._path.exists():
            lines = self._path.read_bytes().split(b"\n")
            for number, line in enumerate(lines, 1):
                self._take(line, number, last=number == len(lines))
        fresh = self._path.with_suffix(".new")
        fresh.write_bytes(b"".join(_written(key, value) for key, value in self._entries.items()))
        fresh.replace(self._path)
        self._file = self._path.open("ab", buffering=0)
        return self._entries

    def keep(self, key: tuple[str, str], value: tuple[str, Filter] | None) -> None:
        """Keep what a client said, or no longer."""
        assert self._file is not None
        self._file.write(_written(key, value))

    def close(self) -> None:
        """Have the disk take it too."""
        if self._file is not None:
            os.fsync(self._file.fileno())
            self._file.close()
            self._file = None

    def _take(self, text: bytes, number: int, last: bool) -> None:
        if not text:
            return
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.MsgspecError:
            if last:
                return
            raise InvalidInput(f"{self._path}:{number}: expected a line of a journal") from None
        if line.filter is None:
            self._entries.pop((line.kind, line.id), None)
        else:
            self._entries[line.kind, line.id] = (line.client, parse_filter(line.filter))


def _written(key: tuple[str, str], value: tuple[str, Filter] | None) -> bytes:
    client, filter = value if value is not None else ("", None)
    return msgspec.json.encode(_Line(*key, client, None if filter is None else str(filter))) + b"\n"
