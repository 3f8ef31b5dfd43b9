"""The report of a plan: the overlay before and after, the load of every broker, and the moves."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from xml.etree.ElementTree import Element

import msgspec
import numpy as np

from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.plan_files import read_plan
from overweave.planning.plan import BrokerLoad, Plan
from overweave.reports.labels import label, name_rows, scale, shown
from overweave.reports.page import Text, element, facts, image, section, table
from overweave.reports.plan_evaluation import evaluation_contents
from overweave.reports.plan_frontier import frontier_section
from overweave.reports.style import COLOURS, Figure, add_legend, from_zero, new_figure, plain_numbers

#: Brokers and moves shown; the file has all.
BROKERS_MAX, MOVES_MAX = 60, 200
#: More brokers than this are points without names.
_NAMES_MAX = 40
_ROW_IN = 0.2
Place = tuple[float, float]
Links = Iterable[tuple[str, str]]


def is_plan(file: LocationLike) -> bool:
    """Whether a file may be one that ``overweave plan`` wrote."""
    return Location.of(file).suffix == ".json" and Location.of(file).is_file()


def plan_contents(file: LocationLike) -> list[Element]:
    """The contents of the page."""
    plan = read_plan(file)
    before = None if plan.before is None else plan.before.totals
    moves = [change for change in plan.changes if change.kind in ("client", "publisher") and change.before is not None]
    names = [("brokers before", None if before is None else before.brokers), ("brokers after", plan.totals.brokers)]
    kinds = Counter(change.kind for change in moves)
    more = [("clients", len(plan.clients)), ("clients that move", kinds["client"]), ("publishers that move", kinds["publisher"])]
    evidence = plan.evidence
    known = [
        ("evidence (s)", evidence.duration_s_max),
        ("profiles filled (share)", evidence.fill_mean),
        ("headroom (share)", plan.goals.headroom),
        ("algorithm", plan.algorithm),
    ]
    return [
        facts([*names, *more, *known]),
        section("Overlay", *map(image, overlays(plan))),
        section("Totals", _totals(plan)),
        section("Load of brokers", image(utilisations(plan)), image(rates(plan)), *_loads(plan)),
        *frontier_section(plan),
        *([section("Prediction and truth", *evaluation_contents(plan.evaluation))] if plan.evaluation is not None else []),
        section("Who moves", *_moves(plan)),
    ]


def overlays(plan: Plan) -> list[Figure]:
    """Before, if anybody knows, and after: a broker is at the same place in both."""
    before = {} if plan.before is None else plan.before.load
    old = () if plan.before is None else plan.before.links
    ids = sorted({*before, *plan.brokers}, key=natural)
    places = positions(ids, old or plan.links)
    figures = []
    if plan.before is not None:
        figures.append(_overlay("overlay-before", "the overlay before", places, old, before))
    text = "the overlay after; brokers that are not needed any more are hollow" if before else "the overlay of the plan"
    return [*figures, _overlay("overlay-after", text, places, plan.links, plan.load)]


def positions(ids: Iterable[str], links: Links) -> dict[str, Place]:
    """Where brokers are drawn: a tree from the first one down, leaves side by side; those without a link stand last.

    >>> positions(["a", "b", "c", "d"], [("a", "b"), ("a", "c")])
    {'a': (0.5, 0.0), 'b': (0.0, -1.0), 'c': (1.0, -1.0), 'd': (2.0, 0.0)}
    """
    ids = list(ids)
    neighbours: dict[str, list[str]] = {id: [] for id in ids}
    for one, other in links:
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    depth: dict[str, int] = {}
    children: dict[str, list[str]] = {id: [] for id in neighbours}
    x: dict[str, float] = {}
    free = 0
    for root in (id for id in neighbours if id not in depth or id not in x):
        depth[root], open, order = 0, [root], []
        while open:
            at = open.pop()
            order.append(at)
            for other in neighbours[at]:
                if other not in depth:
                    depth[other] = depth[at] + 1
                    children[at].append(other)
            open.extend(reversed(children[at]))
        for at in order:
            if not children[at]:
                x[at], free = float(free), free + 1
        for at in reversed(order):
            if children[at]:
                x[at] = sum(x[child] for child in children[at]) / len(children[at])
    return {id: (x[id], float(-depth[id])) for id in neighbours}


def _overlay(
    name: str, caption: str, places: Mapping[str, Place], links: Sequence[tuple[str, str]], load: Mapping[str, BrokerLoad]
) -> Figure:
    levels = 1 + round(max((-y for _, y in places.values()), default=0.0))
    # Below the upper end of a link that falls there is a line.
    upper = {max(link, key=lambda end: places[end][1]) for link in links if places[link[0]][1] != places[link[1]][1]}
    with new_figure(name, f"{caption}; numbers are output utilisation", min(8.0, 1.2 + 0.8 * levels)) as (figure, axes):
        for one, other in links:
            axes.plot(*zip(places[one], places[other], strict=True), color=COLOURS[-1], linewidth=1.0, zorder=1)
        for id, (x, y) in places.items():
            used = id in load
            over = used and max(load[id].output_utilisation, load[id].input_utilisation) > 1
            colour = COLOURS[1] if over else COLOURS[0] if used else "none"
            axes.scatter([x], [y], s=60, color=colour, edgecolors=COLOURS[-1], zorder=2)
            if len(places) <= _NAMES_MAX:
                text = f"{shown(id)}\n{load[id].output_utilisation:.0%}" if used else shown(id)
                at, ha, va = ((6, 0), "left", "center") if id in upper else ((0, -8), "center", "top")
                text = text.replace("\n", " ") if id in upper else text
                axes.annotate(text, (x, y), at, textcoords="offset points", ha=ha, va=va, fontsize=7)
        xs = [x for x, _ in places.values()]
        axes.set_xlim(min(xs) - 0.6, max(xs) + 0.6)
        axes.set_ylim(-levels + 0.2, 0.4)
        axes.set_axis_off()
    return figure


def utilisations(plan: Plan) -> Figure:
    """How much of its output every broker uses."""
    return _bars(plan, "utilisation", "output utilisation (share of bandwidth)", "output_utilisation", 1 - plan.goals.headroom)


def rates(plan: Plan) -> Figure:
    """What arrives at every broker."""
    return _bars(plan, "rate", "message rate (1/s)", "input_hz", None)


def _bars(plan: Plan, name: str, axis: str, field: str, limit: float | None) -> Figure:
    before, ids = {} if plan.before is None else plan.before.load, _shown_brokers(plan)
    with new_figure(f"load-{name}", f"{axis} of {len(ids)} brokers, before and after", 1.1 + 1.5 * _ROW_IN * len(ids)) as (
        figure,
        axes,
    ):
        places = np.arange(len(ids))
        most = [limit or 0.0]
        for place, load, colour, text in ((-0.2, before, COLOURS[-1], "before"), (0.2, plan.load, COLOURS[0], "after")):
            values = [float(getattr(load[id], field)) if id in load else 0.0 for id in ids]
            most += values
            if load:
                axes.barh(places + place, values, height=0.38, color=colour, label=text)
        if limit is not None:
            axes.axvline(limit, color=COLOURS[1], linewidth=1.0, linestyle="--", label="most, with headroom")
        name_rows(axes, ids)
        axes.grid(False, axis="y")
        axes.set_xlabel(axis)
        from_zero(axes, most, "x")
        plain_numbers(axes.xaxis)
        add_legend(axes, "network")
    return figure


def _shown_brokers(plan: Plan) -> list[str]:
    """The brokers of before and after, those with most output first where they are many."""
    before = {} if plan.before is None else plan.before.load
    ids = sorted({*before, *plan.brokers}, key=natural)
    if len(ids) <= BROKERS_MAX:
        return ids

    def most(id: str) -> float:
        return max(load[id].output_utilisation for load in (before, plan.load) if id in load)

    return sorted(ids, key=lambda each: (-most(each), natural(each)))[:BROKERS_MAX]


def natural(name: str) -> list[tuple[int, str]]:
    """An order of names in which numbers count as numbers.

    >>> sorted(["B10", "B9", "A"], key=natural)
    ['A', 'B9', 'B10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def _totals(plan: Plan) -> Element:
    after = msgspec.to_builtins(plan.totals)
    before = {} if plan.before is None else msgspec.to_builtins(plan.before.totals)
    rows = []
    for name, value in after.items():
        if name in ("clusters", "moves"):
            continue
        old = before.get(name)
        rows.append((Text(str(label(name))), old, value, None if old is None or value is None else value - old))
    return table(["measure", "before", "after", "difference"], rows)


def _loads(plan: Plan) -> list[Element]:
    before, ids = {} if plan.before is None else plan.before.load, _shown_brokers(plan)
    fields = BrokerLoad.__struct_fields__
    divisor, unit = scale("B/s", [load.output_bytes_per_s for load in plan.load.values()])
    headings = [str(label(name)).replace("B/s", unit) for name in fields]
    rows = []
    for id in ids:
        row: list[object] = [id]
        for load in (before, plan.load):
            found = load.get(id)
            for name in fields:
                value = None if found is None else float(getattr(found, name))
                row.append(value / divisor if value is not None and name == "output_bytes_per_s" else value)
        over = [id in load and max(load[id].input_utilisation, load[id].output_utilisation) > 1 for load in (before, plan.load)]
        rows.append([*row, ", ".join(when for when, is_so in zip(("before", "after"), over, strict=True) if is_so)])
    tables = [table(["broker", *(f"{text} {when}" for when in ("before", "after") for text in headings), "overloaded"], rows)]
    total = len({*before, *plan.brokers})
    if total > len(ids):
        tables.append(element("p", f"The {len(ids)} with most output of {total:,} brokers.", class_="faint"))
    return tables


def _moves(plan: Plan) -> list[Element]:
    moves = [change for change in plan.changes if change.kind in ("client", "publisher") and change.before is not None]
    if not moves:
        return [element("p", "Nobody moves.")]
    between = Counter((change.before, change.after) for change in moves)
    most = sorted(between.items(), key=lambda each: (-each[1], str(each[0])))[:BROKERS_MAX]
    found = [table(["from broker", "to broker", "clients and publishers"], ((*pair, count) for pair, count in most))]
    rows = ((change.kind, change.id, change.before, change.after) for change in moves[:MOVES_MAX])
    found.append(table(["kind", "id", "from broker", "to broker"], rows))
    if len(moves) > MOVES_MAX:
        found.append(element("p", f"The first {MOVES_MAX} of {len(moves):,}.", class_="faint"))
    return found
