"""The figure of a sweep: a measure over a parameter, a line per series, means and 95 % confidence intervals over repetitions."""

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from numpy.typing import NDArray

from overweave.pipeline.sweeps.file import FigureSpec
from overweave.reports.confidence import mean_and_margin
from overweave.reports.labels import label, number_text, scale
from overweave.reports.style import (
    COLOURS,
    LINE_WIDTH,
    LINES,
    MARKER_SIZE,
    MARKERS,
    SERIES_MAX,
    Figure,
    add_legend,
    from_zero,
    new_figure,
    plain_numbers,
)

#: Values nearer to each other than this part of the axis cannot both have a number below them.
_CROWDED = 0.045
#: Of the room between two names, so much is for the points of one.
_ROOM = 0.6

Reals = NDArray[np.float64]


class _Line(NamedTuple):
    """The points of a series, from left to right, and how far on either side of them the mean may be."""

    text: str
    x: Reals
    y: Reals
    margin: Reals


def sweep_figure(metrics: pd.DataFrame, spec: FigureSpec, number: int) -> Figure:
    """Draw a figure of the table ``metrics``; scenarios that failed, or have no such values, are left out."""
    good = metrics[metrics["error"].isna()].dropna(subset=[spec.x])
    points = mean_and_margin(good, [spec.x, *spec.series], spec.y)
    y_label, named, places = label(spec.y), _named(points[spec.x]), _places(points[spec.x])
    divisor, unit = scale(y_label.unit, [*points["mean"]])
    lines = [_line(text, rows, spec.x, places, divisor) for text, rows in _series(points, spec)]
    name = f"{number:02}-{spec.y}-over-{spec.x}".replace("_", "-")
    with new_figure(name, _caption(points, spec, len(lines))) as (figure, axes):
        shown = lines[:SERIES_MAX]
        for place, line in enumerate(_beside(shown) if named else shown):
            _draw(axes, line, place, 0 if named else _hidden(line, shown[place + 1 :]), named)
        axes.set_xlabel(str(label(spec.x)))
        axes.set_ylabel(str(y_label._replace(unit=unit)))
        axes.set_xscale(spec.x_scale)
        axes.set_yscale(spec.y_scale)
        _ticks(axes, places, spec, named)
        plain_numbers(axes.yaxis)
        if spec.y_scale == "linear":
            from_zero(axes, [value for line in lines for value in (*line.y, *(line.y + np.nan_to_num(line.margin)))])
        if spec.series:
            add_legend(axes, ", ".join(label(each).text for each in spec.series))
    return figure


def _series(points: pd.DataFrame, spec: FigureSpec) -> Iterator[tuple[str, pd.DataFrame]]:
    """The name and the points of each line."""
    if not spec.series:
        yield label(spec.y).text, points
        return
    for key, rows in points.groupby(list(spec.series), sort=False, dropna=False):
        yield ", ".join(map(number_text, _plain(key))), rows


def _line(text: str, rows: pd.DataFrame, x: str, places: Mapping[Any, float], divisor: float) -> _Line:
    at = np.array([places[value] for value in rows[x]], np.float64)
    order = np.argsort(at)
    return _Line(text, at[order], rows["mean"].to_numpy()[order] / divisor, rows["margin"].to_numpy()[order] / divisor)


def _plain(values: tuple[Any, ...]) -> list[Any]:
    """Values as Python has them; whole numbers are not 3.0 because another row has none."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in plain]


def _beside(lines: list[_Line]) -> list[_Line]:
    """The same points beside each other: between names there is room."""
    steps = np.linspace(-_ROOM / 2, _ROOM / 2, len(lines)) if len(lines) > 1 else [0.0]
    return [line._replace(x=line.x + step) for line, step in zip(lines, steps, strict=True)]


def _hidden(line: _Line, later: list[_Line]) -> int:
    """How many of the lines that are drawn later lie exactly upon this one."""
    return sum(len(line.x) == len(each.x) and np.allclose((line.x, line.y), (each.x, each.y), rtol=0.01) for each in later)


def _draw(axes: Axes, line: _Line, place: int, hidden: int, named: bool) -> None:
    """Draw a line, the wider the more others lie upon it."""
    more = min(hidden, 3)
    axes.errorbar(
        line.x,
        line.y,
        yerr=np.nan_to_num(line.margin) if np.isfinite(line.margin).any() else None,
        label=line.text,
        color=COLOURS[place % len(COLOURS)],
        marker=MARKERS[place % len(MARKERS)],
        # Between names there is nothing that a line could mean.
        linestyle="none" if named else LINES[place // len(COLOURS)],
        linewidth=LINE_WIDTH * (1 + more),
        markersize=MARKER_SIZE + 2.5 * more,
        elinewidth=1.0 + more,
        capsize=3 + more,
    )


def _named(column: "pd.Series[Any]") -> bool:
    return not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)


def _places(column: "pd.Series[Any]") -> dict[Any, float]:
    """Where each value stands: numbers where they are, names one beside the other."""
    values = list(dict.fromkeys(column))
    return {value: float(place if _named(column) else value) for place, value in enumerate(values)}


def _ticks(axes: Axes, places: dict[Any, float], spec: FigureSpec, named: bool) -> None:
    """Label the swept values, unless the labels would overlap."""
    at = sorted(places.values())
    seen = [math.log(place) for place in at] if spec.x_scale == "log" else at
    span = (seen[-1] - seen[0]) if len(seen) > 1 else 1.0
    if not named and any(after - before < _CROWDED * span for before, after in itertools.pairwise(seen)):
        return
    names = {place: number_text(_plain((value,))[0]) for value, place in places.items()}
    axes.xaxis.set_major_locator(FixedLocator(at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: names.get(place, "")))
    if named:
        axes.set_xlim(-0.5, len(at) - 0.5)


def _caption(points: pd.DataFrame, spec: FigureSpec, series: int) -> str:
    text = f"{label(spec.y).text} over {label(spec.x).text}"
    repeated = int(points["count"].max()) if len(points) else 0
    if repeated > 1:
        text += f"; means of {repeated} repetitions with 95 % confidence intervals"
    return text + (f"; the first {SERIES_MAX} of {series} series" if series > SERIES_MAX else "")
