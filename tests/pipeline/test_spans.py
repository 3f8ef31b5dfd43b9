"""Spans of a run: a publication belongs to one of them, and counts once however often it arrived."""

import pytest

from overweave.pipeline.schemas import DELIVERIES
from overweave.pipeline.span_comparison import Seconds, compare_spans, deliveries_in
from overweave.pipeline.steps.spans import (
    Span,
    first_arrivals,
    first_deliveries,
    in_spans,
    span_deliveries,
    span_loads,
    span_pauses,
)

BEFORE, AFTER = Span("before", 100.0, 102.0), Span("after", 102.0, 104.0)
#: publisher, sequence, broker, subscription, hops, published, arrived
ROWS = [
    ("p", 1, "B1", None, 0, 100.0, 100.01),
    ("p", 1, "B2", "s1", 1, 100.0, 100.1),
    ("p", 2, "B1", None, 0, 101.0, 101.02),
    ("p", 2, "B2", "s1", 1, 101.0, 101.3),
    ("p", 2, "B2", "s2", 1, 101.0, 101.3),
    # It arrived twice, as while a client moves, at two brokers.
    ("p", 2, "B2", "s2", 1, 101.0, 101.4),
    ("p", 2, "B1", "s2", 0, 101.0, 101.9),
    # Published before, arrived after.
    ("p", 3, "B1", "s1", 0, 101.9, 103.5),
    ("p", 4, "B1", "s1", 0, 103.0, 103.6),
    # Of no span.
    ("p", 5, "B1", "s1", 0, 104.0, 104.1),
    ("p", 0, "B1", "s1", 0, 99.9, 100.0),
]


@pytest.fixture
def deliveries(spark):
    rows = [
        ("r", publisher, sequence, broker, subscription, None if subscription is None else "c", hops, at_s, arrived_s, 10, None)
        for publisher, sequence, broker, subscription, hops, at_s, arrived_s in ROWS
    ]
    return spark.createDataFrame(rows, DELIVERIES)


def values(frame, *names):
    return {tuple(row[name] for name in names) for row in frame.collect()}


def test_loads_deliveries_and_pauses_of_each_span(deliveries):
    rows = in_spans(deliveries, [BEFORE, AFTER])
    assert values(span_loads(first_arrivals(rows)), "span", "broker", "arrivals") == {
        ("before", "B1", 3), ("before", "B2", 2), ("after", "B1", 1)
    }  # fmt: skip
    found = {row.span: row for row in span_deliveries(first_deliveries(rows)).collect()}
    assert (found["before"].deliveries, found["after"].deliveries) == (4, 1)
    assert found["before"].hops_mean == pytest.approx((1 + 1 + 0 + 0) / 4)
    assert found["before"].delay_s_p50 == pytest.approx(0.3)
    assert found["before"].delay_s_p99 == pytest.approx(1.6, abs=0.05)
    gaps = {row.span: row.gap_s_max for row in span_pauses(first_arrivals(rows)).collect()}
    assert gaps == {"before": pytest.approx(103.5 - 101.02), "after": pytest.approx(0.1)}


def test_spans_of_a_trace_side_by_side(spark, deliveries, tmp_path):
    deliveries.write.partitionBy("run").parquet(str(tmp_path / "traces"))
    assert deliveries_in(spark, tmp_path / "traces", "r", BEFORE) == 4
    (before, after), seconds = compare_spans(spark, tmp_path / "traces", "r", [BEFORE, AFTER])
    assert before.input_hz == {"B1": 1.5, "B2": 1.0}
    assert (after.name, after.duration_s, after.input_hz, after.deliveries) == ("after", 2.0, {"B1": 0.5}, 1)
    assert after.delay_s_p99 == pytest.approx(0.6)
    assert seconds == Seconds(
        arrivals={"B1": [1, 1, 0, 2], "B2": [1, 1, 0, 0]},
        delay_s_p50=[pytest.approx(0.1), pytest.approx(0.3), None, pytest.approx(0.6)],
        delay_s_p99=[pytest.approx(0.1), pytest.approx(1.574), None, pytest.approx(0.6)],
    )


def test_a_span_without_rows_has_no_measures(spark, deliveries, tmp_path):
    deliveries.write.partitionBy("run").parquet(str(tmp_path / "traces"))
    empty = Span("empty", 200.0, 201.0)
    (_, found), _ = compare_spans(spark, tmp_path / "traces", "r", [BEFORE, empty])
    assert (found.input_hz, found.deliveries, found.hops_mean, found.gap_s_max) == ({}, 0, None, None)
