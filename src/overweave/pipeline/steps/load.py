"""Load: what brokers had to carry over time, and what their clients got of it.

An arrival is a publication at a broker, counted once, whatever the trace has of it: a row for each subscription that it matched,
and the same again when it came again after a crash.

Tables are made in two steps. Parts are counted from rows; tables are summed up from parts. Parts of different publications can be
put together, with columns ``by`` to keep them apart until then, which is how a trace that grows is followed without counting
everything again.

Percentiles come from counts of delays in bins, each bin 1 % wider than the one before: they are within 0.5 % of the delay at
that rank (below a nanosecond: within one), and do not depend on the order of rows or on how parts were put together.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812

from overweave.errors import InvalidInput
from overweave.pipeline.schemas import LOAD, SUMMARY

_BIN_WIDTH = 1.01
_DELAY_S_MIN = 1e-9


def arrivals(deliveries: DataFrame, *by: str) -> DataFrame:
    """One row per publication and broker: when it came first, what it weighs, and how many subscriptions it matched there."""
    return deliveries.groupBy(*by, "broker", "publisher", "sequence").agg(
        F.min("arrived_at_s").alias("arrived_at_s"),
        F.max("bytes").alias("bytes"),
        F.count_distinct("subscription").alias("matched"),
        F.count_distinct("client").alias("clients"),
    )


def load_parts(deliveries: DataFrame, bucket_s: float, *by: str) -> DataFrame:
    """Arrivals counted by broker and bucket of time."""
    if not bucket_s > 0:
        raise InvalidInput(f"bucket_s: expected a time above 0, got {bucket_s:g}")
    at_s = F.floor(F.col("arrived_at_s") / bucket_s) * bucket_s
    buckets = arrivals(deliveries, *by).groupBy(*by, "broker", at_s.alias("at_s"))
    return buckets.agg(
        F.count("*").alias("arrivals"),
        F.sum("bytes").alias("bytes"),
        F.sum(F.col("bytes") * F.col("clients")).alias("delivered_bytes"),
        F.count_if(F.col("matched") > 0).alias("deliveries"),
        F.count_if(F.col("matched") == 0).alias("pure_forwards"),
        F.sum("matched").alias("matched_subscriptions"),
    )


def delay_parts(deliveries: DataFrame, *by: str) -> DataFrame:
    """What clients got, counted by broker and bin of delay."""
    first = (
        deliveries.where("subscription is not null")
        .groupBy(*by, "broker", "publisher", "sequence", "subscription")
        .agg(F.min(F.col("arrived_at_s") - F.col("published_at_s")).alias("delay_s"), F.min("hops").alias("hops"))
    )
    return first.groupBy(*by, "broker", _bin("delay_s").alias("bin")).agg(
        F.count("*").alias("got"),
        F.sum("hops").alias("hops"),
        F.sum("delay_s").alias("delay_s"),
        F.max("delay_s").alias("delay_s_max"),
    )


def load_of(parts: DataFrame, bucket_s: float) -> DataFrame:
    """The table `LOAD` of `load_parts`."""
    found = parts.groupBy("broker", "at_s").agg(
        (F.sum("arrivals") / bucket_s).alias("input_hz"),
        (F.sum("bytes") / bucket_s).alias("input_bytes_per_s"),
        (F.sum("delivered_bytes") / bucket_s).alias("delivered_bytes_per_s"),
        *(F.sum(name).alias(name) for name in ("deliveries", "pure_forwards", "matched_subscriptions")),
    )
    return found.select(LOAD.fieldNames())


def summary_of(load: DataFrame, delays: DataFrame) -> DataFrame:
    """The table `SUMMARY` of `load_parts` and `delay_parts`."""
    counts = load.groupBy("broker").agg(*(F.sum(name).alias(name) for name in ("deliveries", "pure_forwards")))
    names = ("got", "hops", "delay_s")
    bins = delays.groupBy("broker", "bin").agg(*(F.sum(name).alias(name) for name in names), F.max("delay_s_max").alias("max"))
    here = Window.partitionBy("broker")
    ranked = bins.withColumns({"rank": F.sum("got").over(here.orderBy("bin")), "all": F.sum("got").over(here)})
    found = ranked.groupBy("broker").agg(
        (F.sum("hops") / F.sum("got")).alias("hops_mean"),
        (F.sum("delay_s") / F.sum("got")).alias("delay_s_mean"),
        _percentile(0.5).alias("delay_s_p50"),
        _percentile(0.99).alias("delay_s_p99"),
        F.max("max").alias("delay_s_max"),
    )
    share = F.col("deliveries") / (F.col("deliveries") + F.col("pure_forwards"))
    return counts.join(found, "broker", "left").withColumn("yield_share", share).select(SUMMARY.fieldNames())


def loaded(deliveries: DataFrame, bucket_s: float = 1.0) -> DataFrame:
    """The table `LOAD`, in buckets of time."""
    return load_of(load_parts(deliveries, bucket_s), bucket_s)


def summarised(deliveries: DataFrame) -> DataFrame:
    """The table `SUMMARY`."""
    return summary_of(load_parts(deliveries, 1.0), delay_parts(deliveries))


def _bin(delay_s: str) -> Column:
    """The number of a delay's bin, in the order of delays; clocks that differ make delays below zero, which have bins, too."""
    size = F.abs(F.col(delay_s))
    steps = F.round(F.ln(size / _DELAY_S_MIN) / F.ln(F.lit(_BIN_WIDTH))) + 1
    return F.when(size < _DELAY_S_MIN, F.lit(0)).otherwise((F.signum(F.col(delay_s)) * steps).cast("int"))


def _percentile(share: float) -> Column:
    """The delay of the first bin up to which there are enough; no delay is above the largest that there was."""
    middle = F.signum("bin") * _DELAY_S_MIN * F.pow(F.lit(_BIN_WIDTH), F.abs(F.col("bin")) - 1)
    enough = F.when(F.col("rank") >= share * F.col("all"), F.least(middle, F.col("max")))
    return F.min(enough)
