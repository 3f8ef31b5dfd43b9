"""Figures 7.18 to 7.23 of the thesis: measures over the number of subscriptions, and over the length of vectors."""

from collections.abc import Iterable, Sequence

import pandas as pd

from overweave.reports.style import COLOURS, MARKERS, Figure, add_legend, new_figure, plain_numbers

_MAIN = ("manual", "automatic", "pairwise-k", "pairwise-n", "fbf", "bin-packing", "cram-iou")
_METRICS = ("cram-intersect", "cram-xor", "cram-ios", "cram-iou")
_PARTS = ("manual", "manual-grape", "cram-iou-root", "cram-iou")
#: Measure, label, and headroom: delays need one.
_MEASURES = (
    ("brokers", "brokers allocated", 0.0),
    ("input_hz_mean", "mean message rate of brokers (1/s)", 0.0),
    ("input_hz_max", "maximum message rate of brokers (1/s)", 0.0),
    ("output_utilisation_mean", "mean output utilisation", 0.0),
    ("hops", "links per delivery", 0.0),
    ("delay_s", "mean delay (s)", 0.2),
    ("seconds", "computation (s)", 0.0),
)
_SWEPT = (
    ("seconds", "computation (s)"),
    ("input_hz_max", "maximum message rate of brokers (1/s)"),
    ("brokers", "brokers allocated"),
)


def figures(compared: pd.DataFrame, swept: pd.DataFrame) -> Iterable[Figure]:
    """All of them."""
    usual = compared[(compared["rule"] == "split") & (compared["pool"] == compared["pool"].min())]
    for scenario, rows in usual.groupby("scenario", sort=False):
        for measure, label, headroom in _MEASURES:
            at = rows[rows["headroom"] == headroom]
            yield _lines(at, _MAIN, measure, f"{label}, {scenario}", f"{scenario}-{measure.replace('_', '-')}")
        without = rows[rows["headroom"] == 0]
        for measure, label, _ in _MEASURES[1:3]:
            name = measure.replace("_", "-")
            yield _lines(without, _PARTS, measure, f"{label}, {scenario}, in parts", f"{scenario}-breakdown-{name}")
            yield _lines(without, _METRICS, measure, f"{label}, {scenario}, by closeness", f"{scenario}-closeness-{name}")
    for measure, label in _SWEPT:
        yield _lines(swept, ("bin-packing", "cram-iou"), measure, label, f"lengths-{measure.replace('_', '-')}", "bits")


def _lines(
    rows: pd.DataFrame, algorithms: Sequence[str], measure: str, label: str, name: str, over: str = "subscriptions"
) -> Figure:
    what = "subscriptions" if over == "subscriptions" else "bits per vector"
    with new_figure(name, f"{label} over the number of {what}, one line per algorithm; *: overloads brokers") as (figure, axes):
        for number, algorithm in enumerate(algorithms):
            line = rows[rows["algorithm"] == algorithm].dropna(subset=[measure]).sort_values(over)
            if not len(line):
                continue
            mark = "*" if (line["overloaded"] > 0).any() else ""
            axes.plot(line[over], line[measure], label=algorithm + mark, color=COLOURS[number], marker=MARKERS[number])
        axes.set_xlabel(what)
        axes.set_ylabel(label.partition(", ")[0])
        axes.set_ylim(bottom=0)
        plain_numbers(axes.xaxis)
        add_legend(axes, "algorithm")
    return figure
