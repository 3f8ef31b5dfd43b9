"""Spans of time of a run side by side, such as before and after a change of its network.

A publication belongs to the span in which it was published. What arrives twice at a broker, as it may after a crash or while a
client moves, counts once.
"""

from collections.abc import Iterable
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Window
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


def first_arrivals(rows: DataFrame) -> DataFrame:
    """A row for each publication and broker: its span, when it came first (``at_s``), and over how many hops."""
    return rows.groupBy("span", "broker", "publisher", "sequence").agg(
        F.min("arrived_at_s").alias("at_s"), F.min("hops").alias("hops")
    )


def first_deliveries(rows: DataFrame) -> DataFrame:
    """A row for each publication and subscription that got it: its span, when it was published, its delay and its hops."""
    got = rows.where("subscription is not null").groupBy("span", "publisher", "sequence", "subscription")
    return got.agg(
        F.min("published_at_s").alias("published_at_s"),
        F.min(F.col("arrived_at_s") - F.col("published_at_s")).alias("delay_s"),
        F.min("hops").alias("hops"),
    )


def span_loads(arrivals: DataFrame) -> DataFrame:
    """By span and broker: the publications that arrived there (``arrivals``), of `first_arrivals`."""
    return arrivals.groupBy("span", "broker").agg(F.count("*").alias("arrivals"))


def span_deliveries(deliveries: DataFrame) -> DataFrame:
    """By span: the number of deliveries, their hops and delays, of `first_deliveries`."""
    counted = F.count("*").alias("deliveries"), F.mean("hops").alias("hops_mean")
    return deliveries.groupBy("span").agg(*counted, *_percentiles())


def span_pauses(arrivals: DataFrame) -> DataFrame:
    """By span: the longest time between two successive publications of one publisher at its brokers (``gap_s_max``).

    While a publisher moves, what it publishes waits; that shows where publications enter the network.
    """
    before = F.lag("at_s").over(Window.partitionBy("publisher").orderBy("sequence"))
    entered = arrivals.where("hops = 0").withColumn("gap_s", F.col("at_s") - before)
    return entered.groupBy("span").agg(F.max("gap_s").alias("gap_s_max"))


def second_loads(arrivals: DataFrame) -> DataFrame:
    """By second and broker: the publications that arrived there (``arrivals``), of `first_arrivals`."""
    return arrivals.groupBy(F.floor("at_s").alias("second"), "broker").agg(F.count("*").alias("arrivals"))


def second_delays(deliveries: DataFrame) -> DataFrame:
    """By second of publication: delays, of `first_deliveries`."""
    return deliveries.groupBy(F.floor("published_at_s").alias("second")).agg(*_percentiles())


def _percentiles() -> tuple[Column, Column]:
    return (
        F.percentile("delay_s", F.lit(0.5)).alias("delay_s_p50"),
        F.percentile("delay_s", F.lit(0.99)).alias("delay_s_p99"),
    )
