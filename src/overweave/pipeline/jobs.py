"""Jobs: whole runs of the pipeline, from files to files. What is written appears when it is complete."""

from collections.abc import Callable

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.good_rows import read_good_rows
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.schemas import BAD, LOAD, PROFILES, PUBLISHER_PROFILES, SUMMARY
from overweave.pipeline.steps.load import loaded, summarised
from overweave.pipeline.steps.profiles import BITS, profiled, publishers_profiled
from overweave.pipeline.steps.subscriptions import delivered_subscriptions, subscriptions_of
from overweave.pipeline.streaming.versions import POINTER, Versions
from overweave.pipeline.tables import read_statements, read_table, write_tables


class Totals(msgspec.Struct, frozen=True, kw_only=True, rename={"yield_": "yield"}):
    """What a run was like on the whole."""

    run: str
    publishers: int
    publications: int
    profiles: int
    brokers: int
    deliveries: int
    pure_forwards: int
    yield_: float | None
    hops_mean: float | None
    delay_s_mean: float | None
    delay_s_max: float | None
    #: What was left out because it is bad: rows, and files that cannot be read at all.
    bad_rows: int = 0
    bad_files: int = 0


def profile_run(
    spark: SparkSession,
    traces: LocationLike,
    out: LocationLike,
    run: str | None = None,
    bits: int = BITS,
    bucket_s: float = 1.0,
    progress: Callable[[str], None] = lambda _: None,
    *,
    skip_bad: bool = False,
) -> Totals:
    """Read the trace of a run, and write its tables below ``out``.

    These are ``profiles``, ``publishers``, ``subscriptions``, ``load`` and ``summary``.

    With ``skip_bad`` what is bad, of whatever run, is left out and counted in a table ``bad`` beside them.
    """
    traces, out = Location.of(traces), Location.of(out)
    check_out(out)
    left_out: dict[str, DataFrame] = {}
    if skip_bad:
        deliveries, left_out["bad"] = read_good_rows(spark, traces, "deliveries")
    else:
        deliveries = read_table(spark, traces, "deliveries")
    run = run if run is not None else _only_run(deliveries, traces)
    rows = deliveries.where(F.col("run") == run)
    if rows.isEmpty():
        raise InvalidInput(f"{traces}: expected rows of run {run!r}, found none")
    tables: dict[str, DataFrame] = {
        "profiles": profiled(rows, bits),
        "publishers": publishers_profiled(rows, bits),
        "subscriptions": subscriptions_of(read_statements(spark, traces / f"run={run}"), delivered_subscriptions(rows)),
        "load": loaded(rows, bucket_s),
        "summary": summarised(rows),
        **left_out,
    }
    versions = Versions(out, tuple(tables))
    with versions.alone("profiles a run"):
        written = versions.write_batch(
            lambda folder: write_tables({folder / name: table for name, table in tables.items()}, progress)
        )
        return totals_of(spark, written, run)


def _only_run(deliveries: DataFrame, traces: Location) -> str:
    runs = [row.run for row in deliveries.select("run").distinct().limit(10).collect()]
    if len(runs) != 1:
        found = ", ".join(sorted(map(str, runs))) or "none"
        raise InvalidInput(f"{traces}: expected to be told which run to profile, found {found}")
    return str(runs[0])


def check_out(out: LocationLike) -> None:
    """Refuse to write where somebody else's files are."""
    location = Location.of(out)
    there = location.status()
    if there is not None and not there.is_dir:
        raise InvalidInput(f"{location}: expected a directory, found a file")
    names = {each.name for each in location.list()}
    if names and names.isdisjoint(("summary", ".follow", POINTER)):
        raise InvalidInput(f"{location}: expected a new directory, or one of an earlier profile, found other files")


def totals_of(spark: SparkSession, out: Location, run: str) -> Totals:
    """What the tables of a run say on the whole."""
    summary = spark.read.schema(SUMMARY).parquet((out / "summary").pattern)
    publishers = spark.read.schema(PUBLISHER_PROFILES).parquet((out / "publishers").pattern)
    load = spark.read.schema(LOAD).parquet((out / "load").pattern)
    # Means over all deliveries, so brokers count by how many theirs are.
    matched = load.groupBy("broker").agg(F.sum("matched_subscriptions").alias("matched"))
    weighed = summary.join(matched, "broker")
    (row,) = weighed.agg(
        F.count("*").alias("brokers"),
        F.sum("deliveries").alias("deliveries"),
        F.sum("pure_forwards").alias("pure_forwards"),
        (F.sum(F.col("hops_mean") * F.col("matched")) / F.nullif(F.sum("matched"), F.lit(0))).alias("hops_mean"),
        (F.sum(F.col("delay_s_mean") * F.col("matched")) / F.nullif(F.sum("matched"), F.lit(0))).alias("delay_s_mean"),
        F.max("delay_s_max").alias("delay_s_max"),
    ).collect()
    (sent,) = publishers.agg(F.count("*").alias("publishers"), F.sum("publications").alias("publications")).collect()
    deliveries, pure_forwards = row.deliveries or 0, row.pure_forwards or 0
    arrived = deliveries + pure_forwards
    bad_rows, bad_files = _left_out(spark, out / "bad")
    return Totals(
        run=run,
        publishers=sent.publishers,
        publications=sent.publications or 0,
        profiles=spark.read.schema(PROFILES).parquet((out / "profiles").pattern).count(),
        brokers=row.brokers,
        deliveries=deliveries,
        pure_forwards=pure_forwards,
        yield_=deliveries / arrived if arrived else None,
        hops_mean=row.hops_mean,
        delay_s_mean=row.delay_s_mean,
        delay_s_max=row.delay_s_max,
        bad_rows=bad_rows,
        bad_files=bad_files,
    )


def _left_out(spark: SparkSession, bad: Location) -> tuple[int, int]:
    """How many rows and files a table ``bad`` counts, if there is one."""
    if not bad.is_dir():
        return 0, 0
    (row,) = spark.read.schema(BAD).parquet(bad.pattern).agg(F.sum("rows"), F.count_if(F.col("rows").isNull())).collect()
    return row[0] or 0, row[1]
