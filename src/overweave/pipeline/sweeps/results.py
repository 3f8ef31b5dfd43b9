"""The directory of a sweep: ``metrics`` (Parquet, one row per scenario), ``sweep.json``, and later figures and a report.

Finished scenarios are there as soon as their task is: a file per task, moved to its place when it is complete, so that
what was computed survives whatever ends the run. When all is done there is one file, in the order of the grid.
``sweep.json`` says how to read the table, and is how we know a directory of ours.
"""

import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset
import pyarrow.parquet as pq

from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.sweeps.base import ARROW_TYPES
from overweave.pipeline.sweeps.file import FigureSpec, Sweep

METRICS, MANIFEST_NAME = "metrics", "sweep.json"
KEY, ERROR = "scenario", "error"
_WHOLE = "part-00000.parquet"


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory holds."""

    kind: str
    #: How many there are when all is done.
    scenarios: int
    #: Columns of `METRICS`, between the key and the error.
    parameters: tuple[str, ...]
    measures: tuple[str, ...]
    figures: tuple[FigureSpec, ...]


def check_free(where: LocationLike) -> None:
    """Raise unless a sweep may be written to ``where``."""
    out = Location.of(where)
    if out.is_file():
        raise InvalidInput(f"{out}: expected a directory, found a file")
    names = [each.name for each in out.list()]
    if names and MANIFEST_NAME not in names:
        raise InvalidInput(f"{out}: expected a directory that is new, empty or of an earlier sweep, found other files")


def read_manifest(directory: LocationLike) -> Manifest:
    """The manifest of a directory."""
    mark = Location.of(directory) / MANIFEST_NAME
    try:
        return msgspec.json.decode(mark.read_bytes(), type=Manifest)
    except (OSError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"{mark}: expected the manifest of a sweep, found: {error}") from None


def read_metrics(directory: LocationLike) -> pa.Table:
    """The table ``metrics`` of a sweep, finished or not; every scenario once."""
    folder = Location.of(directory) / METRICS
    names = _parts(folder)
    if not names:
        raise InvalidInput(f"{folder}: expected a table of finished scenarios, found none")
    try:
        with ExitStack() as stack:
            paths = [stack.enter_context((folder / name).fetched()) for name in names]
            # The first file has all rows when others are left over from a run that ended while it tidied up.
            found = pyarrow.dataset.dataset([str(path) for path in paths], schema=pq.read_schema(paths[0])).to_table()
    except (OSError, pa.ArrowException) as error:
        raise InvalidInput(f"{folder}: expected Parquet, found: {str(error).splitlines()[0]}") from None
    return _once(found)


def _parts(folder: Location) -> list[str]:
    names = (each.name for each in folder.list())
    return [name for name in names if name.startswith("part-") and name.endswith(".parquet")]


class Results:
    """The finished scenarios of a sweep, in its directory."""

    def __init__(self, sweep: Sweep, where: LocationLike) -> None:
        out = Location.of(where)
        check_free(out)
        self._sweep = sweep
        self._folder = out / METRICS
        self._position = {task.key: number for number, task in enumerate(sweep.tasks)}
        self._parameters = _parameters(sweep)
        self._folder.make_directory()
        self._parts = [self._found(out)]
        self.close()
        note = Manifest(
            kind=sweep.kind,
            scenarios=len(sweep.tasks),
            parameters=tuple(sweep.parameters),
            measures=tuple(sweep.measures),
            figures=sweep.figures,
        )
        (out / MANIFEST_NAME).write_bytes(msgspec.json.format(msgspec.json.encode(note), indent=2) + b"\n")

    def keys(self, *, failed: bool) -> set[str]:
        """The keys of successful or of failed scenarios."""
        rows = pa.concat_tables(self._parts)
        return set(rows.filter(rows[ERROR].is_valid() if failed else rows[ERROR].is_null())[KEY].to_pylist())

    def drop(self, keys: set[str]) -> None:
        """Remove the results of some scenarios."""
        rows = pa.concat_tables(self._parts)
        self._parts = [rows.filter(pc.invert(pc.is_in(rows[KEY], value_set=pa.array(sorted(keys), pa.string()))))]
        self.close()

    def add(self, measured: pa.Table) -> None:
        """Keep what a task found: the key, measures and error of its scenarios."""
        self._parts.append(measured)
        self._write(f"part-{measured[KEY][0].as_py()}.parquet", measured)

    def close(self) -> None:
        """All that is finished in one file, in the order of the grid."""
        self._write(_WHOLE, pa.concat_tables(self._parts))
        for name in _parts(self._folder):
            if name != _WHOLE:
                (self._folder / name).remove()

    def _found(self, out: Location) -> pa.Table:
        """What earlier runs finished; a column that they did not know is empty."""
        schema = measured_schema(self._sweep.measures)
        if not _parts(self._folder):
            return schema.empty_table()
        earlier = _renamed(read_metrics(out))
        foreign = sum(key not in self._position for key in earlier[KEY].to_pylist())
        if foreign:
            raise InvalidInput(
                f"{out}: expected the scenarios of this file, found {foreign} others; another directory keeps both"
            )
        columns = [
            earlier[field.name].cast(field.type) if field.name in earlier.column_names else pa.nulls(earlier.num_rows, field.type)
            for field in schema
        ]
        return pa.Table.from_arrays(columns, schema=schema)

    def _write(self, name: str, measured: pa.Table) -> None:
        positions = pa.array([self._position[key] for key in measured[KEY].to_pylist()], pa.int64())
        order = pc.sort_indices(positions)
        parameters, ordered = self._parameters.take(positions.take(order)), measured.take(order)
        table = pa.table(
            {KEY: ordered[KEY]}
            | {each: parameters[each] for each in parameters.column_names}
            | {each: ordered[each] for each in ordered.column_names if each != KEY}
        )
        with tempfile.NamedTemporaryFile() as file:
            pq.write_table(table, file.name, compression="zstd")
            (self._folder / name).put(Path(file.name))


def measured_schema(measures: Mapping[str, type]) -> pa.Schema:
    """What a task gives for a scenario."""
    fields = [pa.field(name, ARROW_TYPES[kind]) for name, kind in measures.items()]
    return pa.schema([pa.field(KEY, pa.string()), *fields, pa.field(ERROR, pa.string())])


def _parameters(sweep: Sweep) -> pa.Table:
    columns = {
        name: pa.array([task.parameters.get(name) for task in sweep.tasks], ARROW_TYPES[kind])
        for name, kind in sweep.parameters.items()
    }
    return pa.table(columns)


def _renamed(earlier: pa.Table) -> pa.Table:
    """Measures of the release before, by their names of today: it called useful arrivals deliveries."""
    if "client_deliveries" not in earlier.column_names:
        return earlier
    names = {"deliveries": "useful_arrivals", "client_deliveries": "deliveries"}
    return earlier.rename_columns([names.get(name, name) for name in earlier.column_names])


def _once(found: pa.Table) -> pa.Table:
    """The first row of every scenario."""
    numbered = found.append_column("_row", pa.array(range(found.num_rows), pa.int64()))
    first = numbered.group_by(KEY).aggregate([("_row", "min")])["_row_min"]
    return found.take(first.combine_chunks().sort())
