"""The comparison of spans of a run: the load of its brokers, hops, delays and pauses, as values."""

from collections.abc import Sequence

import msgspec
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from overweave.pipeline.locations import LocationLike
from overweave.pipeline.steps.spans import (
    Span,
    first_arrivals,
    first_deliveries,
    in_spans,
    second_delays,
    second_loads,
    span_deliveries,
    span_loads,
    span_pauses,
)
from overweave.pipeline.tables import read_table


class SpanMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """A span, as its trace has it."""

    name: str
    duration_s: float
    #: Publications that arrived per second, by broker; brokers without any are left out.
    input_hz: dict[str, float]
    deliveries: int
    hops_mean: float | None
    delay_s_p50: float | None
    delay_s_p99: float | None
    #: The longest time between two publications of one publisher.
    gap_s_max: float | None


class Seconds(msgspec.Struct, frozen=True, kw_only=True):
    """A run second by second; times are seconds since the begin of the first span."""

    #: By broker: arrivals in each second, all as long as the delays.
    arrivals: dict[str, list[int]]
    #: None: no delivery in that second.
    delay_s_p50: list[float | None]
    delay_s_p99: list[float | None]


def deliveries_in(spark: SparkSession, traces: LocationLike, run: str, span: Span) -> int:
    """The number of deliveries of a span that the trace has so far."""
    rows = in_spans(_rows(spark, traces, run), [span]).where("subscription is not null")
    return rows.select("publisher", "sequence", "subscription").distinct().count()


def compare_spans(
    spark: SparkSession, traces: LocationLike, run: str, spans: Sequence[Span]
) -> tuple[list[SpanMeasures], Seconds]:
    """The measures of each span, and the seconds from the first to the last."""
    rows = in_spans(_rows(spark, traces, run), spans)
    arrivals, deliveries = first_arrivals(rows).cache(), first_deliveries(rows).cache()
    try:
        return _measures(arrivals, deliveries, spans), _seconds(arrivals, deliveries, spans)
    finally:
        arrivals.unpersist()
        deliveries.unpersist()


def _rows(spark: SparkSession, traces: LocationLike, run: str) -> DataFrame:
    return read_table(spark, traces, "deliveries").where(F.col("run") == run)


def _measures(arrivals: DataFrame, deliveries: DataFrame, spans: Sequence[Span]) -> list[SpanMeasures]:
    loads: dict[str, dict[str, float]] = {span.name: {} for span in spans}
    lasted_s = {span.name: span.end_s - span.begin_s for span in spans}
    for each in span_loads(arrivals).collect():
        loads[each.span][each.broker] = each.arrivals / lasted_s[each.span]
    delivered = {row.span: row for row in span_deliveries(deliveries).collect()}
    gaps = {row.span: row.gap_s_max for row in span_pauses(arrivals).collect()}
    found = []
    for span in spans:
        row: Row | None = delivered.get(span.name)
        found.append(
            SpanMeasures(
                name=span.name,
                duration_s=lasted_s[span.name],
                input_hz=loads[span.name],
                deliveries=0 if row is None else row.deliveries,
                hops_mean=None if row is None else row.hops_mean,
                delay_s_p50=None if row is None else row.delay_s_p50,
                delay_s_p99=None if row is None else row.delay_s_p99,
                gap_s_max=gaps.get(span.name),
            )
        )
    return found


def _seconds(arrivals: DataFrame, deliveries: DataFrame, spans: Sequence[Span]) -> Seconds:
    first, last = int(min(span.begin_s for span in spans)), int(max(span.end_s for span in spans))
    count = last - first
    counts: dict[str, list[int]] = {}
    for row in second_loads(arrivals).where(F.col("second").between(first, last - 1)).collect():
        counts.setdefault(row.broker, [0] * count)[row.second - first] = row.arrivals
    p50: list[float | None] = [None] * count
    p99: list[float | None] = [None] * count
    for row in second_delays(deliveries).where(F.col("second").between(first, last - 1)).collect():
        p50[row.second - first], p99[row.second - first] = row.delay_s_p50, row.delay_s_p99
    return Seconds(arrivals=counts, delay_s_p50=p50, delay_s_p99=p99)
