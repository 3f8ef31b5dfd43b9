"""Spans of time of a run side by side, such as before and after a change of its network.

A publication belongs to the span in which it was published. What arrives twice at a broker, as it may after a crash or while a
client moves, counts once.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F  # noqa: N812


class Span(NamedTuple):
    """A span of time, without its end."""

    name: str
    begin_s: float
    end_s: float


def in_spans(deliveries: DataFrame, spans: Iterable[Span]) -> DataFrame:
    """The rows of publications in any span, with its name in a column ``span``."""
    at_s, name = F.col("published_at_s"), F.lit(None).cast("string")
    for span in spans:
        name = F.when((at_s >= span.begin_s) & (at_s < span.end_s), F.lit(span.name)).otherwise(name)
    return deliveries.withColumn("span", name).where("span is not null")


def span_loads(rows: DataFrame) -> DataFrame:
    """By span and broker: publications that arrived there (``arrivals``)."""
    arrived = rows.select("span", "broker", "publisher", "sequence").distinct()
    return arrived.groupBy("span", "broker").agg(F.count("*").alias("arrivals"))


def span_deliveries(rows: DataFrame) -> DataFrame:
    """By span: deliveries, one for each subscription, with their hops and delays."""
    got = rows.where("subscription is not null").groupBy("span", "publisher", "sequence", "subscription")
    first = got.agg(F.min(F.col("arrived_at_s") - F.col("published_at_s")).alias("delay_s"), F.min("hops").alias("hops"))
    return first.groupBy("span").agg(
        F.count("*").alias("deliveries"),
        F.mean("hops").alias("hops_mean"),
        F.percentile("delay_s", F.lit(0.5)).alias("delay_s_p50"),
        F.percentile("delay_s", F.lit(0.99)).alias("delay_s_p99"),
    )


def span_pauses(rows: DataFrame) -> DataFrame:
    """By span: the longest time between two successive publications of one publisher at its brokers (``gap_s_max``).

    While a publisher moves, what it publishes waits; that shows where publications enter the network.
    """
    entered = rows.where("hops = 0").groupBy("span", "publisher", "sequence").agg(F.min("arrived_at_s").alias("at_s"))
    before = F.lag("at_s").over(Window.partitionBy("publisher").orderBy("sequence"))
    return entered.withColumn("gap_s", F.col("at_s") - before).groupBy("span").agg(F.max("gap_s").alias("gap_s_max"))


def second_loads(rows: DataFrame) -> DataFrame:
    """By second and broker: publications that arrived there (``arrivals``)."""
    first = rows.groupBy("broker", "publisher", "sequence").agg(F.min("arrived_at_s").alias("at_s"))
    return first.groupBy(F.floor("at_s").alias("second"), "broker").agg(F.count("*").alias("arrivals"))


def second_delays(rows: DataFrame) -> DataFrame:
    """By second of publication: the delays of deliveries."""
    got = rows.where("subscription is not null").groupBy("published_at_s", "publisher", "sequence", "subscription")
    first = got.agg(F.min(F.col("arrived_at_s") - F.col("published_at_s")).alias("delay_s"))
    return first.groupBy(F.floor("published_at_s").alias("second")).agg(
        F.percentile("delay_s", F.lit(0.5)).alias("delay_s_p50"), F.percentile("delay_s", F.lit(0.99)).alias("delay_s_p99")
    )
