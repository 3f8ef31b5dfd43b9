"""The load of brokers over time, and the deliveries to their clients.

An arrival is a publication at a broker, counted once, although the trace has a row per matching subscription, and duplicates
after a crash. An arrival from a neighbour was sent by it, so arrivals also give the forwarded copies, pure forwards
included.

Tables are made in two steps: parts are counted from rows, and tables are sums of parts. Parts of different publications can be
merged, with columns ``by`` as keys. So a growing trace is followed without recounting everything.

Percentiles are from a relative-error sketch (DDSketch): counts in bins, each 1 % wider than the one before. They are within
0.5 % of the delay at that rank (1 ns below a nanosecond), independent of the order of rows and of merges.
"""

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.window import WindowSpec

from overweave.errors import InvalidInput
from overweave.pipeline.schemas import LOAD, SUMMARY

_BIN_WIDTH = 1.01
_DELAY_S_MIN = 1e-9
_ARRIVALS = ("arrivals", "useful_arrivals", "pure_forwards")
_BYTES, _OUTPUT = ("input_bytes", "delivered_bytes", "forwarded_bytes"), ("delivered_bytes", "forwarded_bytes", "output_bytes")


def arrivals(deliveries: DataFrame, *by: str) -> DataFrame:
    """One row per publication and broker: when it came first, from whom, what it weighs, and what it matched there."""
    return deliveries.groupBy(*by, "broker", "publisher", "sequence").agg(
        F.min("arrived_at_s").alias("arrived_at_s"),
        F.max("bytes").alias("bytes"),
        F.count_distinct("subscription").alias("matched"),
        F.count_distinct("client").alias("clients"),
        F.collect_set("previous_hop").alias("previous_hops"),
        F.max("hops").alias("hops"),
    )


def load_parts(deliveries: DataFrame, bucket_s: float, *by: str) -> DataFrame:
    """Arrivals and the sent copies, counted by broker and time bucket."""
    if not bucket_s > 0:
        raise InvalidInput(f"bucket_s: expected a time above 0, got {bucket_s:g}")
    at_s = F.floor(F.col("arrived_at_s") / bucket_s) * bucket_s
    # First the broker where it arrived, then those that sent it there.
    ends = F.posexplode(F.concat(F.array("broker"), "previous_hops")).alias("end", "at")
    both = arrivals(deliveries, *by).select("*", ends)
    here = F.col("end") == 0
    counted = here.cast("bigint")
    return both.groupBy(*by, F.col("at").alias("broker"), at_s.alias("at_s")).agg(
        F.sum(counted).alias("arrivals"),
        F.count_if(here & (F.col("matched") > 0)).alias("useful_arrivals"),
        F.count_if(here & (F.col("matched") == 0)).alias("pure_forwards"),
        F.sum(F.col("bytes") * counted).alias("input_bytes"),
        F.sum(F.col("bytes") * F.col("clients") * counted).alias("delivered_bytes"),
        F.sum(F.col("bytes") * (1 - counted)).alias("forwarded_bytes"),
        F.sum(F.col("matched") * counted).alias("deliveries"),
        # From an unknown neighbour.
        F.count_if(here & (F.col("hops") > 0) & (F.size("previous_hops") == 0)).alias("unknown"),
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
    sums = _summed(parts, "broker", "at_s").withColumns(_sent(Window.partitionBy("at_s")))
    rates = {f"{name}_per_s": F.col(name) / bucket_s for name in ("input_bytes", *_OUTPUT)}
    return sums.withColumns({"input_hz": F.col("arrivals") / bucket_s, **rates}).select(LOAD.fieldNames())


def summary_of(load: DataFrame, delays: DataFrame) -> DataFrame:
    """The table `SUMMARY` of `load_parts` and `delay_parts`."""
    # There are as many rows as brokers.
    counts = _summed(load, "broker").withColumns(_sent(Window.partitionBy(F.lit(0))))
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
    share = F.col("useful_arrivals") / F.nullif("arrivals", F.lit(0))
    return counts.join(found, "broker", "left").withColumn("yield_share", share).select(SUMMARY.fieldNames())


def broker_load(deliveries: DataFrame, bucket_s: float = 1.0) -> DataFrame:
    """The table `LOAD`, in buckets of time."""
    return load_of(load_parts(deliveries, bucket_s), bucket_s)


def broker_summary(deliveries: DataFrame) -> DataFrame:
    """The table `SUMMARY`."""
    return summary_of(load_parts(deliveries, 1.0), delay_parts(deliveries))


def _summed(parts: DataFrame, *by: str) -> DataFrame:
    return parts.groupBy(*by).agg(*(F.sum(name).alias(name) for name in (*_ARRIVALS, *_BYTES, "deliveries", "unknown")))


def _sent(others: WindowSpec) -> dict[str, Column]:
    """Forwarded and output bytes; null if the sender of an arrival at any of ``others`` is unknown."""
    forwarded = F.when(F.sum("unknown").over(others) == 0, F.col("forwarded_bytes"))
    return {"forwarded_bytes": forwarded, "output_bytes": F.col("delivered_bytes") + forwarded}


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
