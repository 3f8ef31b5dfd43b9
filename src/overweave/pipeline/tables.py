"""Reading and writing tables: Parquet, or CSV and JSON lines for small ones. Errors are one line.

A directory is read as one table; folders ``name=value`` add columns, so ``run`` of a trace comes back. Columns may come in any
order, and additional ones are ignored. Spark accepts nulls in required columns, so they are checked here: `read_table`
fails where such a value is used, and `overweave.pipeline.quarantine` leaves the row out.
"""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StringType, StructField, StructType
from pyspark.util import inheritable_thread_target

from overweave.drivers.tracing.names import STATEMENTS as STATEMENTS_FOLDER
from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.schemas import ADDED, EARLIER_NAMES, TABLES
from overweave.pipeline.spark_errors import first_line, local_names, raise_column, user_message

_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}
#: Additional columns: the address of a row's file, its row number (Parquet only), and the text of an unreadable row.
#: They are in Spark's own form, since formatting takes longer than reading a row.
FILE, PLACE, BROKEN = "_file", "_address", "_broken"
#: Tables written concurrently.
_TOGETHER = 4
#: The folder name of a null value.
_NULL_FOLDER = "__HIVE_DEFAULT_PARTITION__"


_FOLDER_TYPES = "spark.sql.sources.partitionColumnTypeInference.enabled"


class Files(NamedTuple):
    """The files of a table."""

    path: Location
    kind: str
    #: As the file system writes them.
    names: list[str]
    #: Those with nothing in them.
    empty: list[str]
    #: Whether these are not all that are at the path.
    some: bool = False

    @property
    def folder_columns(self) -> set[str]:
        """Columns that are in the names of folders and not in the files."""
        within = self.names[0].removeprefix(self.path.path).split("/")[:-1]
        return {part.partition("=")[0] for part in within if "=" in part}

    @property
    def patterns(self) -> list[str]:
        """What Spark is to read."""
        # One path is listed quicker than many names.
        return [Location.of(name).pattern for name in self.names] if self.some else [self.path.pattern]


def read_table(spark: SparkSession, path: LocationLike, name: str) -> DataFrame:
    """The table ``name`` (of `TABLES`) in a file or directory, with exactly its columns.

    A row that does not fit is an `InvalidInput` once it is used (see `overweave.pipeline.spark_errors`).
    """
    files = files_of(path)
    found = open_files(spark, files, name)
    # A folder's column stays as it is, or Spark would read all folders to find one run.
    checked = [field for field in TABLES[name].fields if field.name not in files.folder_columns]
    sure = {field.name: _checked(field, name) for field in checked}
    return found.withColumns(sure).select(TABLES[name].fieldNames())


def read_statements(spark: SparkSession, run: LocationLike) -> DataFrame:
    """The table ``statements`` in the folder of a run, with no rows where the trace has none."""
    folder = Location.of(run) / STATEMENTS_FOLDER
    names = [(folder / each.name).pattern for each in folder.list() if each.name[0] != "." and each.name.endswith(".parquet")]
    schema = TABLES["statements"]
    return spark.read.schema(schema).parquet(*names) if names else spark.createDataFrame([], schema)


def open_files(spark: SparkSession, files: Files, name: str) -> DataFrame:
    """The rows of some files as they are, in the types of the table ``name``, with `FILE`, `PLACE` and `BROKEN`."""
    schema = TABLES[name]
    try:
        found = _READERS[files.kind](spark, files, schema)
    except (PySparkException, Py4JJavaError) as error:
        said = user_message(error) or f"{files.path}: expected the table {name!r} as {files.kind}, found: {first_line(error)}"
        raise InvalidInput(said) from None
    return conform(found, schema, f"{files.path}", FILE, PLACE, BROKEN)


def conform(frame: DataFrame, schema: StructType, where: str, *more: str) -> DataFrame:
    """The columns of ``schema``, in its order and types, and ``more``; one that is missing or of another type is an error."""
    types = dict(frame.dtypes)
    for field in schema.fields:
        said = mismatch(field, types.get(field.name), frame.columns)
        if said is not None:
            raise InvalidInput(f"{where}: {said}")
    lacking = {name: F.lit(None) for name in ADDED.intersection(schema.fieldNames()) - types.keys()}
    frame = frame.withColumns(lacking) if lacking else frame
    try:
        return frame.select([F.col(field.name).cast(field.dataType).alias(field.name) for field in schema.fields] + list(more))
    except AnalysisException as error:
        raise InvalidInput(f"{where}: {first_line(error)}") from None


def mismatch(field: StructField, found: str | None, columns: list[str]) -> str | None:
    """What is wrong with a column of the type ``found`` (none: it is not there) for ``field``; none: nothing."""
    if found is None:
        if field.name in ADDED:
            return None
        return f"expected a column {field.name!r}, found {', '.join(name for name in columns if name[0] != '_') or 'none'}"
    wanted = field.dataType.simpleString()
    if wanted == found or wanted in _WIDER.get(found, ()):
        return None
    return f"column {field.name!r}: expected {wanted}, found {found}"


def folder_of(directory: Location, name: str) -> Location:
    """Where a table of a directory is, or would be: under its name, or what the release before called it."""
    earlier = directory / EARLIER_NAMES.get(name, name)
    return earlier if earlier.is_dir() and not (directory / name).is_dir() else directory / name


def write_table(frame: DataFrame, path: LocationLike, partitions: int | None = None) -> None:
    """Replace a table, as Parquet."""
    some = frame if partitions is None else frame.coalesce(partitions)
    some.write.mode("overwrite").parquet(Location.of(path).address)


def write_tables(
    tables: Mapping[Location, DataFrame] | Mapping[Path, DataFrame], on_begin: Callable[[str], None] = lambda _: None
) -> None:
    """Write tables that do not need each other, some at a time: to plan a small one takes longer than to compute it."""
    pool = ThreadPoolExecutor(_TOGETHER)
    try:
        for written in [pool.submit(_write_in_thread(frame), frame, path, on_begin) for path, frame in tables.items()]:
            written.result()
    finally:
        pool.shutdown(cancel_futures=True)


def _write_in_thread(frame: DataFrame) -> Callable[[DataFrame, Location | Path, Callable[[str], None]], None]:
    """A writer for other threads that belongs to the job group of this one, so that progress includes its jobs."""

    def write(frame: DataFrame, path: Location | Path, on_begin: Callable[[str], None]) -> None:
        on_begin(path.name)
        write_table(frame, path)

    inheriting: Any = inheritable_thread_target(frame.sparkSession)
    made: Callable[[DataFrame, Location | Path, Callable[[str], None]], None] = inheriting(write)
    return made


def files_of(path: LocationLike) -> Files:
    """The files of a table in a file or directory; a directory has Parquet files, of which hidden ones do not count."""
    location = Location.of(path)
    there = location.status()
    if there is None:
        raise InvalidInput(f"{location}: expected a file or directory, found nothing")
    if there.is_dir:
        sizes = dict(sorted(location.walk()))
        if not sizes:
            raise InvalidInput(f"{location}: expected a directory with Parquet files, found none")
        for name in sizes:
            if _NULL_FOLDER in name:
                raise InvalidInput(f"{name.rpartition('/')[0]}: expected a folder with a value, found null")
        return Files(location, "parquet", list(sizes), [name for name, size in sizes.items() if not size])
    kind = _SUFFIXES.get(location.suffix)
    if kind is None:
        raise InvalidInput(f"{location}: expected a name that ends in {', '.join(_SUFFIXES)}")
    return Files(location, kind, [location.path], [] if there.size else [location.path])


def _read_parquet(spark: SparkSession, files: Files, schema: StructType) -> DataFrame:  # noqa: ARG001
    # Spark would pass over them in silence.
    for file in files.empty:
        raise InvalidInput(f"{file}: expected a Parquet file, found an empty one")
    is_file = files.names == [files.path.path]
    reader = spark.read if is_file else spark.read.option("basePath", files.path.address)
    with _folders_as_text(spark):
        found = reader.parquet(*files.patterns)
        # Types of folders' columns are found out when the columns are.
        _ = found.columns
    return found.select("*", *_placed(F.col("_metadata.row_index")), F.lit(None).cast("string").alias(BROKEN))


@contextmanager
def _folders_as_text(spark: SparkSession) -> Iterator[None]:
    """Folder values as texts, regardless of the session's settings: the run 007 is not the run 7."""
    before = spark.conf.get(_FOLDER_TYPES, None)
    if before == "false":
        yield
        return
    spark.conf.set(_FOLDER_TYPES, "false")
    try:
        yield
    finally:
        if before is None:
            spark.conf.unset(_FOLDER_TYPES)
        else:
            spark.conf.set(_FOLDER_TYPES, before)


def _read_csv(spark: SparkSession, files: Files, schema: StructType) -> DataFrame:
    """With a header; the order of columns is the file's."""
    header = spark.read.csv(files.path.pattern, header=True).columns
    known = {field.name: field.dataType for field in schema.fields}
    shape = StructType([StructField(name, known.get(name, StringType())) for name in (*header, BROKEN)])
    # The error of a row must not depend on the columns that are used.
    reader = spark.read.option("columnPruning", False)
    rows = reader.csv(files.path.pattern, schema=shape, header=True, columnNameOfCorruptRecord=BROKEN)
    return rows.select("*", *_placed())


def _read_json(spark: SparkSession, files: Files, schema: StructType) -> DataFrame:
    """Line by line; Spark's own reader parses only the fields that are used."""
    shape = StructType([*(StructField(field.name, field.dataType) for field in schema.fields), StructField(BROKEN, StringType())])
    row = F.from_json("value", shape, {"columnNameOfCorruptRecord": BROKEN})
    lines = spark.read.text(files.path.pattern).where(F.trim("value") != "")
    return lines.select(row.alias("row"), *_placed()).select("row.*", FILE, PLACE)


_READERS = {"parquet": _read_parquet, "csv": _read_csv, "json": _read_json}


def _placed(number: Column | None = None) -> tuple[Column, Column]:
    place = F.lit(None) if number is None else number
    return F.col("_metadata.file_path").alias(FILE), place.cast("long").alias(PLACE)


def file_text() -> Column:
    """The file of a row, as people write it."""
    return local_names(F.col(FILE))


def place_text() -> Column:
    """The row number in its file; null if unknown."""
    return F.concat(F.lit("row "), F.col(PLACE) + 1)


def _checked(field: StructField, name: str) -> Column:
    """A column as it is, or an error when the row has no value where there must be one, or could not be read at all."""
    value = F.col(field.name)
    if not field.nullable:
        # The last one is never reached: it lets Spark know that there is a value, and not look for null again and again.
        value = F.coalesce(value, raise_column(file_text(), place_text(), null_text(field)), F.lit(0).cast(field.dataType))
    broken = F.substring(F.col(BROKEN), 1, _SHOWN)
    refused = raise_column(file_text(), F.concat(F.lit(f"{broken_text(name)}, found "), broken))
    return F.when(F.col(BROKEN).isNotNull(), refused).otherwise(value)


def null_text(field: StructField) -> str:
    """Why a row with null in ``field`` is bad."""
    return f"column {field.name!r}: expected a value, found null"


def broken_text(name: str) -> str:
    """Why a row that cannot be read is bad."""
    return f"expected a row of the table {name!r}"


#: The most characters of a bad row that are shown.
_SHOWN = 100
#: What can be read as what without losing anything.
_WIDER = {
    "int": ("bigint", "double", "string"),
    "bigint": ("double", "string"),
    "smallint": ("int", "bigint"),
    "float": ("double",),
    "date": ("string",),
    "double": ("string",),
}
