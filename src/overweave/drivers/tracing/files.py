"""Traces: rows of the table ``deliveries`` as Parquet, ``DIR/run=RUN/part-00000.parquet`` and so on.

A run appears in the directory when it is complete, and not at all when it fails: its files are written in a hidden folder
beside their place, which readers ignore, and moved by one rename. As usual for tables partitioned by folders,
the column ``run`` is in the folder's name and not in the files; readers (Arrow, Spark) put it back.

The table ``statements`` of a run, the advertisements and subscriptions of its clients, is in a folder of its own,
``DIR/run=RUN/_statements/part-00000.parquet``, which readers of the deliveries ignore; it is small, and has all its columns.
So has the table ``decisions`` of modules, in ``DIR/run=RUN/_decisions/part-00000.parquet``; without decisions there is none.
"""

import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pyarrow
import pyarrow.parquet

from overweave.contract.records import Decision, Record, Statement
from overweave.drivers.tracing.names import DECISIONS, STATEMENTS, check_directory, run_name

#: The columns of `Record` besides ``run``.
SCHEMA = pyarrow.schema(
    [
        pyarrow.field("publisher", pyarrow.string(), nullable=False),
        pyarrow.field("sequence", pyarrow.int64(), nullable=False),
        pyarrow.field("broker", pyarrow.string(), nullable=False),
        pyarrow.field("subscription", pyarrow.string()),
        pyarrow.field("client", pyarrow.string()),
        pyarrow.field("hops", pyarrow.int32(), nullable=False),
        pyarrow.field("published_at_s", pyarrow.float64(), nullable=False),
        pyarrow.field("arrived_at_s", pyarrow.float64(), nullable=False),
        pyarrow.field("bytes", pyarrow.int64(), nullable=False),
        pyarrow.field("previous_hop", pyarrow.string()),
    ]
)
#: The columns of `Statement`.
STATEMENTS_SCHEMA = pyarrow.schema(
    [
        pyarrow.field("run", pyarrow.string(), nullable=False),
        pyarrow.field("at_s", pyarrow.float64(), nullable=False),
        pyarrow.field("broker", pyarrow.string(), nullable=False),
        pyarrow.field("client", pyarrow.string(), nullable=False),
        pyarrow.field("kind", pyarrow.string(), nullable=False),
        pyarrow.field("id", pyarrow.string(), nullable=False),
        pyarrow.field("filter", pyarrow.string()),
        pyarrow.field("withdrawn", pyarrow.bool_(), nullable=False),
    ]
)
#: The columns of `Decision`, and the run.
DECISIONS_SCHEMA = pyarrow.schema(
    [
        pyarrow.field("run", pyarrow.string(), nullable=False),
        pyarrow.field("at_s", pyarrow.float64(), nullable=False),
        pyarrow.field("broker", pyarrow.string(), nullable=False),
        pyarrow.field("module", pyarrow.string(), nullable=False),
        pyarrow.field("what", pyarrow.string(), nullable=False),
        pyarrow.field("about", pyarrow.string(), nullable=False),
        pyarrow.field("reason", pyarrow.string(), nullable=False),
        pyarrow.field("figures", pyarrow.map_(pyarrow.string(), pyarrow.float64()), nullable=False),
    ]
)
#: The rows of a file, and the rows that are held in memory.
ROWS_PER_FILE = 1_000_000
ROWS_PER_GROUP = 100_000


def statements_table(statements: Sequence[Statement]) -> pyarrow.Table:
    """Rows of the table ``statements``."""
    columns = [pyarrow.array([getattr(row, each.name) for row in statements], type=each.type) for each in STATEMENTS_SCHEMA]
    return pyarrow.table(columns, schema=STATEMENTS_SCHEMA)


def decisions_table(run: str, decisions: Sequence[Decision]) -> pyarrow.Table:
    """Rows of the table ``decisions`` of a run."""
    rows = [{**msgspec.structs.asdict(row), "run": run, "figures": list(row.figures.items())} for row in decisions]
    return pyarrow.Table.from_pylist(rows, schema=DECISIONS_SCHEMA)


class TraceWriter:
    """Writes the rows of one run; leave the ``with`` block well and the run is there, replacing an earlier one of its name."""

    def __init__(self, directory: Path, run: str, rows_per_file: int = ROWS_PER_FILE) -> None:
        self._directory = directory
        self._run = run_name(run)
        self._rows_per_file = rows_per_file
        self._hidden = directory / f".run={self._run}.{os.getpid()}"
        self._rows: list[Record] = []
        self._statements: list[Statement] = []
        self._statement_files = 0
        self._decisions: list[Decision] = []
        self._writer: pyarrow.parquet.ParquetWriter | None = None
        self._files = 0
        self._rows_in_file = 0

    @property
    def path(self) -> Path:
        """Where the run will be."""
        return self._directory / f"run={self._run}"

    def add_statement(self, statement: Statement) -> None:
        """Add a row of the table ``statements``, inside the ``with`` block."""
        self._statements.append(statement)
        if len(self._statements) >= self._rows_per_file:
            self._flush_statements()

    def add_decision(self, decision: Decision) -> None:
        """Add a row of the table ``decisions``, inside the ``with`` block; they are few, and make one file at the end."""
        self._decisions.append(decision)

    def __enter__(self) -> Callable[[Record], None]:
        check_directory(self._directory)
        shutil.rmtree(self._hidden, ignore_errors=True)
        self._hidden.mkdir(parents=True)
        return self._add

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._flush()
                if not self._files:
                    self._open()
                self._close()
                if self._statements or not self._statement_files:
                    self._flush_statements()
                self._write_decisions()
                self._publish()
        finally:
            self._close()
            shutil.rmtree(self._hidden, ignore_errors=True)

    def _add(self, record: Record) -> None:
        self._rows.append(record)
        if len(self._rows) >= min(ROWS_PER_GROUP, self._rows_per_file - self._rows_in_file):
            self._flush()

    def _flush(self) -> None:
        if not self._rows:
            return
        columns: list[Any] = [
            pyarrow.array([getattr(row, field.name) for row in self._rows], type=field.type) for field in SCHEMA
        ]
        writer = self._writer or self._open()
        writer.write_batch(pyarrow.record_batch(columns, schema=SCHEMA))
        self._rows_in_file += len(self._rows)
        self._rows.clear()
        if self._rows_in_file >= self._rows_per_file:
            self._close()

    def _flush_statements(self) -> None:
        folder = self._hidden / STATEMENTS
        folder.mkdir(exist_ok=True)
        path = folder / f"part-{self._statement_files:05}.parquet"
        pyarrow.parquet.write_table(statements_table(self._statements), path, compression="zstd")
        self._statement_files += 1
        self._statements.clear()

    def _write_decisions(self) -> None:
        if self._decisions:
            folder = self._hidden / DECISIONS
            folder.mkdir()
            table = decisions_table(self._run, self._decisions)
            pyarrow.parquet.write_table(table, folder / "part-00000.parquet", compression="zstd")

    def _open(self) -> pyarrow.parquet.ParquetWriter:
        path = self._hidden / f"part-{self._files:05}.parquet"
        self._writer = pyarrow.parquet.ParquetWriter(path, SCHEMA, compression="zstd")
        self._files += 1
        self._rows_in_file = 0
        return self._writer

    def _close(self) -> None:
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        self._rows_in_file = 0

    def _publish(self) -> None:
        """Put the run in its place; a folder cannot be renamed onto a full one, so an earlier run steps aside first."""
        aside = self._directory / f"{self._hidden.name}.old"
        if self.path.exists():
            self.path.rename(aside)
        self._hidden.rename(self.path)
        shutil.rmtree(aside, ignore_errors=True)
