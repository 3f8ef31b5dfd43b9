"""Savings against moves, as a plan's report shows them: brokers and message rate over the clients and publishers that move."""

from collections.abc import Sequence
from xml.etree.ElementTree import Element

from matplotlib.ticker import MaxNLocator

from overweave.planning.plan import FrontierPoint, Plan
from overweave.reports.page import element, image, section, table
from overweave.reports.style import COLOURS, Figure, add_legend, from_zero, new_figure, plain_numbers

#: The most points with a row; the rest is in the file.
ROWS_MAX = 40
_MOVES = "clients and publishers that move"


def frontier_section(plan: Plan) -> list[Element]:
    """The savings of fewer moves; empty if not computed."""
    points = plan.frontier
    if len(points) < 2:
        return []
    step = -(-len(points) // ROWS_MAX)
    rows = [*points[:-1:step], points[-1]]
    headings = ["moves", "brokers", "message rate, mean (1/s)", "output utilisation, maximum", "overloaded brokers"]
    listed = table(headings, ([getattr(each, name) for name in FrontierPoint.__struct_fields__] for each in rows))
    return [section("Savings against moves", element("p", _said(points)), *map(image, frontier_figures(plan)), listed)]


def frontier_figures(plan: Plan) -> list[Figure]:
    """Brokers, and their mean message rate, over moves."""
    return [
        _figure(plan, "frontier-brokers", "brokers", [point.brokers for point in plan.frontier]),
        _figure(plan, "frontier-rate", "message rate, mean (1/s)", [point.input_hz_mean for point in plan.frontier]),
    ]


def _figure(plan: Plan, name: str, axis: str, values: Sequence[float]) -> Figure:
    points = plan.frontier
    moves = [point.moves for point in points]
    good = [i for i, point in enumerate(points) if not point.overloaded]
    with new_figure(name, f"{axis} over {_MOVES}, from today's network to the full plan", 3.0) as (figure, axes):
        # With moves in between, the last point before them is what can be had.
        axes.plot(moves, values, drawstyle="steps-post", color=COLOURS[0], linewidth=1.0)
        axes.plot([moves[i] for i in good], [values[i] for i in good], "o", color=COLOURS[0], markersize=4, label="possible")
        if len(good) < len(points):
            others = [i for i in range(len(points)) if i not in good]
            axes.plot([moves[i] for i in others], [values[i] for i in others], "X", color=COLOURS[1], label="overloaded")
        axes.plot([moves[0]], [values[0]], "s", color=COLOURS[-1], markersize=8, fillstyle="none", label="today")
        if plan.totals.moves is not None:
            chosen = plan.totals.brokers if name.endswith("brokers") else plan.totals.input_hz_mean
            axes.plot([plan.totals.moves], [chosen], "D", color=COLOURS[2], markersize=8, fillstyle="none", label="this plan")
        axes.set_xlabel(_MOVES)
        axes.set_ylabel(axis)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        if name.endswith("brokers"):
            axes.yaxis.set_major_locator(MaxNLocator(integer=True))
        from_zero(axes, list(values))
        axes.set_xlim(-0.03 * max(moves[-1], 1), 1.05 * max(moves[-1], 1))
        plain_numbers(axes.xaxis)
        plain_numbers(axes.yaxis)
        add_legend(axes, "network")
    return figure


def _said(points: Sequence[FrontierPoint]) -> str:
    """In words, how far half of the moves go."""
    first, last = points[0], points[-1]
    half = [point for point in points if 2 * point.moves <= last.moves][-1]
    saved, all_saved = first.brokers - half.brokers, first.brokers - last.brokers
    text = f"The full plan moves {last.moves:,} and saves {all_saved:,} of {first.brokers:,} brokers"
    if all_saved > 0 and half is not first:
        text += f"; {half.moves:,} moves, no more than half of them, save {saved:,}"
    return f"{text}. With the goal moves_max a plan keeps to fewer moves."
