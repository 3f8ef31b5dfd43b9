"""Traces of live brokers: the table of `overweave.drivers.trace`, ``DIR/run=RUN/part-BROKER-00000.parquet`` and so on.

Unlike a simulated run, a live one has many writers and no end. Every broker writes files of its own, and a file appears when it
is complete: it is written under a hidden name, which readers pass over, and renamed after so many rows or seconds. A crash
loses the file that was open, and no other.

The broker only puts rows into a list; a thread makes files of them. Where it cannot keep up, or the disk is full, rows are
dropped and counted: a trace may have gaps, but it never holds up a publication.
"""

import contextlib
import os
import re
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from overweave.contract.records import Columns, Record
from overweave.drivers.trace import ROWS_PER_FILE, ROWS_PER_GROUP, SCHEMA, check_directory, run_name

#: A file is also closed so long after its first row came.
SECONDS_PER_FILE = 60.0
#: So many rows may wait for the thread, about 50 MB.
ROWS_WAITING_MAX = 1_000_000

_TICK_S_MAX = 1.0
_NAME_MAX = 100
_TEXTS = ("publisher", "broker", "subscription", "client")
#: Texts go into the file as codes with a dictionary, as they come. Readers see the types of `SCHEMA`: the file does not tell.
_CODED = pyarrow.schema(
    [each.with_type(pyarrow.dictionary(pyarrow.int32(), each.type)) if each.name in _TEXTS else each for each in SCHEMA]
)
#: What is quickest to write, a third quicker than what is smallest; statistics only where readers look for a range.
_FORMAT: dict[str, Any] = {
    "store_schema": False,
    "compression": "lz4",
    "use_dictionary": [*_TEXTS],
    "column_encoding": {"sequence": "DELTA_BINARY_PACKED", "published_at_s": "BYTE_STREAM_SPLIT"},
    "write_statistics": ["sequence", "published_at_s", "arrived_at_s"],
}


class LiveTrace(contextlib.AbstractContextManager["LiveTrace"]):
    """Writes what one broker of one run saw. All methods but `close` return at once, and are for one thread."""

    def __init__(
        self,
        directory: Path,
        run: str,
        broker: str,
        *,
        rows_per_file: int = ROWS_PER_FILE,
        seconds_per_file: float = SECONDS_PER_FILE,
        rows_waiting_max: int = ROWS_WAITING_MAX,
    ) -> None:
        check_directory(directory)
        self._broker = broker
        self._part = _Part(directory / f"run={run_name(run)}", broker)
        self._rows_per_file, self._seconds_per_file = rows_per_file, seconds_per_file
        self._rows_waiting_max = rows_waiting_max
        #: Guards what both threads change: the rows that wait, how many, since when, and how many were dropped.
        self._lock = threading.Lock()
        self._waiting: list[Columns | Record] = []
        self._rows = self._rows_in_work = 0
        self._since_s: float | None = None
        self._dropped = 0
        #: Why rows were dropped last, if it was not for the lack of time.
        self.failure: Exception | None = None
        self._room = _Room()
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"trace {broker}", daemon=True)
        self._thread.start()

    @property
    def path(self) -> Path:
        """Where the files of the run are."""
        return self._part.path

    @property
    def dropped(self) -> int:
        """How many rows are lost so far."""
        return self._dropped

    def add(self, record: Record) -> None:
        """Take one row; its run and broker are those of this trace."""
        self._put(record, 1)

    def add_columns(self, columns: Columns) -> None:
        """Take many rows."""
        _, publisher, sequence, _, subscription, _, client, hops, published_at_s, _, size = columns
        count = len(sequence)
        if not count == len(publisher) == len(subscription) == len(client) == len(hops) == len(published_at_s) == len(size):
            raise ValueError(f"columns: expected {count} rows in each, as many as sequences")
        if count:
            self._put(columns, count)

    def close(self) -> None:
        """Write all that waits and end the thread."""
        self._closing = True
        self._wake.set()
        self._thread.join()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _put(self, item: Columns | Record, count: int) -> None:
        with self._lock:
            if self._closing or self._rows + self._rows_in_work + count > self._rows_waiting_max:
                self._dropped += count
                return
            self._waiting.append(item)
            self._rows += count
            if self._since_s is None:
                self._since_s = time.monotonic()
            enough = self._rows >= min(ROWS_PER_GROUP, self._rows_per_file)
        if enough:
            self._wake.set()

    # ---- the thread: it wakes for a full group of rows, and else looks at the clock now and then

    def _work(self) -> None:
        _warm_up()
        tick_s = min(_TICK_S_MAX, self._seconds_per_file / 4)
        while not self._closing:
            self._wake.wait(tick_s)
            self._wake.clear()
            self._turn()
        self._turn()
        self._guarded(self._part.end)

    def _turn(self) -> None:
        with self._lock:
            due = self._since_s is not None and time.monotonic() - self._since_s >= self._seconds_per_file
            taken: list[Columns | Record] = []
            if due or self._closing or self._rows >= min(ROWS_PER_GROUP, self._rows_per_file):
                taken, self._waiting = self._waiting, taken
                self._rows_in_work, self._rows = self._rows, 0
            if due:
                self._since_s = None
        if taken:
            self._guarded(lambda: self._write(taken))
        if due:
            self._guarded(self._part.finish)
        self._rows_in_work = 0

    def _write(self, taken: Sequence[Columns | Record]) -> None:
        for table in _tables(taken, self._broker, self._room):
            start = 0
            while start < table.num_rows:
                some = table.slice(start, self._rows_per_file - self._part.rows)
                self._part.write(some)
                self._rows_in_work -= some.num_rows
                start += some.num_rows
                if self._part.rows >= self._rows_per_file:
                    self._part.finish()
                    self._since_s = time.monotonic()

    def _guarded(self, action: Callable[[], None]) -> None:
        """A disk that is full, or rows that make no sense, cost the rows in hand and the open file, but not the thread."""
        try:
            action()
        except Exception as error:
            self.failure = error
            with self._lock:
                self._dropped += self._rows_in_work + self._part.abandon()
                self._rows_in_work = 0


class _Part:
    """The file that is open, if any, and how many there were; for the thread alone."""

    def __init__(self, path: Path, broker: str) -> None:
        self.path = path
        self.rows = 0
        self._name = _file_name(broker)
        self._number: int | None = None
        self._writer: pyarrow.parquet.ParquetWriter | None = None

    def write(self, table: pyarrow.Table) -> None:
        self._opened().write_table(table)
        self.rows += table.num_rows

    def finish(self) -> None:
        """Close the file, put it onto the disk and in its place."""
        writer, self._writer = self._writer, None
        if writer is None:
            return
        writer.close()
        with self._hidden().open("rb") as file:
            os.fsync(file.fileno())
        self._hidden().rename(self.path / self._hidden().name.removeprefix("."))
        self._number = (self._number or 0) + 1
        self.rows = 0

    def end(self) -> None:
        """Finish; who saw nothing leaves an empty table, as a run without rows does."""
        if self._number is None:
            self._opened()
        self.finish()

    def abandon(self) -> int:
        """Give the open file up, and say how many rows were in it."""
        writer, self._writer = self._writer, None
        rows, self.rows = self.rows, 0
        with contextlib.suppress(Exception):
            if writer is not None:
                writer.close()
        with contextlib.suppress(OSError):
            self._hidden().unlink()
        return rows

    def _opened(self) -> pyarrow.parquet.ParquetWriter:
        if self._writer is None:
            self.path.mkdir(parents=True, exist_ok=True)
            if self._number is None:
                self._number = self._first_number()
            self._writer = pyarrow.parquet.ParquetWriter(self._hidden(), _CODED, **_FORMAT)
        return self._writer

    def _hidden(self) -> Path:
        return self.path / f".part-{self._name}-{self._number or 0:05}.parquet"

    def _first_number(self) -> int:
        """After those of an earlier life of the broker, whose open file, if it crashed, is removed."""
        ours = re.compile(rf"(\.?)part-{re.escape(self._name)}-([0-9]+)\.parquet")
        found = [match for match in (ours.fullmatch(path.name) for path in self.path.iterdir()) if match]
        for match in found:
            if match[1]:
                (self.path / match[0]).unlink()
        return max((int(match[2]) + 1 for match in found if not match[1]), default=0)


def _warm_up() -> None:
    """Write something to nowhere: the first time Arrow takes a quarter of a second to get ready, at the worst of times."""
    one, none = np.zeros(1, np.int32), np.full(1, -1, np.int32)
    columns = Columns(["p"], one, np.zeros(1, np.int64), [], none, [], none, one, np.zeros(1), 0.0, np.zeros(1, np.int64))
    with contextlib.suppress(pyarrow.ArrowException), pyarrow.BufferOutputStream() as nowhere:
        for table in _tables([columns], "B", _Room()):
            pyarrow.parquet.write_table(table, nowhere, **_FORMAT)


class _Room:
    """Arrays that are used again and again: fresh ones would cost as much as all that is written into them."""

    def __init__(self) -> None:
        self._arrays: dict[str, NDArray[Any]] = {}

    def joined(self, name: str, parts: Sequence[NDArray[Any]]) -> NDArray[Any]:
        """Parts one after the other, until the next ones of that name."""
        return np.concatenate(parts, out=self._of(name, sum(map(len, parts)), parts[0].dtype))

    def repeated(self, name: str, values: Sequence[float], counts: Sequence[int]) -> NDArray[Any]:
        """Each value so many times."""
        array, start = self._of(name, sum(counts), np.dtype(np.float64)), 0
        for value, count in zip(values, counts, strict=True):
            array[start : start + count] = value
            start += count
        return array

    def _of(self, name: str, count: int, kind: np.dtype[Any]) -> NDArray[Any]:
        if name not in self._arrays or len(self._arrays[name]) < count:
            self._arrays[name] = np.empty(max(count * 5 // 4, ROWS_PER_GROUP), kind)
        return self._arrays[name][:count]


def _tables(taken: Sequence[Columns | Record], broker: str, room: _Room) -> Iterator[pyarrow.Table]:
    """What waits as tables, each to be written before the next one is asked for."""
    columns = [each for each in taken if isinstance(each, Columns)]
    records = [each for each in taken if isinstance(each, Record)]
    if columns:
        yield pyarrow.table(_arrays_of_columns(columns, broker, room), schema=_CODED)
    if records:
        yield pyarrow.table(_arrays_of_records(records, broker), schema=_CODED)


def _arrays_of_columns(parts: Sequence[Columns], broker: str, room: _Room) -> list[Any]:
    """The columns of the table. What is done for each part is little, for there are thousands in a second."""
    counts = [len(each.sequence) for each in parts]
    return [
        _coded([each.publishers for each in parts], [each.publisher for each in parts], counts),
        room.joined("sequence", [each.sequence for each in parts]),
        _constant(broker, sum(counts)),
        _coded([each.subscriptions for each in parts], [each.subscription for each in parts], counts),
        _coded([each.clients for each in parts], [each.client for each in parts], counts),
        room.joined("hops", [each.hops for each in parts]),
        room.joined("published_at_s", [each.published_at_s for each in parts]),
        room.repeated("arrived_at_s", [each.arrived_at_s for each in parts], counts),
        room.joined("bytes", [each.bytes for each in parts]),
    ]


def _coded(lists: Sequence[Sequence[str]], codes: Sequence[NDArray[np.int32]], counts: Sequence[int]) -> Any:
    """One column of texts from many with their own lists; who shares a list may have let it grow meanwhile."""
    texts: list[str] = []
    starts: dict[int, int] = {}
    for each in lists:
        if id(each) not in starts:
            starts[id(each)] = len(texts)
            texts += each
    # Arrow finds the texts that are alike, in two thirds of the time that a dict takes.
    distinct = pyarrow.array(texts, pyarrow.string()).dictionary_encode()
    places = np.concatenate(codes)
    missing = places < 0
    places = places + np.repeat(np.array([starts[id(each)] for each in lists], np.int32), counts)
    # Nulls are one below the start of their list, and masked; the one more at the end is for those of the first list.
    indices = pyarrow.array(np.append(distinct.indices.to_numpy(), np.int32(0))[places], mask=missing)
    return pyarrow.DictionaryArray.from_arrays(indices, distinct.dictionary)


def _constant(text: str, count: int) -> Any:
    return pyarrow.DictionaryArray.from_arrays(np.zeros(count, np.int32), pyarrow.array([text]))


def _arrays_of_records(records: Sequence[Record], broker: str) -> list[Any]:
    plain = {each.name: pyarrow.array([getattr(row, each.name) for row in records], each.type) for each in SCHEMA}
    plain["broker"] = _constant(broker, len(records))
    return [plain[name].dictionary_encode() if name in _TEXTS else plain[name] for name in SCHEMA.names]


def _file_name(broker: str) -> str:
    """A name for files that no other broker has: where characters are replaced or cut, a checksum tells them apart."""
    name = run_name(broker)[:_NAME_MAX]
    return name if name == broker else f"{name}-{zlib.crc32(broker.encode()):08x}"
