"""Small tables of planning on the driver: their place in a directory, and their columns as Arrow or lists."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.json
import pyarrow.parquet as pq

from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.schemas import EARLIER_NAMES
from overweave.pipeline.streaming.versions import current
from overweave.pipeline.tables import files_of
from overweave.planning.problem import Reals

#: The columns of a window: its number of publications, its first and last sequence number.
WINDOW_SIZE, WINDOW_ENDS = "window_publications", ("first_sequence", "last_sequence")
#: The tables that identify a profile, and a workload.
PROFILE_TABLES, WORKLOAD_TABLES = ("profiles", "publisher_profiles"), ("publishers", "subscriptions", "publications")


def kind_of(source: LocationLike) -> str:
    """The kind of a directory: ``profile`` or ``workload``."""
    for kind, names in (("profile", PROFILE_TABLES), ("workload", WORKLOAD_TABLES)):
        if all(table_path(source, name) is not None for name in names):
            return kind
    there = Location.of(source).status()
    found = "nothing" if there is None else "other files" if there.is_dir else "a file"
    expected = " and ".join(f"{', '.join(names)}" for names in (PROFILE_TABLES, WORKLOAD_TABLES))
    raise InvalidInput(f"{source}: expected a directory with the tables of a profile or a workload ({expected}), found {found}")


def table_path(source: LocationLike, name: str) -> Location | None:
    """The path of a table: a folder of Parquet files or a file, by its name or its earlier name; None if missing."""
    directory = current(source)
    for table in dict.fromkeys((name, EARLIER_NAMES.get(name, name))):
        for each in (table, *(f"{table}.{suffix}" for suffix in ("parquet", "csv", "jsonl"))):
            there = (directory / each).status()
            if there is not None and there.is_dir == (each == table):
                return directory / each
    return None


def table_of(source: LocationLike, name: str) -> Location:
    """The path of a table; a missing table is an error."""
    path = table_path(source, name)
    if path is None:
        raise InvalidInput(f"{source}: expected a table {name!r}, found none")
    return path


def column_lists(path: Location, columns: Sequence[str]) -> Mapping[str, list[Any]]:
    """All columns of a small table as lists."""
    table = arrow_table(path, columns)
    return {name: table[name].to_pylist() for name in table.column_names}


def arrow_table(path: Location, columns: Sequence[str]) -> pa.Table:
    """A table with the required ``columns``, without nulls in them."""
    files = files_of(path)
    try:
        parts = []
        for name in files.names:
            with Location.of(name).fetched() as file:
                parts.append(_READERS[files.kind](file))
        table = pa.concat_tables(parts, promote_options="permissive")
    except (pa.ArrowException, OSError) as error:
        raise InvalidInput(f"{path}: expected a table, found: {str(error).splitlines()[0]}") from None
    for name in columns:
        if name not in table.column_names:
            raise InvalidInput(f"{path}: expected a column {name!r}, found {', '.join(table.column_names)}")
        if table[name].null_count:
            raise InvalidInput(f"{path}: column {name!r}: expected a value, found null")
    return table


def numbers(path: Location, name: str, values: Sequence[Any]) -> Reals:
    """A column of numbers."""
    try:
        return np.array(values, np.float64)
    except (TypeError, ValueError):
        raise InvalidInput(f"{path}: column {name!r}: expected numbers") from None


_READERS = {"parquet": pq.read_table, "csv": pyarrow.csv.read_csv, "json": pyarrow.json.read_json}
