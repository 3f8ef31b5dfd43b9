"""A workload in a directory: a folder per table, and ``workload.json``, which says how to make it again.

That file is also how we know a directory of ours: one with anything in it and without that file is not touched.
"""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame

from overweave.errors import InvalidInput
from overweave.pipeline.tables import write_table

MARK = "workload.json"
#: What a workload may consist of. Nothing else in its directory is ever removed.
OURS = ("brokers", "publishers", "subscriptions", "publications", "bad")


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory holds."""

    kind: str
    seed: int
    options: dict[str, object]
    #: Rows by table; none until all are there.
    rows: dict[str, int] | None = None


def check_free(out: Path) -> None:
    """Raise unless a workload may be written to ``out``."""
    if out.exists() and not out.is_dir():
        raise InvalidInput(f"--out: expected a directory, found the file {out}")
    if out.is_dir() and any(out.iterdir()) and not (out / MARK).is_file():
        raise InvalidInput(f"--out: expected a directory that is new, empty or a workload, found other files in {out}")


def write_workload(tables: Mapping[str, DataFrame], out: Path, note: Note, on_table: Callable[[str], None]) -> Note:
    """Write all tables in place of those of an earlier workload; the note, with the numbers of rows, comes last."""
    check_free(out)
    out.mkdir(parents=True, exist_ok=True)
    (out / MARK).write_bytes(msgspec.json.encode(note))
    for name in OURS:
        shutil.rmtree(out / name, ignore_errors=True)
    rows = {}
    for name, frame in tables.items():
        on_table(name)
        write_table(frame, out / name)
        rows[name] = frame.sparkSession.read.parquet(str(out / name)).count()
    complete = msgspec.structs.replace(note, rows=rows)
    (out / MARK).write_bytes(msgspec.json.format(msgspec.json.encode(complete)) + b"\n")
    return complete
