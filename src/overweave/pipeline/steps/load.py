"""Load: what brokers had to carry over time, and what their clients got of it.

An arrival is a publication at a broker, counted once, whatever the trace has of it: a row for each subscription that it matched,
and the same again when it came again after a crash.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.schemas import LOAD, SUMMARY

#: Percentiles are as exact as one in so many.
_ACCURACY = 10_000


def arrivals(deliveries: DataFrame) -> DataFrame:
    """One row per publication and broker: when it came first, what it weighs, and how many subscriptions it matched there."""
    return deliveries.groupBy("broker", "publisher", "sequence").agg(
        F.min("arrived_at_s").alias("arrived_at_s"),
        F.max("bytes").alias("bytes"),
        F.count_distinct("subscription").alias("matched"),
    )


def loaded(deliveries: DataFrame, bucket_s: float = 1.0) -> DataFrame:
    """The table `LOAD`, in buckets of time."""
    if not bucket_s > 0:
        raise InvalidInput(f"bucket_s: expected a time above 0, got {bucket_s:g}")
    buckets = arrivals(deliveries).groupBy("broker", (F.floor(F.col("arrived_at_s") / bucket_s) * bucket_s).alias("at_s"))
    found = buckets.agg(
        (F.count("*") / bucket_s).alias("input_hz"),
        (F.sum("bytes") / bucket_s).alias("input_bytes_per_s"),
        F.count_if(F.col("matched") > 0).alias("deliveries"),
        F.count_if(F.col("matched") == 0).alias("pure_forwards"),
        F.sum("matched").alias("matched_subscriptions"),
    )
    return found.select(LOAD.fieldNames())


def summarised(deliveries: DataFrame) -> DataFrame:
    """The table `SUMMARY`."""
    counts = (
        arrivals(deliveries)
        .groupBy("broker")
        .agg(F.count_if(F.col("matched") > 0).alias("deliveries"), F.count_if(F.col("matched") == 0).alias("pure_forwards"))
    )
    first = (
        deliveries.where("subscription is not null")
        .groupBy("broker", "publisher", "sequence", "subscription")
        .agg(F.min(F.col("arrived_at_s") - F.col("published_at_s")).alias("delay_s"), F.min("hops").alias("hops"))
    )
    delays = first.groupBy("broker").agg(
        F.avg("hops").alias("hops_mean"),
        F.avg("delay_s").alias("delay_s_mean"),
        F.percentile_approx("delay_s", 0.5, _ACCURACY).alias("delay_s_p50"),
        F.percentile_approx("delay_s", 0.99, _ACCURACY).alias("delay_s_p99"),
        F.max("delay_s").alias("delay_s_max"),
    )
    share = F.col("deliveries") / (F.col("deliveries") + F.col("pure_forwards"))
    return counts.join(delays, "broker", "left").withColumn("yield_share", share).select(SUMMARY.fieldNames())
