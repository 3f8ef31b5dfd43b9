"""From one version of the tables to the next: what a batch of new files changes.

Profiles are united with those of the new rows (`united`), so what is kept of them is bounded by their windows. The other tables
count publications, each once, and a row that comes twice must not count twice, however late. Instead of remembering every
publication for that, we count anew where something changed: publications are counted by the minute in which they were
published, and the minutes that new rows belong to are counted again from all files, old and new, that have rows of them. The
trace is its own memory; kept are counts, and which files have rows of which minute.

This rests on one property of traces: all rows of a publication tell the same ``published_at_s``, since it travels with it.

A version depends on nothing but the version before, the new files, and files that are known by name, so a batch that is
carried out again makes the same version again.
"""

from dataclasses import dataclass, field
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from overweave.errors import OverweaveError
from overweave.pipeline.locations import Location
from overweave.pipeline.schemas import DELIVERIES, STATEMENTS
from overweave.pipeline.steps.load import delay_parts, load_of, load_parts, summary_of
from overweave.pipeline.steps.profiles import profiled, publisher_parts, publishers_of, united, windows_of, windows_united
from overweave.pipeline.steps.subscriptions import delivered_subscriptions, delivered_united, subscriptions_of
from overweave.pipeline.streaming.versions import Versions
from overweave.pipeline.tables import read_statements, write_tables

#: The tables that readers see.
TABLES = ("profiles", "publisher_profiles", "subscription_lifetimes", "load", "summary")
#: So long is the time whose publications are counted together. Every batch counts the current one again, so it should be
#: short; what is kept grows with how many there are, so it should not be too short.
SPAN_S = 60.0
#: What files have, without ``run``, which is in the name of their folder.
ROWS = StructType([field for field in DELIVERIES.fields if field.name != "run"])
#: The column of a row that names its file.
FILE = "file"
_SPAN = "span"
#: A table of counts is in no more files than that.
_FILES_MAX = 8


@dataclass(frozen=True)
class Advance:
    """What is done for each batch; a value, since it may be carried out by another process than the one that made it."""

    versions: Versions
    bits: int
    bucket_s: float
    #: The folder of the run, whose statements are few and read anew each time; none: they are not told of.
    run: Location | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write the version of a batch, whose rows are `ROWS` and the file they are from."""
        if self.versions.path(batch) is not None:
            # It was complete, and then Spark was stopped before it could note that.
            self.versions.show(batch)
            return
        before = None
        if batch > 0 and (before := self.versions.path(batch - 1)) is None:
            raise OverweaveError(
                f"{self.versions.out}: expected version {batch - 1} of the tables, found none; begin anew elsewhere"
            )
        self.versions.write(batch, lambda folder: self._fill(rows, before, folder))

    def _fill(self, rows: DataFrame, before: Location | None, folder: Location) -> None:
        spark = rows.sparkSession
        tables = _Tables(spark, before, folder)
        spans = _spanned(rows).select(FILE, _SPAN).distinct().persist()
        try:
            windows = windows_united(tables.with_old("windows", windows_of(rows, self.bits)), self.bits)
            delivered = delivered_united(tables.with_old("delivered", delivered_subscriptions(rows)))
            tables.write(files=tables.with_old("files", spans).distinct(), windows=windows, delivered=delivered)
            profiles = tables.with_old("profiles", profiled(rows, self.bits))
            parts = self._counted(tables, spans.select(_SPAN).distinct())
            tables.write(profiles=united(profiles, tables.read("windows"), self.bits), **parts)
        finally:
            spans.unpersist()
        load, delays, publishers = (tables.read(name) for name in ("load_parts", "delay_parts", "publisher_parts"))
        statements = spark.createDataFrame([], STATEMENTS) if self.run is None else read_statements(spark, self.run)
        tables.write(
            subscription_lifetimes=subscriptions_of(statements, tables.read("delivered")),
            load=load_of(load, self.bucket_s),
            summary=summary_of(load, delays),
            publisher_profiles=publishers_of(publishers, tables.read("windows")),
        )

    def _counted(self, tables: "_Tables", changed: DataFrame) -> dict[str, DataFrame]:
        """Count anew what was published in the times that changed, and keep all other counts."""
        touched = _rows_of(tables, changed)
        parts = {
            "load_parts": load_parts(touched, self.bucket_s, _SPAN),
            "delay_parts": delay_parts(touched, _SPAN),
            "publisher_parts": publisher_parts(touched, _SPAN),
        }
        for name, counted in parts.items():
            old = tables.old(name, counted)
            kept = counted if old is None else old.join(F.broadcast(changed), _SPAN, "left_anti").unionByName(counted)
            # Or there would be more and more small files.
            parts[name] = kept.coalesce(_FILES_MAX)
        return parts


@dataclass(frozen=True)
class _Tables:
    """The tables of the version before and of the one that is being written."""

    spark: SparkSession
    before: Location | None
    folder: Location
    #: Of those that were written: or Spark would look into their files to find out.
    _schemas: dict[str, StructType] = field(default_factory=dict)

    def old(self, name: str, like: DataFrame) -> DataFrame | None:
        return None if self.before is None else self.spark.read.schema(like.schema).parquet((self.before / name).pattern)

    def with_old(self, name: str, new: DataFrame) -> DataFrame:
        old = self.old(name, new)
        return new if old is None else old.unionByName(new)

    def read(self, name: str) -> DataFrame:
        return self.spark.read.schema(self._schemas[name]).parquet((self.folder / name).pattern)

    def write(self, **named: DataFrame) -> None:
        self._schemas.update({name: table.schema for name, table in named.items()})
        write_tables({self.folder / name: table for name, table in named.items()})


def _rows_of(tables: _Tables, changed: DataFrame) -> DataFrame:
    """All rows of some times, from all files so far."""
    names = tables.read("files").join(F.broadcast(changed), _SPAN, "left_semi").select(FILE).distinct()
    # Names of files come as parts of addresses.
    paths = [Location.of(unquote(row[FILE])).pattern for row in names.collect()]
    if not paths:
        return _spanned(tables.spark.createDataFrame([], ROWS))
    rows = _spanned(tables.spark.read.schema(ROWS).parquet(*paths))
    # All counting begins with a publisher's publications, so that they have to be brought together only once.
    return rows.join(F.broadcast(changed), _SPAN, "left_semi").repartition(_SPAN, "publisher")


def _spanned(rows: DataFrame) -> DataFrame:
    """Rows with the number of the time in which they were published."""
    return rows.withColumn(_SPAN, F.floor(F.col("published_at_s") / SPAN_S))
