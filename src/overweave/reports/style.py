"""The style of all figures: sizes, colours, grid, legend.

Figures are SVG, with letters as shapes, so they look alike everywhere; the same data gives the same bytes. The colours can be
told apart by the colour-blind and seen on white and on black; markers tell series apart in print.
"""

import io
import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure as Sheet
from matplotlib.ticker import FuncFormatter

COLOURS = ("#2a78c2", "#d9622b", "#1a9c74", "#a866b8", "#b98c06", "#4fa8d8", "#c2486b", "#7a7f87")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
LINES = ("-", "--", ":")
LINE_WIDTH, MARKER_SIZE = 1.6, 5.0
#: The maximum of distinguishable lines.
SERIES_MAX = len(COLOURS) * len(LINES)
#: From little to much; both ends can be seen on white and on black.
HEAT = "viridis"
WIDTH_IN = 7.0
_INK, _FAINT = "#2b2f36", "#b9bec7"
_RULES: Any = {
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.labelsize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.formatter.limits": (-4, 6),
    "axes.formatter.useoffset": False,
    "grid.color": _FAINT,
    "grid.linewidth": 0.5,
    "font.size": 10,
    "text.color": _INK,
    "text.parse_math": False,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "legend.frameon": False,
    "legend.fontsize": 9,
    "legend.title_fontsize": 9,
    "lines.linewidth": LINE_WIDTH,
    "lines.markersize": MARKER_SIZE,
    "svg.fonttype": "path",
    "svg.hashsalt": "overweave",
}


class Figure:
    """A rendered figure with its name and caption (also its alternative text)."""

    def __init__(self, name: str, caption: str) -> None:
        self.name = name
        self.caption = caption
        self.svg = ""
        self.png = b""

    def adapted(self) -> str:
        """The SVG for a page: ink and grid follow the light or dark colour scheme."""
        inks = f"<style>svg{{color:{_INK}}}@media(prefers-color-scheme:dark){{svg{{color:#d5d9e0}}}}</style>"
        bare = self.svg[self.svg.index("<svg") :]
        plain = bare.replace(_FAINT, "currentColor; stroke-opacity: 0.25").replace(_INK, "currentColor")
        return re.sub(r"(<svg\b[^>]*>)", lambda opening: opening[1] + inks, plain, count=1)


@contextmanager
def new_figure(name: str, caption: str, height_in: float = 3.6) -> Iterator[tuple[Figure, Axes]]:
    """Axes to draw on; the figure is rendered at the end of the body."""
    figure = Figure(name, caption)
    with matplotlib.rc_context(), warnings.catch_warnings():
        # Nobody's own settings show.
        matplotlib.rcdefaults()
        matplotlib.rcParams.update(_RULES)
        # A letter that no font has is drawn as a box.
        warnings.filterwarnings("ignore", message=r"Glyph .* missing from")
        sheet = Sheet(figsize=(WIDTH_IN, height_in))
        FigureCanvasAgg(sheet)
        yield figure, sheet.add_subplot()
        figure.svg, figure.png = _written(sheet, "svg").decode(), _written(sheet, "png")


def add_legend(axes: Axes, title: str) -> None:
    """A legend beside the axes, where it hides nothing."""
    handles, labels = axes.get_legend_handles_labels()
    sheet = axes.get_figure(root=True)
    if handles and sheet is not None:
        sheet.legend(handles, labels, title=title, loc="outside right upper", alignment="left")


def plain_numbers(axis: Axis) -> None:
    """Number an axis as people write numbers.

    >>> plain_number(6000.0), plain_number(0.1 + 0.2)
    ('6,000', '0.3')
    """
    axis.set_major_formatter(FuncFormatter(lambda value, _: plain_number(value)))


def plain_number(value: float) -> str:
    """A number below an axis, without the last digits that computing leaves."""
    return f"{value:,.10g}"


def from_zero(axes: Axes, values: list[float], which: Literal["x", "y"] = "y") -> None:
    """Begin an axis of amounts at nothing, so that lengths can be compared."""
    if values and min(values) >= 0:
        top = max(values) * 1.08 or 1.0
        axes.set_ylim(0, top) if which == "y" else axes.set_xlim(0, top)


def _written(sheet: Sheet, form: str) -> bytes:
    file = io.BytesIO()
    if form == "svg":
        sheet.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    else:
        sheet.savefig(file, format="png", dpi=150, facecolor="white")
    return file.getvalue()
