"""The figures of a profile: load over time, what brokers carried, how long it took, and how rates and densities are spread."""

from collections.abc import Callable

import numpy as np
import pandas as pd
from matplotlib.ticker import MaxNLocator
from numpy.typing import NDArray

from overweave.reports.labels import name_rows, scale, shown
from overweave.reports.profile_digest import Digest, Histogram
from overweave.reports.style import COLOURS, HEAT, LINE_WIDTH, Figure, add_legend, from_zero, new_figure, plain_numbers

#: The most brokers with a line of their own.
_LINES = 3
_ROW_IN = 0.2


def load_over_time(digest: Digest) -> Figure:
    """The busiest brokers, and the mean of all."""
    names = digest.brokers_top["broker"].tolist()[:_LINES]
    caption = f"Arrivals per second at the {len(names)} busiest brokers, and at all on average, in steps of {digest.step_s:g} s"
    with new_figure("load-over-time", caption, 3.2) as (figure, axes):
        edges, grid = _grid(digest, names)
        for row, name, colour in zip(grid, names, COLOURS, strict=False):
            axes.stairs(row, edges, color=colour, linewidth=LINE_WIDTH, label=shown(name), baseline=None)
        mean = _filled(digest.load, len(edges) - 1) / max(1.0, digest.totals["brokers"] or 1.0)
        axes.stairs(mean, edges, color=COLOURS[-1], linewidth=LINE_WIDTH, linestyle="--", label="mean of all", baseline=None)
        axes.set_xlabel("time since the first arrival (s)")
        axes.set_ylabel("arrivals (1/s)")
        axes.set_xlim(0, edges[-1])
        from_zero(axes, [*grid.ravel(), *mean])
        plain_numbers(axes.xaxis)
        plain_numbers(axes.yaxis)
        add_legend(axes, "broker")
    return figure


def load_map(digest: Digest) -> Figure:
    """All busy brokers at all times."""
    names = digest.brokers_top["broker"].tolist()
    caption = f"Arrivals per second at the {len(names)} busiest brokers over time"
    with new_figure("load-map", caption, 1.1 + _ROW_IN * len(names)) as (figure, axes):
        edges, grid = _grid(digest, names)
        extent = (0.0, float(edges[-1]), len(names) - 0.5, -0.5)
        mesh = axes.imshow(grid, aspect="auto", interpolation="nearest", cmap=HEAT, vmin=0.0, extent=extent)
        axes.grid(False)
        name_rows(axes, names)
        axes.set_xlabel("time since the first arrival (s)")
        plain_numbers(axes.xaxis)
        sheet = axes.get_figure(root=True)
        assert sheet is not None
        bar = sheet.colorbar(mesh, ax=axes, label="arrivals (1/s)", pad=0.02)
        bar.outline.set_visible(False)
    return figure


def arrivals_of_brokers(digest: Digest) -> Figure:
    """Useful arrivals and pure forwards per broker."""
    rows = digest.brokers_top
    caption = f"Arrivals at the {len(rows)} busiest brokers: with a local match, and without"
    with new_figure("arrivals", caption, 1.1 + _ROW_IN * len(rows)) as (figure, axes):
        places = np.arange(len(rows))
        axes.barh(places, rows["useful_arrivals"], color=COLOURS[0], height=0.7, label="with a local match")
        left = rows["useful_arrivals"]
        axes.barh(places, rows["pure_forwards"], left=left, color=COLOURS[1], height=0.7, label="pure forwards")
        name_rows(axes, rows["broker"].tolist())
        axes.grid(False, axis="y")
        axes.set_xlabel("publications")
        from_zero(axes, rows["arrivals"].tolist(), "x")
        plain_numbers(axes.xaxis)
        add_legend(axes, "arrivals")
    return figure


def output_of_brokers(digest: Digest) -> Figure | None:
    """Output to clients and to neighbours; None if the trace lacks senders."""
    rows = digest.brokers_top
    if rows["output_bytes"].isna().any():
        return None
    caption = f"What the {len(rows)} busiest brokers sent: to clients, and to neighbours"
    with new_figure("output", caption, 1.1 + _ROW_IN * len(rows)) as (figure, axes):
        divisor, unit = scale("B", rows["output_bytes"])
        places, delivered = np.arange(len(rows)), rows["delivered_bytes"] / divisor
        axes.barh(places, delivered, color=COLOURS[0], height=0.7, label="to clients")
        axes.barh(places, rows["forwarded_bytes"] / divisor, left=delivered, color=COLOURS[1], height=0.7, label="to neighbours")
        name_rows(axes, rows["broker"].tolist())
        axes.grid(False, axis="y")
        axes.set_xlabel(f"sent ({unit})")
        from_zero(axes, (rows["output_bytes"] / divisor).tolist(), "x")
        plain_numbers(axes.xaxis)
        add_legend(axes, "sent")
    return figure


def delays_of_brokers(digest: Digest) -> Figure | None:
    """From the median to the 99th percentile; nothing where clients got nothing."""
    rows = digest.brokers_top.dropna(subset=["delay_s_p50", "delay_s_p99"]).reset_index(drop=True)
    if not len(rows):
        return None
    caption = f"Delays of what clients got at {len(rows)} of the busiest brokers: median and 99th percentile"
    with new_figure("delays", caption, 1.1 + _ROW_IN * len(rows)) as (figure, axes):
        divisor, unit = scale("s", rows["delay_s_p99"])
        places, half, most = np.arange(len(rows)), rows["delay_s_p50"] / divisor, rows["delay_s_p99"] / divisor
        axes.hlines(places, half, most, color=COLOURS[-1], linewidth=1.5)
        axes.plot(half, places, "o", color=COLOURS[0], label="median")
        axes.plot(most, places, "D", color=COLOURS[1], label="99th percentile")
        name_rows(axes, rows["broker"].tolist())
        axes.grid(False, axis="y")
        axes.set_xlabel(f"delay ({unit})")
        from_zero(axes, [*half, *most], "x")
        plain_numbers(axes.xaxis)
        add_legend(axes, "delay")
    return figure


def spread(name: str, caption: str, x_label: str, y_label: str, histogram: Histogram) -> Figure:
    """How many there are of each size."""
    with new_figure(name, caption, 2.8) as (figure, axes):
        edges = np.linspace(0, histogram.high, len(histogram.counts) + 1)
        axes.bar(
            edges[:-1], histogram.counts, width=np.diff(edges), align="edge", color=COLOURS[0], edgecolor="white", linewidth=0.5
        )
        axes.set_xlim(0, histogram.high)
        axes.set_xlabel(x_label)
        axes.set_ylabel(y_label)
        axes.grid(False, axis="x")
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        from_zero(axes, [float(count) for count in histogram.counts])
        plain_numbers(axes.xaxis)
        plain_numbers(axes.yaxis)
    return figure


def profile_figures(digest: Digest) -> dict[str, list[Figure]]:
    """All figures, by the part of the report that they belong to."""
    brokers: list[Callable[[Digest], Figure | None]] = [arrivals_of_brokers, output_of_brokers, delays_of_brokers]
    rates = spread("rates", "How often publishers publish", "rate (1/s)", "publishers", digest.rates_hz)
    text = "How much of a publisher's last publications a subscription got: the density of profiles"
    density = spread("densities", text, "density (share of publications)", "profiles", digest.densities)
    return {
        "load": [load_over_time(digest), load_map(digest)],
        "brokers": [figure for draw in brokers if (figure := draw(digest)) is not None],
        "publishers": [rates],
        "profiles": [density],
    }


def _grid(digest: Digest, names: list[str]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """When steps begin, and the last ends, and the load of some brokers in each; where there is no row nothing came."""
    steps = int(digest.load["step"].max()) + 1 if len(digest.load) else 1
    by_broker = dict(tuple(digest.load_top.groupby("broker")))
    empty = digest.load_top.iloc[:0]
    grid = np.zeros((len(names), steps))
    for row, name in zip(grid, names, strict=True):
        row[:] = _filled(by_broker.get(name, empty), steps)
    return np.arange(steps + 1, dtype=np.float64) * digest.step_s, grid


def _filled(rows: pd.DataFrame, steps: int) -> NDArray[np.float64]:
    values = np.zeros(steps)
    values[rows["step"].to_numpy(np.int64)] = rows["input_hz"].to_numpy(np.float64)
    return values
