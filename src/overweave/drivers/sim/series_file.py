"""Files of time series: CSV or Parquet, complete or not there."""

import types
import typing
from pathlib import Path
from types import TracebackType
from typing import Any

import msgspec
import pyarrow
import pyarrow.csv
import pyarrow.parquet

from overweave.drivers.sim.series import Sample
from overweave.errors import InvalidInput

SUFFIXES = (".parquet", ".csv")
_TYPES: dict[type, pyarrow.DataType] = {
    float: pyarrow.float64(),
    int: pyarrow.int64(),
    bool: pyarrow.bool_(),
    str: pyarrow.string(),
}
#: The fields with one column for each key: the prefix of the columns, and their type.
_DICTIONARIES = {
    "tables": ("table_", pyarrow.int64()),
    "modules": ("module_", pyarrow.int64()),
    "load": ("load_", pyarrow.float64()),
}
#: Rows that are held as objects.
_ROWS = 10_000


def series_path(target: Path, run: str) -> Path:
    """The file of a series: ``target``, or ``RUN.parquet`` in it if it is a directory.

    >>> series_path(Path("load.csv"), "run").name, series_path(Path("series"), "run").as_posix()
    ('load.csv', 'series/run.parquet')
    """
    if target.suffix in SUFFIXES and not target.is_dir():
        return target
    if target.suffix and not target.is_dir():
        raise InvalidInput(f"--series {target}: expected a file {' or '.join(SUFFIXES)}, or a directory, got {target.suffix!r}")
    return target / f"{run}.parquet"


class SeriesWriter:
    """Writes samples to a file that appears when it is complete; used with ``with``, it is called with each sample."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._part = path.with_name(f".{path.name}.part")
        self._rows: list[Sample] = []
        self._batches: list[pyarrow.Table] = []

    def __enter__(self) -> "SeriesWriter":
        try:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._part.touch()
        except OSError as error:
            text = (error.strerror or str(error)).lower()
            raise InvalidInput(f"--series {self._path}: expected a file that can be written, found {text}") from None
        return self

    def __call__(self, sample: Sample) -> None:
        """One more sample."""
        self._rows.append(sample)
        if len(self._rows) >= _ROWS:
            self._pack()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if kind is None:
                self._write()
        finally:
            self._part.unlink(missing_ok=True)

    def _write(self) -> None:
        self._pack()
        table = pyarrow.concat_tables(self._batches, promote_options="default")
        if self._path.suffix == ".csv":
            pyarrow.csv.write_csv(table, self._part)
        else:
            pyarrow.parquet.write_table(table, self._part)
        self._part.replace(self._path)

    def _pack(self) -> None:
        rows, self._rows = self._rows, []
        fields = [field for field in msgspec.structs.fields(Sample) if field.name not in _DICTIONARIES]
        columns: dict[str, Any] = {
            field.name: pyarrow.array([getattr(row, field.name) for row in rows], type=_TYPES[_plain(field.type)])
            for field in fields
        }
        for field_name, (prefix, type) in _DICTIONARIES.items():
            values = [getattr(row, field_name) for row in rows]
            for name in sorted({name for each in values for name in each}):
                columns[prefix + name] = pyarrow.array([each.get(name) for each in values], type=type)
        self._batches.append(pyarrow.table(columns))


def _plain(type: Any) -> Any:
    """The type of a field that may be None."""
    if isinstance(type, types.UnionType):
        return next(each for each in typing.get_args(type) if each is not types.NoneType)
    return type
