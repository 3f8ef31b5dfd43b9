"""Figures 3 to 7 of STOCH, as lines over the mean number of subscriptions."""

from collections.abc import Iterable
from typing import Any

import pandas as pd
from matplotlib.axes import Axes

from overweave.experiments.stoch.scenarios import RATES_HZ, WIDTHS
from overweave.reports.style import COLOURS, LINES, Figure, add_legend, new_figure, plain_numbers

#: Measure, name, and label.
_BY_TOPOLOGY = (
    ("routing_entries", "figure-3-routing-entries", "remote routing entries"),
    ("notification_rate", "figure-4-notification-rate", "notifications per second"),
    ("control_rate", "figure-5-control-rate", "control messages per second"),
    ("saved_rate", "figure-6-saved-rate", "saved messages per second"),
)
_X = "workload_subscriptions"


def figures(topologies: pd.DataFrame, rates: pd.DataFrame, validated: pd.DataFrame) -> Iterable[Figure]:
    """All of them, and one of analysis against simulation."""
    for measure, name, label in _BY_TOPOLOGY:
        with new_figure(name, f"{label} over the mean number of subscriptions, for the topologies T1 to T64") as (figure, axes):
            for number, width in enumerate(WIDTHS):
                rows = topologies[topologies["overlay_width"] == width].sort_values(_X)
                axes.plot(rows[_X], rows[measure], label=f"T{width}", color=COLOURS[number % len(COLOURS)])
            _finish(axes, label, "topology")
        yield figure
    yield _figure_7(rates)
    yield _scatter(validated)


def _figure_7(rates: pd.DataFrame) -> Figure:
    caption = "control message rates and saved notification rates of T8 for several publication rates"
    with new_figure("figure-7-publication-rates", caption, height_in=4.4) as (figure, axes):
        for number, rate_hz in enumerate(RATES_HZ):
            rows = rates[rates["workload_rate_hz"] == rate_hz].sort_values(_X)
            label = f"saved notifications, {rate_hz:g}/s"
            axes.plot(rows[_X], rows["saved_notification_rate"], label=label, color=COLOURS[number])
        for number, (measure, name) in enumerate((("control_rate", "identity"), ("control_rate_simple", "simple")), 1):
            style: dict[str, Any] = {"color": COLOURS[4 + number], "linestyle": LINES[number], "linewidth": 2.2}
            axes.plot(rows[_X], rows[measure], label=f"control, {name}", **style)
        axes.set_yscale("log")
        axes.set_ylim(1, 1e6)
        _finish(axes, "messages per second", "T8")
    return figure


def _scatter(validated: pd.DataFrame) -> Figure:
    caption = "simulated means with 95 % intervals over what the model expects, one point per scenario and measure"
    with new_figure("analysis-against-simulation", caption, height_in=4.4) as (figure, axes):
        for number, (measure, rows) in enumerate(validated.groupby("measure", sort=False)):
            text, colour = str(measure).replace("_", " "), COLOURS[number]
            bars: dict[str, Any] = {"markersize": 2.5, "linewidth": 0.7}
            axes.errorbar(rows["expected"], rows["mean"], yerr=rows["margin"], fmt="o", label=text, color=colour, **bars)
        low, high = validated["expected"].min(), validated["expected"].max()
        axes.plot([low, high], [low, high], color=COLOURS[7], linestyle=LINES[1], linewidth=1, label="equal")
        axes.set_xscale("log")
        axes.set_yscale("log")
        for axis in (axes.xaxis, axes.yaxis):
            plain_numbers(axis)
        axes.set_xlabel("expected by the model")
        axes.set_ylabel("simulated, mean and 95 % interval")
        add_legend(axes, "measure")
    return figure


def _finish(axes: Axes, label: str, legend: str) -> None:
    axes.set_xscale("log")
    axes.set_xlim(10, 700_000)
    axes.set_xlabel("mean number of subscriptions")
    axes.set_ylabel(label)
    plain_numbers(axes.xaxis)
    plain_numbers(axes.yaxis)
    add_legend(axes, legend)
