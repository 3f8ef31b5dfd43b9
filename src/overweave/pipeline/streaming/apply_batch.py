"""The micro-batch update: from one version of the tables and a batch of new files to the next version.

Profiles of the new rows are merged into the old ones (`merge_profiles`); their windows bound the state. The other tables count
every publication once, and a late duplicate row must not count twice. Instead of a dedup window, affected minutes are recounted:
counts are kept per minute of publication, and the minutes of new rows are counted again from all files with rows of them. The
state is the counts and an index from minutes to files.

This requires that all rows of a publication have the same ``published_at_s``, which holds as it travels with the publication.

A version is a function of the previous version, the new files and files known by name. So a retried batch is idempotent.
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
from overweave.pipeline.steps.profiles import (
    merge_profiles,
    merge_windows,
    publisher_parts,
    publishers_of,
    subscription_profiles,
    windows_of,
)
from overweave.pipeline.steps.subscriptions import delivered_subscriptions, merge_delivered, subscriptions_of
from overweave.pipeline.streaming.versions import Versions
from overweave.pipeline.tables import read_statements, write_tables

#: The tables that readers see.
TABLES = ("profiles", "publisher_profiles", "subscription_lifetimes", "load", "summary")
#: The length of a bucket of publications that are counted together. Every batch recounts the current bucket, so a short one is
#: cheap; the state grows with the number of buckets, so it should not be too short.
MINUTE_S = 60.0
#: The columns of files; ``run`` is in the name of their folder.
ROWS = StructType([field for field in DELIVERIES.fields if field.name != "run"])
#: The column with the file of a row.
FILE = "file"
#: The column with the minute of a row; stored state of earlier releases has this name.
_MINUTE = "span"
#: Files per table of counts.
_FILES_MAX = 8


@dataclass(frozen=True)
class ApplyBatch:
    """The function that Spark calls for each micro-batch; a plain value, so that it can be sent to another process."""

    versions: Versions
    bits: int
    bucket_s: float
    #: The folder of the run, whose few statements every batch reads again; None: a trace without statements.
    run: Location | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        """Write the version of a batch; its rows have the columns `ROWS` and `FILE`."""
        if self.versions.path(batch) is not None:
            # The version was complete, but Spark stopped before it committed the batch.
            self.versions.publish(batch)
            return
        before = None
        if batch > 0 and (before := self.versions.path(batch - 1)) is None:
            raise OverweaveError(
                f"{self.versions.out}: expected version {batch - 1} of the tables, found none; start again in another directory"
            )
        self.versions.write(batch, lambda folder: self._fill(rows, before, folder))

    def _fill(self, rows: DataFrame, before: Location | None, folder: Location) -> None:
        spark = rows.sparkSession
        tables = _Tables(spark, before, folder)
        minutes = _with_minute(rows).select(FILE, _MINUTE).distinct().persist()
        try:
            windows = merge_windows(tables.with_old("windows", windows_of(rows, self.bits)), self.bits)
            delivered = merge_delivered(tables.with_old("delivered", delivered_subscriptions(rows)))
            tables.write(files=tables.with_old("files", minutes).distinct(), windows=windows, delivered=delivered)
            profiles = tables.with_old("profiles", subscription_profiles(rows, self.bits))
            parts = self._counted(tables, minutes.select(_MINUTE).distinct())
            tables.write(profiles=merge_profiles(profiles, tables.read("windows"), self.bits), **parts)
        finally:
            minutes.unpersist()
        load, delays, publishers = (tables.read(name) for name in ("load_parts", "delay_parts", "publisher_parts"))
        statements = spark.createDataFrame([], STATEMENTS) if self.run is None else read_statements(spark, self.run)
        tables.write(
            subscription_lifetimes=subscriptions_of(statements, tables.read("delivered")),
            load=load_of(load, self.bucket_s),
            summary=summary_of(load, delays),
            publisher_profiles=publishers_of(publishers, tables.read("windows")),
        )

    def _counted(self, tables: "_Tables", changed: DataFrame) -> dict[str, DataFrame]:
        """Recount the changed minutes; all other counts stay."""
        touched = _rows_of(tables, changed)
        parts = {
            "load_parts": load_parts(touched, self.bucket_s, _MINUTE),
            "delay_parts": delay_parts(touched, _MINUTE),
            "publisher_parts": publisher_parts(touched, _MINUTE),
        }
        for name, counted in parts.items():
            old = tables.old(name, counted)
            kept = counted if old is None else old.join(F.broadcast(changed), _MINUTE, "left_anti").unionByName(counted)
            # Otherwise every batch would add small files.
            parts[name] = kept.coalesce(_FILES_MAX)
        return parts


@dataclass(frozen=True)
class _Tables:
    """The tables of the previous version and of the new one."""

    spark: SparkSession
    before: Location | None
    folder: Location
    #: Schemas of written tables, so that Spark need not infer them from files.
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
    """All rows of the changed minutes, from all files so far."""
    names = tables.read("files").join(F.broadcast(changed), _MINUTE, "left_semi").select(FILE).distinct()
    # Spark reports file names percent-encoded.
    paths = [Location.of(unquote(row[FILE])).pattern for row in names.collect()]
    if not paths:
        return _with_minute(tables.spark.createDataFrame([], ROWS))
    rows = _with_minute(tables.spark.read.schema(ROWS).parquet(*paths))
    # All counts group by publisher first: one shuffle serves them all.
    return rows.join(F.broadcast(changed), _MINUTE, "left_semi").repartition(_MINUTE, "publisher")


def _with_minute(rows: DataFrame) -> DataFrame:
    """Rows with the minute of their publication."""
    return rows.withColumn(_MINUTE, F.floor(F.col("published_at_s") / MINUTE_S))
