"""The report of a changed network: what it says of a change, and what it draws."""

import pytest

from overweave.pipeline.span_comparison import Seconds, SpanMeasures
from overweave.reports.change import Account, Change, change_contents, measures
from overweave.reports.page import write_page


def span(name, input_hz, gap_s=0.6, hops=1.0):
    delays = {"delay_s_p50": 0.002, "delay_s_p99": 0.02}
    return SpanMeasures(name=name, duration_s=10.0, input_hz=input_hz, deliveries=5, hops_mean=hops, gap_s_max=gap_s, **delays)


@pytest.fixture
def change():
    return Change(
        brokers_before=("B1", "B2", "B10"),
        brokers_after=("B2",),
        links_before=(("B1", "B2"), ("B1", "B10")),
        links_after=(),
        spans=(
            span("before", {"B1": 10.0, "B2": 5.0, "B10": 3.0}),
            span("change", {"B1": 9.0, "B2": 8.0}, gap_s=1.25),
            span("after", {"B2": 9.0}, hops=0.0),
        ),
        accounts=tuple(
            Account(name=name, publications=7, expected=5, delivered=4 + lost, lost=1 - lost, duplicated=0)
            for name, lost in (("before", 1), ("change", 0), ("after", 1))
        ),
        predicted_hz={"B2": 10.0},
        moved={"t2": ("B1", "B2"), "t10": ("B10", "B2")},
        clients=5,
        interval_s=0.5,
        applied_s=(12.0, 15.5),
        phases={},
    )


def test_measures_before_during_and_after(change):
    found = {name: values for name, *values in measures(change)}
    assert found["brokers"] == ["3", "–", "1"]
    assert found["message rate of a broker, mean (1/s)"] == ["6", "–", "9"]
    assert found["message rate of a broker, maximum (1/s)"] == ["10", "9", "9"]
    assert found["longest pause of a publisher (ms)"] == ["100", "750", "100"]
    assert found["lost"] == ["0", "1", "0"]
    assert change.prediction_error == pytest.approx(0.1)
    assert change.duration_s == 3.5


def test_the_page_has_figures_and_nobodys_markup(change, tmp_path):
    seconds = Seconds(arrivals={"B1": [3, 0], "B2": [1, 9]}, delay_s_p50=[0.1, None], delay_s_p99=[0.2, None])
    write_page(tmp_path / "page.html", "a page", *change_contents(change, seconds, "<plan>.html"))
    page = (tmp_path / "page.html").read_text()
    assert page.count("<img") == 4
    assert "3 → 1" in page
    assert "2 of 5" in page
    assert "-10.0%" in page
    assert "&lt;plan&gt;.html" in page
