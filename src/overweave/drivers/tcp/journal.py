"""The journal file of a broker: its clients' subscriptions and advertisements, durable across crashes of process and machine.

Records are appended and synced in groups (`JournalFile.commit`). When most of them are out of date the file is replaced by a
snapshot, at the start and while the broker runs. Bytes after the last sync before a crash are cut off at the next start. All of
this waits for the disk, so a running broker leaves it to the thread of its `JournalWriter`.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

import msgspec

from overweave.broker.registry import Journal
from overweave.contract.overlay_state import OverlayRecord
from overweave.drivers.tcp.journal_format import Contents, encode_journal, encode_records, read
from overweave.drivers.tcp.logs import Log
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.predicates import Filter
from overweave.language.syntax import parse_filter

#: A journal is compacted if it is longer than this and has this ratio of all records to live ones.
COMPACT_BYTES, COMPACT_RATIO = 1 << 20, 4
_FLAGS = os.O_RDWR | os.O_CREAT

Key = tuple[str, str]
#: A key with a client and its filter, or with the overlay (None: withdrawn).
Entry = tuple[Key, tuple[str, Filter] | OverlayRecord | None]


class _Record(msgspec.Struct, omit_defaults=True):
    """A subscription or advertisement, or the overlay (without a filter or an overlay: its withdrawal)."""

    kind: str
    id: str
    client: str = ""
    filter: str | None = None
    overlay: OverlayRecord | None = None


class JournalFile:
    """One broker's journal in a directory. No two threads may use it at the same time."""

    def __init__(self, directory: Path, broker: str, log: Log | None = None) -> None:
        self.path = directory / f"{''.join(c if c.isalnum() or c in '._-' else '-' for c in broker)}.journal"
        self._log = log or Log(broker)
        self._lock: IO[bytes] | None = None
        self._descriptor: int | None = None
        #: The live records as they are in the file, and the number of all records.
        self._live: dict[Key, bytes] = {}
        self._records = 0
        self._salt = 0
        #: The number of durable bytes, and the length from which on it is compacted.
        self._synced_bytes = 0
        self._compact_bytes = COMPACT_BYTES
        #: A sync failed, so the contents are unknown: the file must be replaced before the next append.
        self._suspect = False

    def open(self) -> Journal:
        """Read the entries and get ready to append. The file is locked until it is closed."""
        try:
            if not self.path.parent.exists():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                _sync_directory(self.path.parent.parent)
            self._acquire_lock()
            contents = self._read()
            entries = self._restore(contents)
            self._begin(contents)
        except OSError as error:
            self.close()
            raise OverweaveError(f"{self.path}: the journal cannot be opened: {reason(error)}") from error
        except OverweaveError:
            self.close()
            raise
        return entries

    def commit(self, entries: Sequence[Entry]) -> None:
        """Append entries. They are durable when this returns; after an OSError they may be or not."""
        if self._suspect:
            self.compact()
        assert self._descriptor is not None
        records = [_written(*entry) for entry in entries]
        data, end = encode_records(records, self._salt, self._synced_bytes, self._synced_bytes)
        try:
            _write(self._descriptor, data, self._synced_bytes)
        except OSError:
            self._cut()
            raise
        self._sync()
        self._synced_bytes = end
        self._records += len(records)
        for (key, value), record in zip(entries, records, strict=True):
            if value is None:
                self._live.pop(key, None)
            else:
                self._live[key] = record

    @property
    def is_sparse(self) -> bool:
        """Whether most of the file is out of date."""
        return self._synced_bytes > self._compact_bytes and self._records > COMPACT_RATIO * len(self._live)

    def compact(self) -> None:
        """Replace the file by a snapshot; a crash leaves the one or the other."""
        salt = secrets.randbits(32)
        data = encode_journal(self._live.values(), salt)
        self._compact_bytes = max(COMPACT_BYTES, 2 * self._synced_bytes)  # if it fails, it is not tried each time
        fresh = self.path.with_suffix(".new")
        descriptor = os.open(fresh, _FLAGS | os.O_TRUNC, 0o666)
        try:
            _write(descriptor, data, 0)
            os.fsync(descriptor)
            fresh.replace(self.path)
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                fresh.unlink()
            raise
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor, self._salt, self._synced_bytes, self._records = descriptor, salt, len(data), len(self._live)
        self._suspect = True  # until the directory is durable too, the old file may come back
        _sync_directory(self.path.parent)
        self._suspect, self._compact_bytes = False, COMPACT_BYTES

    def close(self) -> None:
        """Close the file and release the lock."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    # ---- helpers

    def _acquire_lock(self) -> None:
        # Compaction replaces the journal, so the lock is on a file of its own.
        self._lock = self.path.with_suffix(".lock").open("ab")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise OverweaveError(f"{self.path}: expected a journal that no other broker has open") from None

    def _read(self) -> Contents:
        contents = read(self.path.read_bytes() if self.path.exists() else b"")
        if contents is None:
            raise InvalidInput(f"{self.path}:1: expected the header of a journal")
        return contents

    def _restore(self, contents: Contents) -> Journal:
        if contents.is_damaged:
            line = 2 + len(contents.records)
            raise InvalidInput(
                f"{self.path}:{line}: expected a record with its checksum; those after it are sound, so it is damaged"
            )
        for key, record in self._entries(contents):
            if record is None:
                self._live.pop(key, None)
            else:
                self._live[key] = record
        self._records = len(contents.records)
        found = {key: msgspec.json.decode(record, type=_Record) for key, record in self._live.items()}
        return {key: record.overlay or (record.client, parse_filter(record.filter or "")) for key, record in found.items()}

    def _entries(self, contents: Contents) -> Iterator[tuple[Key, bytes | None]]:
        last = contents.records[-1][0] if contents.records else 0
        for number, text in contents.records:
            try:
                record = msgspec.json.decode(text, type=_Record)
            except msgspec.MsgspecError:
                if contents.is_old and number == last:
                    self._log.warning("journal-truncated", file=str(self.path), records=number - 1, bytes=len(text))
                    return
                raise InvalidInput(f"{self.path}:{number}: expected a record of a journal") from None
            yield (record.kind, record.id), None if record.filter is None and record.overlay is None else text

    def _begin(self, contents: Contents) -> None:
        """Start with a compacted file; on a full disk, only the torn end is cut off."""
        if self.path.exists():
            self._log_truncation(contents, self.path.stat().st_size)
        try:
            self.compact()
        except OSError as error:
            if self._descriptor is not None or contents.is_old or not contents.sound_bytes:
                raise
            self._log.warning("journal-compaction-failed", file=str(self.path), text=reason(error))
            self._descriptor = os.open(self.path, _FLAGS)
            self._salt, self._synced_bytes = contents.salt, contents.sound_bytes
            os.ftruncate(self._descriptor, contents.sound_bytes)
            os.fsync(self._descriptor)
            _sync_directory(self.path.parent)
            self._suspect = False

    def _log_truncation(self, contents: Contents, length: int) -> None:
        """Log a file that is shorter than it was, or has a torn end, with the records that may be missing."""
        is_lost = contents.synced_bytes > contents.sound_bytes
        if is_lost:
            missing = "acknowledged advertisements, subscriptions and withdrawals"
        elif not contents.sound_bytes:  # a new journal has its header before it gets its name
            missing = "all advertisements and subscriptions of earlier runs"
        elif length > contents.sound_bytes:
            missing = "only records that were not acknowledged"
        else:
            return
        bytes = length - contents.sound_bytes
        (self._log.error if is_lost else self._log.warning)(
            "journal-truncated", file=str(self.path), records=len(contents.records), bytes=bytes, missing=missing
        )

    def _cut(self) -> None:
        """Cut off a partial write."""
        assert self._descriptor is not None
        try:
            os.ftruncate(self._descriptor, self._synced_bytes)
        except OSError:
            self._suspect = True

    def _sync(self) -> None:
        assert self._descriptor is not None
        try:
            os.fsync(self._descriptor)
        except OSError:
            # The system may have dropped unwritten pages, and would report the next sync as a success.
            self._suspect = True
            raise


def read_journal(directory: Path, broker: str) -> Journal:
    """The durable entries of a journal that a broker may have open: the file is neither locked nor changed."""
    file = JournalFile(directory, broker)
    return file._restore(file._read())


def reason(error: BaseException) -> str:
    """The text of an error, for people.

    >>> reason(OSError(28, "No space left on device"))
    'No space left on device'
    """
    return (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__


def _written(key: Key, value: tuple[str, Filter] | OverlayRecord | None) -> bytes:
    if isinstance(value, OverlayRecord):
        return msgspec.json.encode(_Record(*key, overlay=value))
    client, filter = value if value is not None else ("", None)
    return msgspec.json.encode(_Record(*key, client, None if filter is None else str(filter)))


def _write(descriptor: int, data: bytes, at: int) -> None:
    """Write all of the data, in as many system calls as needed."""
    rest = memoryview(data)
    while rest:
        written = os.pwrite(descriptor, rest, at)
        rest, at = rest[written:], at + written


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
