"""The files of a live trace, one after the other: each is written under a hidden name, and renamed when it is complete.

The writer of a hidden file holds a lock on it. An unlocked hidden file was left by a crash, and is removed by the broker's next
incarnation. A locked one still has a writer, that of a killed broker; it stays, and its name is not reused.
"""

import contextlib
import fcntl
import os
import re
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from overweave.contract.records import Decision, Statement
from overweave.drivers.tracing.files import DECISIONS_SCHEMA, SCHEMA, STATEMENTS_SCHEMA, decisions_table, statements_table
from overweave.drivers.tracing.names import DECISIONS, STATEMENTS, run_name
from overweave.drivers.tracing.writer_wire import CODES, NUMBERS, Buffer, WriteRequest

_NAME_MAX = 100
_TEXTS = ("publisher", "broker", "subscription", "client", "previous_hop")
#: Texts are written as dictionary codes. Readers see the types of `SCHEMA`, because the file does not store this schema.
_CODED = pyarrow.schema(
    [each.with_type(pyarrow.dictionary(pyarrow.int32(), each.type)) if each.name in _TEXTS else each for each in SCHEMA]
)
#: The fastest format to write, by a third against the smallest; statistics only for columns with range queries.
_FORMAT: dict[str, Any] = {
    "store_schema": False,
    "compression": "lz4",
    "use_dictionary": [*_TEXTS],
    "column_encoding": {"sequence": "DELTA_BINARY_PACKED", "published_at_s": "BYTE_STREAM_SPLIT"},
    "write_statistics": ["sequence", "published_at_s", "arrived_at_s"],
}


class Files:
    """The open file of one broker, if any, and its number."""

    _schema, _format = _CODED, _FORMAT

    def __init__(self, path: Path, broker: str) -> None:
        self._path = path
        self._name = _file_name(broker)
        #: The number of rows in the open file.
        self.rows = 0
        self._number: int | None = None
        self._lock: int | None = None
        self._writer: pyarrow.parquet.ParquetWriter | None = None

    def write(self, table: pyarrow.Table) -> None:
        """Write rows to the open file."""
        self._opened().write_table(table)
        self.rows += table.num_rows

    def write_file(self, table: pyarrow.Table) -> None:
        """Write a file of these rows only."""
        try:
            self.write(table)
            self.finish()
        except Exception:
            self.abandon()
            raise

    def finish(self) -> None:
        """Close the file, sync it to the disk and rename it."""
        writer, self._writer = self._writer, None
        if writer is None or self._lock is None:
            return
        writer.close()
        os.fsync(self._lock)
        self._hidden().rename(self._path / self._hidden().name.removeprefix("."))
        self._unlock()
        self._number = (self._number or 0) + 1
        self.rows = 0

    def end(self) -> None:
        """Finish; without rows there is an empty table, as for a simulated run without rows."""
        if self._number is None:
            self._opened()
        self.finish()

    def abandon(self) -> int:
        """Discard the open file; the number of its rows."""
        writer, self._writer = self._writer, None
        rows, self.rows = self.rows, 0
        with contextlib.suppress(Exception):
            if writer is not None:
                writer.close()
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._hidden().unlink()
            self._unlock()
        return rows

    def _opened(self) -> pyarrow.parquet.ParquetWriter:
        if self._writer is None:
            self._path.mkdir(parents=True, exist_ok=True)
            if self._number is None:
                self._number = self._first_number()
            while self._lock is None:
                self._lock = _created(self._hidden())
                self._number += self._lock is None
            self._writer = pyarrow.parquet.ParquetWriter(self._hidden(), self._schema, **self._format)
        return self._writer

    def _hidden(self) -> Path:
        return self._path / f".part-{self._name}-{self._number or 0:05}.parquet"

    def _first_number(self) -> int:
        """The number after the files of earlier incarnations; their unlocked hidden files are removed."""
        ours = re.compile(rf"(\.?)part-{re.escape(self._name)}-([0-9]+)\.parquet")
        found = [match for match in (ours.fullmatch(path.name) for path in self._path.iterdir()) if match]
        kept = [match for match in found if not (match[1] and _removed(self._path / match[0]))]
        return max((int(match[2]) + 1 for match in kept), default=0)

    def _unlock(self) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            os.close(lock)


class StatementFiles(Files):
    """The files of the table ``statements``, one for each flush: the rows are few, and none is to be lost."""

    _schema, _format = STATEMENTS_SCHEMA, {"compression": "zstd"}

    def __init__(self, path: Path, broker: str) -> None:
        super().__init__(path / STATEMENTS, broker)

    def add(self, statements: Sequence[Statement]) -> None:
        """Write a file of these rows."""
        self.write_file(statements_table(statements))


class DecisionFiles(Files):
    """The files of the table ``decisions``, as of statements."""

    _schema, _format = DECISIONS_SCHEMA, {"compression": "zstd"}

    def __init__(self, path: Path, broker: str, run: str) -> None:
        super().__init__(path / DECISIONS, broker)
        self._run = run

    def add(self, decisions: Sequence[Decision]) -> None:
        """Write a file of these rows."""
        self.write_file(decisions_table(self._run, decisions))


def table_of(buffer: Buffer, request: WriteRequest, broker: str) -> pyarrow.Table:
    """The rows of a buffer, to be written before it is filled again."""
    sequences, sizes, published, arrived = buffer.numbers[:, : request.rows]
    publishers, subscriptions, clients, hops, previous_hops = buffer.codes[:, : request.rows]
    columns = [
        _coded(request.publishers, publishers),
        sequences,
        _coded([broker], np.zeros(request.rows, np.int32)),
        _coded(request.subscriptions, subscriptions),
        _coded(request.clients, clients),
        hops,
        published.view(np.float64),
        arrived.view(np.float64),
        sizes,
        _coded(request.previous_hops, previous_hops),
    ]
    return pyarrow.table(columns, schema=_CODED)


def warm_up() -> None:
    """Write something to nowhere: the first time Arrow takes a quarter of a second to get ready, at the worst of times."""
    buffer = Buffer(np.zeros((NUMBERS, 1), np.int64), np.zeros((CODES, 1), np.int32))
    with contextlib.suppress(pyarrow.ArrowException), pyarrow.BufferOutputStream() as nowhere:
        pyarrow.parquet.write_table(table_of(buffer, WriteRequest(0, 1, ["p"], ["s"], ["c"], ["B"]), "B"), nowhere, **_FORMAT)


def _coded(texts: Sequence[str], codes: NDArray[np.int32]) -> Any:
    missing = codes < 0
    indices = pyarrow.array(codes, mask=missing) if missing.any() else pyarrow.array(codes)
    return pyarrow.DictionaryArray.from_arrays(indices, pyarrow.array(texts, pyarrow.string()))


def _created(path: Path) -> int | None:
    """A descriptor of a file that was not there before, locked; None: it was, or somebody was quicker."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    _locked(descriptor)
    if path.exists():
        return descriptor
    os.close(descriptor)
    return None


def _removed(path: Path) -> bool:
    """Remove a file unless it is locked; whether it is gone."""
    try:
        descriptor = os.open(path, os.O_RDWR)
    except FileNotFoundError:
        return True
    try:
        free = _locked(descriptor)
        if free:
            path.unlink(missing_ok=True)
        return free
    finally:
        os.close(descriptor)


def _locked(descriptor: int) -> bool:
    """Whether this process got the lock; always, if the file system has no locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _file_name(broker: str) -> str:
    """A unique name for a broker's files: with a checksum if characters had to be replaced or cut."""
    name = run_name(broker)[:_NAME_MAX]
    return name if name == broker else f"{name}-{zlib.crc32(broker.encode()):08x}"
