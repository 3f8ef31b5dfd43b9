"""Quarantine: the valid rows of a partly bad table, and a table `REJECTED` that counts the others by file and reason.

Workers read Parquet files once beforehand to find damaged ones: Spark detects damage only in columns that a step needs,
so that steps would see different rows. Texts in the language of filters and publications are parsed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_type
from pyspark.sql.types import StringType, StructField, StructType

from overweave.errors import InvalidInput
from overweave.language.codec import encode_filter
from overweave.language.syntax import parse_filter
from overweave.pipeline.encode_texts import wires_of_texts
from overweave.pipeline.locations import LocationLike
from overweave.pipeline.schemas import REJECTED, TABLES
from overweave.pipeline.tables import BROKEN, Files, broken_text, file_text, files_of, mismatch, null_text, open_files, place_text

#: What is wrong with a row, and one example of it.
_REASON, _EXAMPLE = "_reason", "_example"
#: Files per task of the check for damage.
_FILES_PER_TASK = 16
_EXAMPLE_MAX = 200
_UNREADABLE = "expected a Parquet file that can be read"
_BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch"

_Batches = Iterator[pa.RecordBatch]
#: What is wrong with each text of a column that cannot be parsed.
_Errors = Callable[[pa.Array], Mapping[int, str]]


class Quarantine(NamedTuple):
    """The valid rows of a table and the rejected ones (`REJECTED`)."""

    rows: DataFrame
    bad: DataFrame


def read_with_quarantine(spark: SparkSession, path: LocationLike, name: str) -> Quarantine:
    """The good rows of the table ``name`` (of `TABLES`); see `overweave.pipeline.tables.read_table`."""
    files = files_of(path)
    no_rows = spark.createDataFrame([], REJECTED)
    files, bad_files = _whole_files(spark, files, name) if files.kind == "parquet" else (files, no_rows)
    schema = TABLES[name]
    rows = open_files(spark, files, name)
    judged = _parsed(rows, [name for name in schema.fieldNames() if name in _LANGUAGE])
    nulls = [F.when(F.col(field.name).isNull(), null_text(field)) for field in schema.fields if not field.nullable]
    broken = F.when(F.col(BROKEN).isNotNull(), broken_text(name))
    reason = F.coalesce(broken, *nulls, F.col(_REASON))
    counted = judged.where(reason.isNotNull()).groupBy(file_text().alias("file"), reason.alias("reason"))
    example = F.min(F.substring(F.coalesce(F.col(BROKEN), F.col(_EXAMPLE), place_text()), 1, _EXAMPLE_MAX))
    bad_rows = counted.agg(F.count("*").alias("rows"), example.alias("example"))
    return Quarantine(judged.where(reason.isNull()).select(schema.fieldNames()), bad_files.unionByName(bad_rows))


def _whole_files(spark: SparkSession, files: Files, name: str) -> tuple[Files, DataFrame]:
    """The files that can be read to their end and have the right columns; and the others, as `REJECTED`."""
    fields = [field for field in TABLES[name].fields if field.name not in files.folder_columns]
    # The driver knows the names of all files anyway, as Spark does.
    with _one_by_one(spark) if files.path.is_remote else nullcontext():
        bad = _listed(spark, files).mapInArrow(partial(_check_files, fields), REJECTED).collect()
    if files.path.is_remote:
        # Spark passes over them.
        bad += [Row(file=file, reason=_UNREADABLE, rows=None, example="a file of 0 bytes") for file in files.empty]
    left_out = {row.file for row in bad}
    whole = [file for file in files.names if file not in left_out]
    if not whole:
        raise InvalidInput(f"{bad[0].file}: {bad[0].reason}, found {bad[0].example or 'another'}; no file is left")
    left = files._replace(names=whole, empty=[file for file in files.empty if file not in left_out], some=bool(bad))
    return left, spark.createDataFrame(bad, REJECTED)


def _listed(spark: SparkSession, files: Files) -> DataFrame:
    """The names of files, and what they contain where workers cannot open them themselves."""
    if files.path.is_remote:
        read = spark.read.format("binaryFile").option("recursiveFileLookup", True).option("pathGlobFilter", "*.parquet")
        return read.load(files.path.pattern).select(F.col("path").alias("file"), "content")
    tasks = -(-len(files.names) // _FILES_PER_TASK)
    return spark.createDataFrame([(file,) for file in files.names], "file string").repartition(tasks)


@contextmanager
def _one_by_one(spark: SparkSession) -> Iterator[None]:
    """Have workers get one row at a time: it is a whole file."""
    before = spark.conf.get(_BATCH_ROWS, None)
    spark.conf.set(_BATCH_ROWS, 1)
    try:
        yield
    finally:
        spark.conf.unset(_BATCH_ROWS) if before is None else spark.conf.set(_BATCH_ROWS, before)


def _check_files(fields: list[StructField], batches: _Batches) -> _Batches:
    for batch in batches:
        names = batch.column("file").to_pylist()
        contents = batch.column("content") if "content" in batch.schema.names else [None] * len(names)
        found = [
            _check_file(fields, file, file if content is None else pa.BufferReader(content.as_buffer()))
            for file, content in zip(names, contents, strict=True)
        ]
        bad = [row for row in found if row is not None]
        yield pa.RecordBatch.from_pylist(bad, schema=_ARROW)


def _check_file(fields: list[StructField], file: str, source: str | pa.BufferReader) -> dict[str, object] | None:
    """Why a file is bad; none: it is good."""
    try:
        with pq.ParquetFile(source) as found:
            shape = found.schema_arrow
            for field in fields:
                said = mismatch(field, _type_name(shape, field.name), shape.names)
                if said is not None:
                    return {"file": file, "reason": said, "rows": found.metadata.num_rows}
            for _ in found.iter_batches(columns=[field.name for field in fields]):
                pass
    except (OSError, pa.ArrowException) as error:
        return {"file": file, "reason": _UNREADABLE, "example": str(error)[:_EXAMPLE_MAX]}
    return None


def _type_name(shape: pa.Schema, name: str) -> str | None:
    """The type of a column as Spark calls it; none: there is no such column."""
    if name not in shape.names:
        return None
    try:
        return from_arrow_type(shape.field(name).type).simpleString()
    except PySparkException:
        return str(shape.field(name).type)


def _parsed(rows: DataFrame, columns: list[str]) -> DataFrame:
    """The rows with the errors of the texts in ``columns``."""
    if not columns:
        nothing = F.lit(None).cast("string")
        return rows.withColumns({_REASON: nothing, _EXAMPLE: nothing})
    more = [StructField(_REASON, StringType()), StructField(_EXAMPLE, StringType())]
    # What is null, or could not be read, is judged by the caller.
    plain = [StructField(field.name, field.dataType) for field in rows.schema.fields]
    return rows.mapInArrow(partial(_parse_batches, columns), StructType([*plain, *more]))


def _parse_batches(columns: list[str], batches: _Batches) -> _Batches:
    for batch in batches:
        reasons: list[str | None] = [None] * batch.num_rows
        examples: list[str | None] = [None] * batch.num_rows
        for name in columns:
            expected, errors = _LANGUAGE[name]
            for row, error in errors(batch.column(name)).items():
                reasons[row], examples[row] = f"column {name!r}: expected {expected}", error
        told = [pa.array(reasons, pa.string()), pa.array(examples, pa.string())]
        yield pa.RecordBatch.from_arrays([*batch.columns, *told], [*batch.schema.names, _REASON, _EXAMPLE])


def _filter_errors(texts: pa.Array) -> Mapping[int, str]:
    """Each text once: many subscribers ask for the same."""
    coded = texts.dictionary_encode()
    errors: dict[int, str] = {}
    for code, text in enumerate(coded.dictionary.to_pylist()):
        try:
            encode_filter(parse_filter(text))
        except InvalidInput as error:
            errors[code] = f"{text}: {error}"
    codes = coded.indices.to_pylist() if errors else []
    return {row: errors[code] for row, code in enumerate(codes) if code in errors}


def _publication_errors(texts: pa.Array) -> Mapping[int, str]:
    wires = wires_of_texts(texts)
    return {row: f"{texts[row].as_py()}: {error}" for row, error in wires.bad.items() if texts[row].is_valid}


#: Columns with texts of the language: the expectation and the check.
_LANGUAGE: Mapping[str, tuple[str, _Errors]] = {
    "filter": ("a filter", _filter_errors),
    "advertisement": ("a filter", _filter_errors),
    "publication": ("a publication", _publication_errors),
}
_ARROW = pa.schema([("file", pa.string()), ("reason", pa.string()), ("rows", pa.int64()), ("example", pa.string())])
