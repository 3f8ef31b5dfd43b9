"""The digest of a profile: the few numbers that a page shows, whatever the size of the tables. Spark adds up; the driver gets
at most some hundred rows of each.
"""

from typing import NamedTuple

import pandas as pd
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.types import StructType

from overweave.pipeline.locations import LocationLike
from overweave.pipeline.schemas import LOAD, PROFILES, PUBLISHER_PROFILES, SUMMARY
from overweave.pipeline.streaming.versions import current
from overweave.pipeline.tables import conform, folder_of

#: The tables of ``overweave profile`` and the needed columns: not the bits of profiles, which are most of the bytes.
TABLES = {
    "profiles": StructType([field for field in PROFILES.fields if field.name != "words"]),
    "publisher_profiles": PUBLISHER_PROFILES,
    "load": LOAD,
    "summary": SUMMARY,
}
#: The most brokers, publishers and profiles that are shown by name.
TOP = 30
#: Time is shown in no more steps, and values in no more classes.
STEPS_MAX, CLASSES = 240, 20


class Histogram(NamedTuple):
    """How many values are in each class: classes are equally wide, from 0 to ``high``."""

    high: float
    counts: list[int]


class Digest(NamedTuple):
    """Names are those of columns; ``top`` tables begin with the largest."""

    totals: dict[str, float | None]
    #: ``step_s`` after ``start_s``: arrivals per second of all brokers, by step; and by broker of the top.
    start_s: float
    step_s: float
    load: pd.DataFrame
    load_top: pd.DataFrame
    brokers_top: pd.DataFrame
    publishers_top: pd.DataFrame
    profiles_top: pd.DataFrame
    rates_hz: Histogram
    densities: Histogram


def digest_of(spark: SparkSession, directory: LocationLike) -> Digest:
    """Read the tables of a profile; columns that are missing are an `InvalidInput`."""
    folder = current(directory)
    paths = {name: folder_of(folder, name) for name in TABLES}
    tables = {name: conform(spark.read.parquet(paths[name].pattern), schema, f"{paths[name]}") for name, schema in TABLES.items()}
    load, profiles = tables["load"], tables["profiles"].withColumn("density", _density())
    brokers, publishers = tables["summary"], tables["publisher_profiles"]
    top = _top(brokers, "arrivals", "broker")
    start_s, step_s, per_step, per_broker = _over_time(load, top["broker"].tolist())
    return Digest(
        totals=_totals(brokers, publishers, profiles),
        start_s=start_s,
        step_s=step_s,
        load=per_step,
        load_top=per_broker,
        brokers_top=top,
        publishers_top=_top(publishers, "rate_hz", "publisher"),
        profiles_top=_top(profiles, "count", "subscription", "publisher"),
        rates_hz=_histogram(publishers, "rate_hz"),
        densities=_histogram(profiles, "density", 1.0),
    )


def _density() -> Column:
    """The share of a publisher's last publications that a subscription got."""
    return F.col("count") / F.col("window_publications")


def _totals(brokers: DataFrame, publishers: DataFrame, profiles: DataFrame) -> dict[str, float | None]:
    # Means over all deliveries, so brokers count by how many theirs are.
    weight = F.nullif(F.sum("deliveries"), F.lit(0))
    means = [(F.sum(F.col(name) * F.col("deliveries")) / weight).alias(name) for name in _WEIGHED]
    share = F.sum("useful_arrivals") / F.nullif(F.sum("arrivals"), F.lit(0))
    parts = (
        brokers.agg(
            F.count("*").alias("brokers"),
            *(F.sum(name).alias(name) for name in _SUMS),
            share.alias("yield"),
            *means,
            F.max("delay_s_max").alias("delay_s_max"),
        ),
        publishers.agg(
            F.count("*").alias("publishers"), F.sum("publications").alias("publications"), F.sum("rate_hz").alias("rate_hz")
        ),
        profiles.agg(
            F.count("*").alias("profiles"),
            F.count_distinct("subscription").alias("subscriptions"),
            F.avg("density").alias("density_mean"),
        ),
    )
    return {name: value for part in parts for name, value in part.collect()[0].asDict().items()}


_WEIGHED = ("hops_mean", "delay_s_mean")
_SUMS = (
    "arrivals", "useful_arrivals", "pure_forwards", "delivered_bytes", "forwarded_bytes", "output_bytes", "deliveries"
)  # fmt: skip


def _top(table: DataFrame, measure: str, *names: str) -> pd.DataFrame:
    return table.orderBy(F.desc_nulls_last(measure), *names).limit(TOP).toPandas()


def _over_time(load: DataFrame, brokers: list[str]) -> tuple[float, float, pd.DataFrame, pd.DataFrame]:
    """Arrivals per second in steps that are whole numbers of the table's buckets; where nothing came there is no row."""
    # The length of buckets is not in the table; arrivals and their rate give it.
    (row,) = load.agg(F.min("at_s"), F.max("at_s"), F.max(F.col("arrivals") / F.nullif("input_hz", F.lit(0.0)))).collect()
    start_s, last_s, bucket_s = (float(value) if value is not None else 0.0 for value in row)
    bucket_s = bucket_s or 1.0
    buckets = round((last_s - start_s) / bucket_s) + 1
    per_step = -(-buckets // STEPS_MAX)
    step = F.floor(F.round((F.col("at_s") - start_s) / bucket_s) / per_step).cast("long").alias("step")
    stepped = load.select("broker", step, "arrivals")
    # The last step may be shorter.
    length_s = F.least(F.lit(per_step), F.lit(buckets) - F.col("step") * per_step) * bucket_s
    each = stepped.groupBy("broker", "step").agg((F.sum("arrivals") / F.first(length_s)).alias("input_hz"))
    whole = each.groupBy("step").agg(F.sum("input_hz").alias("input_hz"), F.max("input_hz").alias("input_hz_max"))
    top = each.where(F.col("broker").isin(brokers))
    return start_s, per_step * bucket_s, whole.orderBy("step").toPandas(), top.orderBy("broker", "step").toPandas()


def _histogram(table: DataFrame, column: str, high: float | None = None) -> Histogram:
    """From 0 to ``high``, or to the largest value."""
    if high is None:
        high = float(table.agg(F.max(column)).collect()[0][0] or 1.0)
    place = F.least(F.floor(F.col(column) / high * CLASSES), F.lit(CLASSES - 1)).cast("int")
    counts = [0] * CLASSES
    for row in table.groupBy(place.alias("place")).count().where("place is not null").collect():
        counts[row.place] = row["count"]
    return Histogram(high, counts)
