"""Reading and writing tables: Parquet, or CSV and JSON lines for small ones. What is wrong is said in one line.

A directory is read as one table; folders ``name=value`` add columns, so ``run`` of a trace comes back. Columns may come in any
order and there may be more than are needed.
"""

from pathlib import Path

from py4j.protocol import Py4JJavaError
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from overweave.errors import InvalidInput
from overweave.pipeline.schemas import TABLES

_SUFFIXES = {".parquet": "parquet", ".csv": "csv", ".jsonl": "json", ".json": "json"}


def read_table(spark: SparkSession, path: Path | str, name: str) -> DataFrame:
    """The table ``name`` (of `TABLES`) in a file or directory, with exactly its columns."""
    schema = TABLES[name]
    kind = _kind(Path(path))
    try:
        reader = spark.read.option("basePath", str(path)) if kind == "parquet" and Path(path).is_dir() else spark.read
        if kind == "csv":
            found = spark.read.csv(str(path), schema=schema, header=True, mode="FAILFAST", enforceSchema=False)
        elif kind == "json":
            found = spark.read.json(str(path), schema=schema, mode="FAILFAST")
        else:
            found = reader.parquet(str(path))
    except (PySparkException, Py4JJavaError) as error:
        raise InvalidInput(f"{path}: expected the table {name!r} as {kind}, found: {_first_line(error)}") from None
    return conform(found, schema, f"{path}")


def conform(frame: DataFrame, schema: StructType, where: str) -> DataFrame:
    """The columns of ``schema``, in its order and types; a missing one, or one that cannot be read so, is an error."""
    types = dict(frame.dtypes)
    for field in schema.fields:
        if field.name not in types:
            raise InvalidInput(f"{where}: expected a column {field.name!r}, found {', '.join(frame.columns) or 'none'}")
        wanted, found = field.dataType.simpleString(), types[field.name]
        if wanted != found and wanted not in _WIDER.get(found, ()):
            raise InvalidInput(f"{where}: column {field.name!r}: expected {wanted}, found {found}")
    try:
        return frame.select([F.col(field.name).cast(field.dataType).alias(field.name) for field in schema.fields])
    except AnalysisException as error:
        raise InvalidInput(f"{where}: {_first_line(error)}") from None


def write_table(frame: DataFrame, path: Path | str, partitions: int | None = None) -> None:
    """Write as Parquet, in place of what was there."""
    some = frame if partitions is None else frame.coalesce(partitions)
    some.write.mode("overwrite").parquet(str(path))


#: What can be read as what without losing anything; folder names make numbers of what looks like one.
_WIDER = {
    "int": ("bigint", "double", "string"),
    "bigint": ("double", "string"),
    "smallint": ("int", "bigint"),
    "float": ("double",),
    "date": ("string",),
    "double": ("string",),
}


def _kind(path: Path) -> str:
    if not path.exists():
        raise InvalidInput(f"{path}: expected a file or directory, found nothing")
    if path.is_dir():
        if not any(path.rglob("[!._]*.parquet")):
            raise InvalidInput(f"{path}: expected a directory with Parquet files, found none")
        return "parquet"
    kind = _SUFFIXES.get(path.suffix)
    if kind is None:
        raise InvalidInput(f"{path}: expected a name that ends in {', '.join(_SUFFIXES)}")
    return kind


def _first_line(error: Exception) -> str:
    """What Spark says, without where in its own code."""
    text = str(error.java_exception.getMessage()) if isinstance(error, Py4JJavaError) else str(error)
    return text.strip().splitlines()[0][:300]
