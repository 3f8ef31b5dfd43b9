"""The picture of a sweep: a measure over a parameter, a line per series, means and 95 % confidence intervals over repetitions."""

import itertools
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from overweave.pipeline.sweeps.file import Figure
from overweave.reports.labels import figure as shown_figure
from overweave.reports.labels import label, scale
from overweave.reports.look import (
    COLOURS,
    LINE_WIDTH,
    LINES,
    MARKER_SIZE,
    MARKERS,
    SERIES_MAX,
    Picture,
    drawn,
    explain,
    from_zero,
    plain_numbers,
)
from overweave.reports.means import mean_and_margin

#: Values nearer to each other than this part of the axis cannot both have a number below them.
_CROWDED = 0.045


def sweep_picture(metrics: pd.DataFrame, figure: Figure, number: int) -> Picture:
    """Draw a figure of the table ``metrics``; scenarios that failed, or have no such values, are left out."""
    good = metrics[metrics["error"].isna()].dropna(subset=[figure.x])
    points = mean_and_margin(good, [figure.x, *figure.series], figure.y)
    series = list(_series(points, figure))
    name = f"{number:02}-{figure.y}-over-{figure.x}".replace("_", "-")
    with drawn(name, _caption(points, figure, len(series))) as (picture, axes):
        y_label = label(figure.y)
        divisor, unit = scale(y_label.unit, [*points["mean"]])
        places = _places(points[figure.x])
        named = _named(points[figure.x])
        for style, (text, rows) in zip(_styles(len(series)), series, strict=False):
            x = np.array([places[value] for value in rows[figure.x]])
            _draw(axes, x, rows["mean"].to_numpy() / divisor, rows["margin"].to_numpy() / divisor, text, style, named)
        axes.set_xlabel(str(label(figure.x)))
        axes.set_ylabel(str(y_label._replace(unit=unit)))
        axes.set_xscale(figure.x_scale)
        axes.set_yscale(figure.y_scale)
        _ticks(axes, places, figure, named)
        plain_numbers(axes.yaxis)
        if figure.y_scale == "linear":
            from_zero(axes, _reach(points, divisor))
        if figure.series:
            explain(axes, ", ".join(label(each).text for each in figure.series))
    return picture


def _series(points: pd.DataFrame, figure: Figure) -> Iterator[tuple[str, pd.DataFrame]]:
    """The name and the points of each line."""
    if not figure.series:
        yield label(figure.y).text, points
        return
    for key, rows in points.groupby(list(figure.series), sort=False, dropna=False):
        yield ", ".join(map(shown_figure, _plain(key))), rows


def _plain(values: tuple[Any, ...]) -> list[Any]:
    """Values as Python has them; whole numbers are not 3.0 because another row has none."""
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    return [int(value) if isinstance(value, float) and value.is_integer() else value for value in plain]


def _draw(axes: Axes, x: Any, y: Any, margin: Any, text: str, style: dict[str, Any], named: bool) -> None:
    order = np.argsort(x)
    # Between names there is nothing that a line could mean.
    given = style | {"linestyle": "none"} if named else style
    bars = np.nan_to_num(margin[order]) if np.isfinite(margin).any() else None
    axes.errorbar(
        x[order], y[order], yerr=bars, label=text, capsize=3 + style["markersize"] - MARKER_SIZE, elinewidth=1.0, **given
    )


def _styles(count: int) -> Iterator[dict[str, Any]]:
    """How lines are told apart; the first are wider, so that one which lies exactly below another can be seen."""
    looks = [(line, marker, colour) for line in LINES for marker, colour in zip(MARKERS, COLOURS, strict=True)]
    for number, (line, marker, colour) in enumerate(looks):
        more = max(0, min(count, 4) - 1 - number)
        yield {
            "linestyle": line,
            "marker": marker,
            "color": colour,
            "linewidth": LINE_WIDTH + 1.2 * more,
            "markersize": MARKER_SIZE + 2.4 * more,
        }


def _named(column: "pd.Series[Any]") -> bool:
    return not pd.api.types.is_numeric_dtype(column) or pd.api.types.is_bool_dtype(column)


def _places(column: "pd.Series[Any]") -> dict[Any, float]:
    """Where each value stands: numbers where they are, names one beside the other."""
    values = list(dict.fromkeys(column))
    return {value: float(place if _named(column) else value) for place, value in enumerate(values)}


def _ticks(axes: Axes, places: dict[Any, float], figure: Figure, named: bool) -> None:
    """Number the values that were swept, unless there are so many that their numbers would meet."""
    at = sorted(places.values())
    seen = [math.log(place) for place in at] if figure.x_scale == "log" else at
    span = (seen[-1] - seen[0]) if len(seen) > 1 else 1.0
    if not named and any(after - before < _CROWDED * span for before, after in itertools.pairwise(seen)):
        return
    names = {place: shown_figure(_plain((value,))[0]) for value, place in places.items()}
    axes.xaxis.set_major_locator(FixedLocator(at))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda place, _: names.get(place, "")))
    if named:
        axes.set_xlim(-0.5, len(at) - 0.5)


def _reach(points: pd.DataFrame, divisor: float) -> list[float]:
    """How far points and their intervals go."""
    margin = points["margin"].fillna(0.0)
    return [*((points["mean"] + margin) / divisor), *(points["mean"] / divisor)]


def _caption(points: pd.DataFrame, figure: Figure, series: int) -> str:
    text = f"{label(figure.y).text} over {label(figure.x).text}"
    repeated = int(points["count"].max()) if len(points) else 0
    if repeated > 1:
        text += f"; means of {repeated} repetitions with 95 % confidence intervals"
    return text + (f"; the first {SERIES_MAX} of {series} series" if series > SERIES_MAX else "")
