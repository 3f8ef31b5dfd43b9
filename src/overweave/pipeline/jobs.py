"""Jobs: whole runs of the pipeline, from files to files. What is written appears when it is complete."""

from collections.abc import Callable

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.quarantine import read_with_quarantine
from overweave.pipeline.schemas import EARLIER_NAMES, PROFILES, PUBLISHER_PROFILES, REJECTED, SUMMARY
from overweave.pipeline.steps.load import broker_load, broker_summary
from overweave.pipeline.steps.profiles import BITS, publisher_profiles, subscription_profiles
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
    #: Of publications at brokers; useful where a local subscription matches, else pure forwards.
    arrivals: int
    useful_arrivals: int
    pure_forwards: int
    #: useful arrivals / arrivals
    yield_: float | None
    #: Bytes from all brokers to clients, to neighbours and in total; None if the trace lacks the senders.
    delivered_bytes: int
    forwarded_bytes: int | None
    output_bytes: int | None
    #: What clients got, one for each subscription; hops and delays are of these.
    deliveries: int
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
    published: tuple[float, float] | None = None,
) -> Totals:
    """Read the trace of a run, and write its tables below ``out``.

    These are ``profiles``, ``publisher_profiles``, ``subscription_lifetimes``, ``load`` and ``summary``.

    With ``skip_bad`` what is bad, of whatever run, is left out and counted in a table ``bad`` beside them. With ``published``
    they are about the publications from one time on, up to another one.
    """
    traces, out = Location.of(traces), Location.of(out)
    check_out(out)
    left_out: dict[str, DataFrame] = {}
    if skip_bad:
        deliveries, left_out["bad"] = read_with_quarantine(spark, traces, "deliveries")
    else:
        deliveries = read_table(spark, traces, "deliveries")
    run = run if run is not None else _only_run(deliveries, traces)
    rows = deliveries.where(F.col("run") == run)
    if published is not None:
        rows = rows.where((F.col("published_at_s") >= published[0]) & (F.col("published_at_s") < published[1]))
    if rows.isEmpty():
        raise InvalidInput(f"{traces}: expected rows of run {run!r}, found none")
    tables: dict[str, DataFrame] = {
        "profiles": subscription_profiles(rows, bits),
        "publisher_profiles": publisher_profiles(rows, bits),
        "subscription_lifetimes": subscriptions_of(read_statements(spark, traces / f"run={run}"), delivered_subscriptions(rows)),
        "load": broker_load(rows, bucket_s),
        "summary": broker_summary(rows),
        **left_out,
    }
    versions = Versions(out, tuple(tables))
    with versions.lock("profiles a run"):
        written = versions.write_batch(
            lambda folder: write_tables({folder / name: table for name, table in tables.items()}, progress)
        )
        for earlier in EARLIER_NAMES.values():
            # Of the release before, under a name that means something else now.
            (out / earlier).remove()
        return totals_of(spark, written, run)


def _only_run(deliveries: DataFrame, traces: Location) -> str:
    runs = [row.run for row in deliveries.select("run").distinct().limit(10).collect()]
    if len(runs) != 1:
        found = ", ".join(sorted(map(str, runs))) or "none"
        raise InvalidInput(f"{traces}: expected one run or --run, found runs {found}")
    return str(runs[0])


def check_out(out: LocationLike) -> None:
    """Raise an error if the directory has files of others."""
    location = Location.of(out)
    there = location.status()
    if there is not None and not there.is_dir:
        raise InvalidInput(f"{location}: expected a directory, found a file")
    names = {each.name for each in location.list()}
    if names and names.isdisjoint(("summary", ".follow", POINTER)):
        raise InvalidInput(f"{location}: expected a new directory, or one of an earlier profile, found other files")


#: Columns of the summary of which totals are sums; a sum of nulls is null, and all are null or none.
_SUMS = (
    "arrivals", "useful_arrivals", "pure_forwards", "delivered_bytes", "forwarded_bytes", "output_bytes", "deliveries"
)  # fmt: skip


def totals_of(spark: SparkSession, out: Location, run: str) -> Totals:
    """The totals of the tables of a run."""
    summary = spark.read.schema(SUMMARY).parquet((out / "summary").pattern)
    publishers = spark.read.schema(PUBLISHER_PROFILES).parquet((out / "publisher_profiles").pattern)
    # Means over all deliveries, so brokers count by how many theirs are.
    weight = F.nullif(F.sum("deliveries"), F.lit(0))
    (row,) = summary.agg(
        F.count("*").alias("brokers"),
        *(F.sum(name).alias(name) for name in _SUMS),
        *((F.sum(F.col(name) * F.col("deliveries")) / weight).alias(name) for name in ("hops_mean", "delay_s_mean")),
        F.max("delay_s_max").alias("delay_s_max"),
    ).collect()
    (sent,) = publishers.agg(F.count("*").alias("publishers"), F.sum("publications").alias("publications")).collect()
    bad_rows, bad_files = _left_out(spark, out / "bad")
    return Totals(
        run=run,
        publishers=sent.publishers,
        publications=sent.publications or 0,
        profiles=spark.read.schema(PROFILES).parquet((out / "profiles").pattern).count(),
        brokers=row.brokers,
        arrivals=row.arrivals or 0,
        useful_arrivals=row.useful_arrivals or 0,
        pure_forwards=row.pure_forwards or 0,
        yield_=row.useful_arrivals / row.arrivals if row.arrivals else None,
        delivered_bytes=row.delivered_bytes or 0,
        forwarded_bytes=row.forwarded_bytes,
        output_bytes=row.output_bytes,
        deliveries=row.deliveries or 0,
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
    (row,) = spark.read.schema(REJECTED).parquet(bad.pattern).agg(F.sum("rows"), F.count_if(F.col("rows").isNull())).collect()
    return row[0] or 0, row[1]
