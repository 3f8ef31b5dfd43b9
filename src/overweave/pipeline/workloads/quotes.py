"""Recorded publications from files: lines in the syntax, or CSV with date, open, high, low, close and volume.

A publisher publishes what has one symbol, in the order of the files; what has no symbol belongs to its file's name. Rows of CSV
become publications of the class STOCK with the derived attributes of THESIS 7.1.1; their symbol is that of a
column ``symbol`` or the file's name. Columns may be capitalised and there may be more of them. Files may be gzipped.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import Annotated

import pyarrow as pa
from msgspec import Meta
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.language.codec import encode_publication
from overweave.language.publications import Publication
from overweave.language.syntax import parse_publication
from overweave.language.values import excerpt, format_value
from overweave.pipeline.locations import Location
from overweave.pipeline.workloads.base import Options, Some, Source
from overweave.pipeline.workloads.brokers import brokers

PRICES = ("open", "high", "low", "close")
COLUMNS = ("date", *PRICES, "volume")
#: A publisher and its publication, from the columns of a row.
ReadRow = Callable[[Mapping[str, str | None]], tuple[str, Publication]]
#: A line: its place, and its content or its error.
_READ = "file string, block long, line long, publisher string, publication string, bytes long, offers array<string>, error string"
_ARROW = pa.schema(
    [("file", pa.string()), ("block", pa.int64()), ("line", pa.int64()), ("publisher", pa.string()), ("publication", pa.string()),
     ("bytes", pa.int64()), ("offers", pa.list_(pa.string())), ("error", pa.string())]
)  # fmt: skip
#: Lines of a file in their order: parts of a large one are read by several tasks.
_ORDER = ("block", "line")


class QuotesOptions(Options, frozen=True, kw_only=True):
    """Options of recorded quotes; all other values are from the files."""

    file: Annotated[tuple[str, ...], Meta(min_length=1)]
    brokers: Some = 1
    rate_hz: Annotated[float, Meta(gt=0)] = 70 / 60
    #: Skip invalid lines, and list them in the table ``bad``.
    skip_bad: bool = False


def make(source: Source, options: QuotesOptions) -> dict[str, DataFrame]:
    """All tables but ``subscriptions``: the files have none."""
    for file in options.file:
        if not Location.of(file).is_file():
            raise InvalidInput(f"--file: expected a file, found none at {file}")
    read = reduce(DataFrame.union, [_read(source.spark, Location.of(file)) for file in options.file])
    if not options.skip_bad:
        _refuse_bad_lines(read)
    good = read.where("publication is not null")
    order = Window.partitionBy("publisher").orderBy("file", *_ORDER)
    tables = {
        "brokers": brokers(source, options.brokers),
        "publishers": _publishers(good, options),
        "publications": good.select("publisher", (F.row_number().over(order).cast("long") - 1).alias("sequence"), "publication"),
    }
    return tables | ({"bad": _bad(read)} if options.skip_bad else {})


def _publishers(read: DataFrame, options: QuotesOptions) -> DataFrame:
    offers = read.select("publisher", F.explode("offers").alias("offer")).groupBy("publisher")
    advertised = offers.agg(F.array_join(F.array_sort(F.collect_set("offer")), ",").alias("advertisement"))
    sizes = read.groupBy("publisher").agg(F.round(F.avg("bytes")).cast("long").alias("message_bytes"))
    # By the name, so that it is the same broker in every run.
    broker = F.concat(F.lit("B"), (F.pmod(F.xxhash64("publisher"), F.lit(options.brokers)) + 1).cast("string"))
    rate_hz = F.lit(options.rate_hz).alias("rate_hz")
    return advertised.join(sizes, "publisher").select(
        "publisher", broker.alias("broker"), "advertisement", rate_hz, "message_bytes"
    )


def _read(spark: SparkSession, file: Location) -> DataFrame:
    """The parsed lines of a file; ``error`` is the error of a line."""
    stem = Path(file.name.removesuffix(".gz")).stem
    place = (
        F.lit(file.text if file.local is None else str(file.local.absolute())).alias("file"),
        F.col("_metadata.file_block_start").alias("block"),
    )
    line = F.monotonically_increasing_id().alias("line")
    if not _is_csv(file.name):
        lines = spark.read.text(file.pattern).select(*place, line, F.col("value").alias("text"))
        return _parsed(lines, partial(_of_line, stem))
    rows = spark.read.csv(file.pattern, header=True)
    found = {column.strip().lower(): column for column in rows.columns}
    missing = [column for column in COLUMNS if column not in found]
    if missing:
        raise InvalidInput(f"{file}: expected the columns {', '.join(COLUMNS)}, found none named {', '.join(missing)}")
    symbol = _column(found["symbol"]) if "symbol" in found else F.lit(stem)
    values = [_column(found[column]).alias(column) for column in COLUMNS]
    return _parsed(rows.select(*place, line, *values, symbol.alias("symbol")), partial(_of_row, stem))


def _is_csv(name: str) -> bool:
    return name.lower().removesuffix(".gz").endswith(".csv")


def _column(name: str) -> Column:
    return F.col(f"`{name}`")


def _parsed(rows: DataFrame, read: ReadRow) -> DataFrame:
    return rows.mapInArrow(partial(_parse_batches, read), _READ)


def _parse_batches(read: ReadRow, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield pa.RecordBatch.from_pylist([_parse(read, row) for row in batch.to_pylist()], schema=_ARROW)


def _parse(read: ReadRow, row: dict[str, str | None]) -> dict[str, object]:
    known: dict[str, object] = {name: row[name] for name in ("file", *_ORDER)}
    if not (row.get("text", "CSV") or "").strip():
        # Blank lines are skipped but counted, for line numbers.
        return known
    try:
        publisher, publication = read(row)
    except InvalidInput as error:
        return known | {"error": str(error)}
    size = len(encode_publication(publication))
    return known | {"publisher": publisher, "publication": str(publication), "bytes": size, "offers": _offers(publication)}


def _of_line(stem: str, row: Mapping[str, str | None]) -> tuple[str, Publication]:
    publication = parse_publication(row["text"] or "")
    symbol = publication.get("symbol", stem)
    return str(symbol), publication


def _of_row(stem: str, row: Mapping[str, str | None]) -> tuple[str, Publication]:
    symbol = (row["symbol"] or stem).strip()
    opened, high, low, close = (round(_number(row, name), 4) for name in PRICES)
    quote = {
        "class": "STOCK", "symbol": symbol, "open": opened, "high": high, "low": low, "close": close,
        "volume": int(_number(row, "volume")), "date": (row["date"] or "").strip(),
        "openClose%Diff": round(abs(opened - close) / opened, 3) if opened else 0.0,
        "highLow%Diff": round((high - low) / high, 3) if high else 0.0,
        "closeEqualsLow": close == low, "closeEqualsHigh": close == high,
    }  # fmt: skip
    return symbol, Publication(quote)


def _number(row: Mapping[str, str | None], column: str) -> float:
    text = (row[column] or "").strip()
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not abs(number) < 2.0**62:
        raise InvalidInput(f"column {column}: expected a number, found {excerpt(text)}")
    return number


def _offers(publication: Publication) -> list[str]:
    """The advertisement of this publication: its symbol and its attributes."""
    return [
        f"[symbol,eq,{format_value(value)}]"
        if name == "symbol" and isinstance(value, str)
        else f"[{name},isPresent,{format_value('' if isinstance(value, str) else 0)}]"
        for name, value in publication.items()
    ]


def _bad(read: DataFrame) -> DataFrame:
    """Which lines are wrong and why. The first line of CSV has the names of the columns."""
    first = F.when(F.lower("file").rlike(r"\.csv(\.gz)?$"), 1).otherwise(0)
    number = F.row_number().over(Window.partitionBy("file").orderBy(*_ORDER)).cast("long") + first
    return read.select("file", number.alias("line"), "error").where("error is not null")


def _refuse_bad_lines(read: DataFrame) -> None:
    # Without line numbers first: they need ordered lines, which is only worthwhile after an error.
    if not read.where("error is not null").limit(1).collect():
        return
    first = _bad(read).orderBy("file", "line").limit(1).collect()[0]
    raise InvalidInput(f"{first.file}:{first.line}: {first.error}; --skip-bad leaves out such lines")
