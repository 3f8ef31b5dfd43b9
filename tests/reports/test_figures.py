"""Figures of sweeps: what is drawn where, and that it is the same every time. Letters are shapes; their text is in comments."""

import re
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes

from overweave.pipeline.sweeps.file import FigureSpec
from overweave.reports.line_chart import sweep_figure
from overweave.reports.style import SERIES_MAX

FIGURE = FigureSpec(x="overlay_brokers", y="delay_s_mean", series=("routing_protocol",))


@pytest.fixture
def metrics():
    rows = [
        (protocol, brokers, seed, 0.001 * brokers * seed * (1 + (protocol == "flooding")), None)
        for protocol in ("filter", "flooding")
        for brokers in (30, 7)
        for seed in (1, 2, 3)
    ]
    rows.append(("filter", 60, 1, 5.0, "it failed"))
    return pd.DataFrame(rows, columns=["routing_protocol", "overlay_brokers", "seed", "delay_s_mean", "error"])


@pytest.fixture
def bars(monkeypatch):
    """All that is drawn with error bars, by label."""
    drawn, real = {}, Axes.errorbar

    def errorbar(axes, x, y, **options):
        drawn[options["label"]] = (np.asarray(x).tolist(), np.asarray(y).tolist(), options)
        return real(axes, x, y, **options)

    monkeypatch.setattr(Axes, "errorbar", errorbar)
    return drawn


def texts(svg):
    return re.findall(r"<!-- (.*?) -->", svg)


def test_lines_are_means_in_a_readable_unit(metrics, bars):
    figure = sweep_figure(metrics, FIGURE, 1)
    x, y, options = bars["flooding"]
    # The scenario of 60 brokers failed.
    assert x == [7, 30]
    assert y == pytest.approx([2 * 14, 2 * 60])
    assert options["yerr"] == pytest.approx([4.303 * 2 * 7 / 3**0.5, 4.303 * 2 * 30 / 3**0.5])
    assert bars["filter"][1] == pytest.approx([14, 60])
    assert set(texts(figure.svg)) >= {"brokers", "delay, mean (ms)", "protocol", "filter", "flooding", "7", "30"}
    assert figure.name == "01-delay-s-mean-over-overlay-brokers"
    assert "means of 3 repetitions with 95 % confidence intervals" in figure.caption
    assert figure.png.startswith(b"\x89PNG")


def test_the_same_table_gives_the_same_bytes(metrics):
    one, other = (sweep_figure(metrics, FIGURE, 1) for _ in range(2))
    assert (one.svg, one.png) == (other.svg, other.png)
    ElementTree.fromstring(one.svg)
    ElementTree.fromstring(one.adapted())
    assert "prefers-color-scheme" in one.adapted()
    assert "prefers-color-scheme" not in one.svg


def test_names_stand_beside_each_other_without_lines(metrics, bars):
    figure = sweep_figure(metrics, FigureSpec(x="routing_protocol", y="delay_s_mean", series=("overlay_brokers",)), 2)
    # One beside the other, all nearer to their name than to the next.
    assert (bars["30"][0], bars["7"][0]) == (pytest.approx([-0.3, 0.7]), pytest.approx([0.3, 1.3]))
    assert bars["30"][2]["linestyle"] == "none"
    assert set(texts(figure.svg)) >= {"protocol", "filter", "flooding", "brokers"}


def test_a_line_below_another_can_be_seen(metrics, bars):
    same = metrics.assign(delay_s_mean=0.001 * metrics["overlay_brokers"])
    sweep_figure(same[same["error"].isna()], FIGURE, 1)
    below, above = (bars[name][2]["linewidth"] for name in ("filter", "flooding"))
    assert below > above
    sweep_figure(metrics, FIGURE, 1)
    below, above = (bars[name][2]["linewidth"] for name in ("filter", "flooding"))
    assert below == above


def test_a_measure_that_nobody_has_is_an_empty_figure(metrics):
    figure = sweep_figure(metrics.assign(delay_s_mean=None), FIGURE, 1)
    ElementTree.fromstring(figure.svg)
    assert "brokers" in texts(figure.svg)


def test_without_repetitions_there_are_no_intervals(metrics, bars):
    figure = sweep_figure(metrics[metrics["seed"] == 1], FIGURE, 1)
    assert bars["filter"][2]["yerr"] is None
    assert "repetitions" not in figure.caption


def test_scales_are_those_that_are_wished(metrics):
    more = pd.concat([metrics, metrics[metrics["overlay_brokers"] == 7].assign(overlay_brokers=15)])
    linear = sweep_figure(more, FIGURE, 1)
    log = sweep_figure(more, FigureSpec(x="overlay_brokers", y="delay_s_mean", series=("routing_protocol",), x_scale="log"), 1)
    assert linear.svg != log.svg
    assert set(texts(log.svg)) >= {"7", "15", "30"}


def test_more_series_than_can_be_told_apart_are_left_out_and_that_is_said():
    rows = [(name, x, 1.0, None) for name in range(SERIES_MAX + 2) for x in (1, 2)]
    table = pd.DataFrame(rows, columns=["costs_link_delay_s", "overlay_brokers", "yield", "error"])
    figure = sweep_figure(table, FigureSpec(x="overlay_brokers", y="yield", series=("costs_link_delay_s",)), 1)
    assert figure.caption.endswith(f"the first {SERIES_MAX} of {SERIES_MAX + 2} series")


def test_names_are_drawn_as_they_are_and_never_as_formulas():
    table = pd.DataFrame({"x": ["$\\frac{$", "<b>&\x00 -->"], "y": [1.0, 2.0], "error": [None, None]})
    figure = sweep_figure(table, FigureSpec(x="x", y="y"), 1)
    ElementTree.fromstring(figure.svg)
