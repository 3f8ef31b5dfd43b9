"""Traces of live brokers: the table of `overweave.drivers.tracing.files`, ``DIR/run=RUN/part-BROKER-00000.parquet`` and so on.

Unlike a simulated run, a live one has many writers and no end. Every broker writes files of its own, and a file appears when it
is complete: it is written under a hidden name, which readers ignore, and renamed after a number of rows or seconds.

The broker only fills buffers; a writer process makes files of them (`overweave.drivers.tracing.writer_main`). If the writer is
too slow, or the disk is full, rows are dropped and counted: a trace may have gaps, but it never delays a publication. A crash
of the broker loses the current buffer, a crash of the writer the open file.
"""

import contextlib
import threading
import time
from collections import deque
from pathlib import Path
from types import TracebackType
from typing import TypeVar

import numpy as np

from overweave.batches.trace_fields import Columns
from overweave.contract.records import Decision, Record, Statement
from overweave.drivers.tracing.kernels import enter_rows
from overweave.drivers.tracing.names import check_directory, run_name
from overweave.drivers.tracing.writer_process import WriterProcess
from overweave.drivers.tracing.writer_wire import CODES, MISSING, NUMBERS, Buffer, WriteReply, WriteRequest
from overweave.errors import OverweaveError

#: The rows of a file, and the time from its first row until it is closed.
ROWS_PER_FILE = 1_000_000
SECONDS_PER_FILE = 60.0
#: The rows of one buffer (5 MB), and of all buffers together.
ROWS_PER_BUFFER = 100_000
ROWS_WAITING_MAX = 1_000_000

_TICK_S_MAX = 1.0
_Row = TypeVar("_Row", Statement, Decision)


class LiveTrace(contextlib.AbstractContextManager["LiveTrace"]):
    """The trace of one broker in one run. All methods but `close` return at once; they must be called by one thread."""

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
        _warm_up()
        #: The directory of the run.
        self.path = directory / f"run={run_name(run)}"
        rows = min(ROWS_PER_BUFFER, rows_per_file)
        count = max(rows_waiting_max // rows, 1)
        self._process = WriterProcess(self.path, broker, rows_per_file, count, rows, run_name(run))
        self._seconds_per_file = seconds_per_file
        #: Guards the state of both threads: buffers, times of first rows, and the count of dropped rows.
        self._lock = threading.Lock()
        #: The last one is used next, so that rarely needed buffers occupy no memory.
        self._free = list(range(count))
        self._current: _WriteBuffer | None = None
        self._full: deque[_WriteBuffer] = deque()
        #: Statements are few and need no other buffer; rows above its capacity are dropped.
        self._statements: list[Statement] = []
        self._decisions: list[Decision] = []
        #: The time of the first of both.
        self._statements_since_s: float | None = None
        self._since_s: float | None = None
        self._dropped = 0
        #: The last write error.
        self.failure: Exception | None = None
        self._wake = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._work, name=f"trace {broker}", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        """The number of rows lost so far."""
        return self._dropped

    def add(self, record: Record) -> None:
        """Add one row; run and broker are those of this trace."""
        self.add_columns(_columns(record))

    def add_columns(self, columns: Columns) -> None:
        """Add many rows."""
        _, publisher, sequence, _, subscription, _, client, hops, published_at_s, _, size, _ = columns
        count = len(sequence)
        if not count == len(publisher) == len(subscription) == len(client) == len(hops) == len(published_at_s) == len(size):
            raise ValueError(f"columns: expected {count} rows in each, as many as sequences")
        with self._lock:
            if self._since_s is None:
                self._since_s = time.monotonic()
            done = 0
            while done < count:
                buffer = self._current or self._next()
                if buffer is None:
                    self._dropped += count - done
                    return
                done += buffer.copy_rows(columns, done)
                if buffer.is_full():
                    self._full.append(buffer)
                    self._current = None
                    self._wake.set()

    def add_statement(self, statement: Statement) -> None:
        """Add a row of the table ``statements``."""
        self._add_row(self._statements, statement)

    def add_decision(self, decision: Decision) -> None:
        """Add a row of the table ``decisions``."""
        self._add_row(self._decisions, decision)

    def _add_row(self, rows: list[_Row], row: _Row) -> None:
        with self._lock:
            if self._closing or len(rows) >= ROWS_WAITING_MAX:
                self._dropped += 1
                return
            if self._statements_since_s is None:
                self._statements_since_s = time.monotonic()
            rows.append(row)

    def close(self) -> None:
        """Write all pending rows to the disk, and wait for it."""
        with self._lock:
            self._closing = True
        self._wake.set()
        self._thread.join()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def _next(self) -> "_WriteBuffer | None":
        """Start a buffer, if one is free and the trace is open."""
        if self._closing or not self._free:
            return None
        number = self._free.pop()
        self._current = _WriteBuffer(number, self._process.buffers[number])
        return self._current

    # ---- the thread: it passes full buffers to the writer process, and finishes files when they are due

    def _work(self) -> None:
        self._process.start()
        tick_s = min(_TICK_S_MAX, self._seconds_per_file / 4)
        while not self._closing:
            self._wake.wait(tick_s)
            self._wake.clear()
            self._flush()
        self._flush()
        self._apply_reply(self._process.end())

    def _flush(self) -> None:
        statements, decisions = self._rows_due()
        if statements or decisions:
            request = WriteRequest(0, 0, [], [], [], statements=statements, decisions=decisions)
            self._apply_reply(self._process.request(request))
        with self._lock:
            due = self._since_s is not None and time.monotonic() - self._since_s >= self._seconds_per_file
            if due:
                self._since_s = None
            if (due or self._closing) and self._current is not None:
                self._full.append(self._current)
                self._current = None
        while self._full:
            buffer = self._full[0]
            self._apply_reply(self._process.request(buffer.request()))
            with self._lock:
                self._full.popleft()
                self._free.append(buffer.number)
        if due:
            self._apply_reply(self._process.request(WriteRequest(0, 0, [], [], [], finish=True)))

    def _rows_due(self) -> tuple[list[Statement], list[Decision]]:
        """The statements and decisions that are due to become files."""
        with self._lock:
            since_s = self._statements_since_s
            if since_s is None or not (self._closing or time.monotonic() - since_s >= self._seconds_per_file):
                return [], []
            due = list(self._statements), list(self._decisions)
            self._statements.clear()
            self._decisions.clear()
            self._statements_since_s = None
            return due

    def _apply_reply(self, reply: WriteReply) -> None:
        with self._lock:
            self._dropped += reply.rows_lost
            if reply.full:
                self._since_s = time.monotonic()
        if reply.failure is not None:
            self.failure = OverweaveError(reply.failure)


class _WriteBuffer:
    """A buffer with the texts that occur in it and their codes."""

    def __init__(self, number: int, buffer: Buffer) -> None:
        self.number = number
        self._buffer = buffer
        self._rows, self._room = 0, buffer.rows
        self._publishers: dict[str, int] = {}
        self._subscriptions: dict[str, int] = {}
        self._clients: dict[str, int] = {}
        self._previous_hops: dict[str, int] = {}

    def copy_rows(self, columns: Columns, first: int) -> int:
        """Copy rows from ``first`` on as far as there is room; the number of rows copied."""
        numbers, codes = self._buffer
        count = min(len(columns.sequence) - first, self._room)
        table = [_code(self._publishers, text) for text in columns.publishers]
        subscriptions_at = len(table)
        table += [_code(self._subscriptions, text) for text in columns.subscriptions]
        clients_at = len(table)
        table += [_code(self._clients, text) for text in columns.clients]
        hop = columns.previous_hop
        enter_rows(
            columns.publisher, columns.sequence, columns.subscription, columns.client, columns.hops,
            columns.published_at_s.view(np.int64), columns.bytes, columns.arrived_at_s, first, first + count,
            np.array(table, np.int32), subscriptions_at, clients_at,
            MISSING if hop is None else _code(self._previous_hops, hop), numbers, codes, self._rows,
        )  # fmt: skip
        self._rows += count
        self._room -= count
        return count

    def is_full(self) -> bool:
        return not self._room

    def request(self) -> WriteRequest:
        subscriptions, clients = [*self._subscriptions], [*self._clients]
        return WriteRequest(self.number, self._rows, [*self._publishers], subscriptions, clients, [*self._previous_hops])


def _warm_up() -> None:
    """Load the kernel, or compile it, before the first row arrives."""
    room = Buffer(np.empty((NUMBERS, 1), np.int64), np.empty((CODES, 1), np.int32))
    _WriteBuffer(0, room).copy_rows(_columns(Record("", "p", 0, "B", None, None, 0, 0.0, 0.0, 0)), 0)


def _code(known: dict[str, int], text: str) -> int:
    return known.setdefault(text, len(known))


def _columns(record: Record) -> Columns:
    """The columns of one row."""
    here, nowhere = np.zeros(1, np.int32), np.full(1, MISSING, np.int32)
    return Columns(
        [record.publisher], here, np.array([record.sequence]),
        [record.subscription or ""], nowhere if record.subscription is None else here,
        [record.client or ""], nowhere if record.client is None else here,
        np.array([record.hops], np.int32), np.array([record.published_at_s]), record.arrived_at_s, np.array([record.bytes]),
        record.previous_hop,
    )  # fmt: skip
