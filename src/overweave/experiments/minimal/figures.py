"""Figures 5 to 8 of MINIMAL, one per generator: measures over the number of clients, and over the load compensation factor."""

from collections.abc import Iterable

import pandas as pd

from overweave.experiments.minimal.congestion import CAPACITY
from overweave.experiments.minimal.designs import PAPER
from overweave.reports.style import COLOURS, LINES, MARKERS, Figure, add_legend, new_figure, plain_numbers

#: Figure, measure, and label.
_GROWING = (
    ("figure-5-brokers", "brokers", "brokers in use"),
    ("figure-6a-messages", "messages", "messages per publication"),
    ("figure-6b-latency", "latency_ticks", "average latency (ticks)"),
    ("figure-6c-pure-forwarding", "pure_forwarding", "pure forwarding, mean over brokers"),
    ("figure-7a-peak-load-mean", "peak_load_mean", "average peak load (messages per time unit)"),
    ("figure-7b-peak-load-max", "peak_load_max", "maximum peak load (messages per time unit)"),
    ("figure-7c-processing-delay", "processing_delay_ticks", "average processing delay (ticks)"),
)
_FACTORS = (
    ("figure-8a-brokers", "brokers", "brokers in use"),
    ("figure-8b-messages", "messages", "messages per publication"),
    ("figure-8c-latency", "latency_ticks", "average latency (ticks)"),
    ("figure-8d-peak-load-mean", "peak_load_mean", "average peak load (messages per time unit)"),
)


def figures(growing: pd.DataFrame, factors: pd.DataFrame) -> Iterable[Figure]:
    """All of them."""
    for table, over, what, several in (
        (growing, "clients", "clients", _GROWING),
        (factors, "lcf", "load compensation factor", _FACTORS),
    ):
        for generator, rows in table.groupby("generator", sort=False):
            for name, measure, label in several:
                yield _lines(rows, over, what, measure, label, f"{name}-{generator}")


def _lines(rows: pd.DataFrame, over: str, what: str, measure: str, label: str, name: str) -> Figure:
    seeds = rows["seed"].nunique()
    caption = f"{label} over the {what}, one line per design, means of {seeds} seed{'s' if seeds > 1 else ''}"
    with new_figure(name, caption) as (figure, axes):
        for number, design in enumerate(PAPER):
            line = rows[rows["design"] == design].groupby(over)[measure].mean()
            if len(line):
                axes.plot(line.index, line, label=design, color=COLOURS[number], marker=MARKERS[number])
        if measure.startswith("peak"):
            axes.axhline(CAPACITY, label="capacity", color=COLOURS[7], linestyle=LINES[1], linewidth=1)
        axes.set_xlabel(what)
        axes.set_ylabel(label)
        axes.set_ylim(bottom=0)
        plain_numbers(axes.xaxis)
        plain_numbers(axes.yaxis)
        add_legend(axes, "design")
    return figure
