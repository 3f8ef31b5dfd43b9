"""A workload in a directory: a folder per table, and ``workload.json``, which says how to make it again.

That file is also how we know a directory of ours: one with anything in it and without that file is not touched.
"""

from collections.abc import Callable, Mapping

import msgspec
from pyspark.sql import DataFrame

from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location, LocationLike
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


def check_free(where: LocationLike) -> None:
    """Raise unless a workload may be written to ``where``."""
    out = Location.of(where)
    if out.is_file():
        raise InvalidInput(f"--out: expected a directory, found the file {out}")
    names = [each.name for each in out.list()]
    if names and MARK not in names:
        raise InvalidInput(f"--out: expected a directory that is new, empty or a workload, found other files in {out}")


def write_workload(tables: Mapping[str, DataFrame], where: LocationLike, note: Note, on_table: Callable[[str], None]) -> Note:
    """Write all tables in place of those of an earlier workload; the note, with the numbers of rows, comes last."""
    out = Location.of(where)
    check_free(out)
    (out / MARK).write_bytes(msgspec.json.encode(note))
    for name in OURS:
        (out / name).remove()
    rows = {}
    for name, frame in tables.items():
        on_table(name)
        write_table(frame, out / name)
        rows[name] = frame.sparkSession.read.parquet((out / name).pattern).count()
    complete = msgspec.structs.replace(note, rows=rows)
    (out / MARK).write_bytes(msgspec.json.format(msgspec.json.encode(complete)) + b"\n")
    return complete
