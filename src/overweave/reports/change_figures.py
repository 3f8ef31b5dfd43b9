"""The figures of a changed network: its overlays, loads and delays over time, and predicted loads beside measured ones."""

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes

from overweave.pipeline.span_comparison import Seconds
from overweave.reports.labels import name_rows, shown
from overweave.reports.plan import natural, positions
from overweave.reports.style import COLOURS, LINE_WIDTH, Figure, add_legend, from_zero, new_figure, plain_numbers

#: More brokers than this are points without names.
_NAMES_MAX = 40
#: The distance between both overlays, in leaves.
_GAP = 1.2
_GREY = COLOURS[-1]


def overlays(
    ids: Sequence[str],
    before: Sequence[tuple[str, str]],
    after: Sequence[tuple[str, str]],
    hz_before: Mapping[str, float],
    hz_after: Mapping[str, float],
) -> Figure:
    """Both overlays side by side, each broker at the same place; its size is the rate of messages that arrive there."""
    used = {end for link in after for end in link} | hz_after.keys()
    ids = sorted({*ids, *used}, key=natural)
    places = positions(ids, before)
    width = max(x for x, _ in places.values()) + _GAP
    levels = 1 + max(-y for _, y in places.values())
    upper = {max(link, key=lambda end: places[end][1]) for link in before}
    most = max([1.0, *hz_before.values(), *hz_after.values()])
    caption = "the overlay before and after; numbers are messages per second at each broker, hollow brokers were stopped"
    with new_figure("overlays", caption, min(6.0, 0.9 + 0.75 * levels)) as (figure, axes):
        for offset, links, hz, kept in ((0.0, before, hz_before, set(ids)), (width, after, hz_after, used)):
            for link in links:
                (x1, y1), (x2, y2) = (places[end] for end in link)
                axes.plot([x1 + offset, x2 + offset], [y1, y2], color=_GREY, linewidth=1.4, zorder=1)
            for id, (x, y) in places.items():
                rate = hz.get(id, 0.0)
                colour = _colour(id, sorted(used, key=natural)) if id in kept else "none"
                size = 40 + 190 * rate / most if id in kept else 40
                axes.scatter([x + offset], [y], s=size, color=colour, edgecolors=_GREY, linewidths=0.8, zorder=2)
                if len(places) <= _NAMES_MAX:
                    # Below the upper end of a link there are lines.
                    at, ha, va = ((9, 0), "left", "center") if id in upper else ((0, -10), "center", "top")
                    text = f"{shown(id)}\n{rate:.0f}" if id in kept else shown(id)
                    axes.annotate(text, (x + offset, y), at, textcoords="offset points", ha=ha, va=va, fontsize=7, zorder=3)
        for offset, text in ((0.0, f"before: {len(ids)} brokers"), (width, f"after: {len(used)} brokers")):
            axes.text(offset - 0.4, 0.45, text, fontsize=11, fontweight="bold")
        axes.set_xlim(-0.6, 2 * width - _GAP + 0.6)
        axes.set_ylim(-levels + 0.35, 0.8)
        axes.set_axis_off()
    return figure


def loads_over_time(seconds: Seconds, kept: Sequence[str], applied_s: tuple[float, float]) -> Figure:
    """What arrives at each broker, second by second."""
    used = sorted(kept, key=natural)
    caption = "messages per second at each broker; grey brokers were stopped, and the shaded time is that of the change"
    with new_figure("loads-over-time", caption, 3.0) as (figure, axes):
        most = 0.0
        for id in sorted(seconds.arrivals, key=lambda each: (each in used, natural(each))):
            values = _smooth(seconds.arrivals[id])
            most = max([most, *values.tolist()])
            width, text = (LINE_WIDTH, shown(id)) if id in used else (0.7, None)
            axes.plot(np.arange(len(values)) + 0.5, values, color=_colour(id, used), linewidth=width, label=text)
        _shade(axes, applied_s)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("messages (1/s)")
        axes.margins(x=0)
        from_zero(axes, [most])
        add_legend(axes, "broker")
    return figure


def delays_over_time(seconds: Seconds, applied_s: tuple[float, float]) -> Figure:
    """The delays of deliveries, by the second of their publication."""
    caption = "delays of deliveries by second of publication; the shaded time is that of the change"
    with new_figure("delays-over-time", caption, 2.8) as (figure, axes):
        for values, colour, text in (
            (seconds.delay_s_p50, COLOURS[0], "median"),
            (seconds.delay_s_p99, COLOURS[1], "99th percentile"),
        ):
            found = [np.nan if value is None else 1000 * value for value in values]
            axes.plot(np.arange(len(found)) + 0.5, found, color=colour, linewidth=LINE_WIDTH, label=text)
        _shade(axes, applied_s)
        axes.set_yscale("log")
        plain_numbers(axes.yaxis)
        axes.set_xlabel("time (s)")
        axes.set_ylabel("delay (ms)")
        axes.margins(x=0)
        add_legend(axes, "delay")
    return figure


def predictions(
    ids: Sequence[str], before: Mapping[str, float], predicted: Mapping[str, float], measured: Mapping[str, float]
) -> Figure:
    """The message rates of brokers as they were, as they were predicted, and as they are."""
    names = sorted(ids, key=natural)
    series = ((before, _GREY, "before"), (predicted, COLOURS[4], "predicted"), (measured, COLOURS[0], "measured after"))
    with new_figure("predictions", "message rates of the brokers that are left", 1.0 + 0.55 * len(names)) as (figure, axes):
        places, most = np.arange(len(names)), [0.0]
        for shift, (rates, colour, text) in zip((-0.27, 0.0, 0.27), series, strict=True):
            values = [rates.get(id, 0.0) for id in names]
            most += values
            axes.barh(places + shift, values, height=0.25, color=colour, label=text)
        name_rows(axes, names)
        axes.grid(False, axis="y")
        axes.set_xlabel("messages (1/s)")
        from_zero(axes, most, "x")
        add_legend(axes, "message rate")
    return figure


def _shade(axes: Axes, applied_s: tuple[float, float]) -> None:
    axes.axvspan(*applied_s, color=COLOURS[4], alpha=0.18, linewidth=0)


def _colour(id: str, used: Sequence[str]) -> str:
    """The colour of a broker that stays; the others have one."""
    return COLOURS[used.index(id) % (len(COLOURS) - 1)] if id in used else _GREY


def _smooth(values: Sequence[int]) -> "np.ndarray[tuple[int], np.dtype[np.float64]]":
    """Means over three seconds: rates of few publications jump."""
    if len(values) < 3:
        return np.array(values, np.float64)
    return np.convolve(np.pad(np.array(values, np.float64), 1, mode="edge"), np.ones(3) / 3, mode="valid")
