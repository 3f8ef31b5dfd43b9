"""The directory of a workload: a folder per table and the manifest ``workload.json``.

The manifest has all parameters of the workload. A directory with other files and no manifest is never overwritten.
"""

from collections.abc import Callable, Mapping

import msgspec
from pyspark.sql import DataFrame

from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.tables import write_table

MANIFEST_NAME = "workload.json"
#: Folders that a workload owns. Nothing else in its directory is ever removed.
OWNED = ("brokers", "publishers", "subscriptions", "publications", "bad")


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The parameters of a workload and its row counts."""

    kind: str
    seed: int
    options: dict[str, object]
    #: Rows by table; None while the workload is incomplete.
    rows: dict[str, int] | None = None


def check_free(where: LocationLike) -> None:
    """Raise unless a workload may be written to ``where``."""
    out = Location.of(where)
    if out.is_file():
        raise InvalidInput(f"--out: expected a directory, found the file {out}")
    names = [each.name for each in out.list()]
    if names and MANIFEST_NAME not in names:
        raise InvalidInput(f"--out: expected a directory that is new, empty or a workload, found other files in {out}")


def write_workload(
    tables: Mapping[str, DataFrame], where: LocationLike, manifest: Manifest, on_table: Callable[[str], None]
) -> Manifest:
    """Replace the tables of an earlier workload; the complete manifest is written last."""
    out = Location.of(where)
    check_free(out)
    (out / MANIFEST_NAME).write_bytes(msgspec.json.encode(manifest))
    for name in OWNED:
        (out / name).remove()
    rows = {}
    for name, frame in tables.items():
        on_table(name)
        write_table(frame, out / name)
        rows[name] = frame.sparkSession.read.parquet((out / name).pattern).count()
    complete = msgspec.structs.replace(manifest, rows=rows)
    (out / MANIFEST_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(complete)) + b"\n")
    return complete
