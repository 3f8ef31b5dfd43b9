"""Figures 11 to 24 of DEST, ours as lines and published values as crosses."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes

from overweave.experiments.dest import general
from overweave.experiments.dest.claims import mean_length
from overweave.experiments.dest.networks import TITLES
from overweave.reports.style import COLOURS, LINES, MARKERS, Figure, add_legend, from_zero, new_figure, plain_numbers

#: A colour and a marker per protocol, the same in all figures.
_PLACES = {"FBR": 0, "D-DBR": 1, "MERC": 2}
_CROSS: dict[str, Any] = {"marker": "x", "markersize": 9, "markeredgewidth": 2, "linestyle": "none"}


def figures(
    chained: pd.DataFrame, loaded: general.Measured, listed: pd.DataFrame, changed: pd.DataFrame, failed: pd.DataFrame
) -> Iterator[Figure]:
    """All of them."""
    for number, subscriptions in ((11, 100), (12, 800), (13, 2000)):
        yield _chain_latency(number, chained[chained["subscriptions"] == subscriptions], subscriptions)
    yield _chain_utilisation(chained[(chained["subscriptions"] == 2000) & (chained["brokers"] == chained["brokers"].max())])
    yield _rates(loaded.rates)
    yield _broker_lists(loaded.brokers)
    yield _copies(loaded.network)
    yield _stored(loaded.brokers)
    yield from _lists(listed)
    yield _reorganisation(changed[changed["degree_max"] > 0])
    for number, kind in ((23, "brokers"), (24, "connections")):
        yield _failures(number, kind, failed[failed["kind"] == kind])


# ---- chains


def _chain_latency(number: int, rows: pd.DataFrame, subscriptions: int) -> Figure:
    title = f"latency on a chain, {subscriptions:,} subscriptions at its tail"
    with _titled(f"figure-{number}-latency-{subscriptions}", title, "brokers in the chain", "latency (ms)", "routing") as (
        figure,
        axes,
    ):
        for name, some in _by_title(rows):
            means = some.groupby("brokers")["latency_s"].first()
            axes.plot(means.index, 1000 * means, label=name, **_style(name))
        from_zero(axes, list(1000 * rows["latency_s"]))
        axes.set_xticks(range(1, int(rows["brokers"].max()) + 1))
    return figure


def _chain_utilisation(rows: pd.DataFrame) -> Figure:
    title = "how busy the brokers of a chain are, 2,000 subscriptions"
    with _titled("figure-14-utilisation", title, "broker, from head to tail", "busy (%)", "routing") as (figure, axes):
        for name, some in _by_title(rows):
            axes.plot(some["position"], 100 * some["utilisation"], label=name, **_style(name))
        for percent, text in ((63, "published: matching"), (2, "published: passing on")):
            axes.axhline(percent, color=COLOURS[7], linestyle=LINES[1 if percent > 2 else 2], linewidth=1, label=text)
        axes.set_ylim(0, 75)
        axes.set_xticks(sorted(set(rows["position"])))
    return figure


# ---- the general topology


def _rates(rows: pd.DataFrame) -> Figure:
    title = "latency over the publishing rate, 100 brokers"
    with _titled("figure-15-latency-over-rate", title, "publications per minute", "latency (ms)", "routing") as (figure, axes):
        for name, some in _by_title(rows):
            axes.plot(some["rate"], 1000 * some["latency_s"], label=name, **_style(name))
        _published(axes, "FBR", [2000, 2500], [1087, 2843])
        _published(axes, "D-DBR", [14_000], [491])
        axes.set_yscale("log")
    return figure


def _broker_lists(rows: pd.DataFrame) -> Figure:
    title = "mean destination list at each broker"
    with _titled("figure-16-lists-by-broker", title, "brokers, by their lists", "destinations per message", "routing") as (
        figure,
        axes,
    ):
        for name, some in _by_title(rows[rows["lists"] > 0]):
            lengths = np.sort(some["list_mean"])
            axes.plot(range(1, len(lengths) + 1), lengths, label=name, color=_colour(name))
        for name, mean in (("D-DBR", 2.12), ("MERC", 1.18)):
            axes.axhline(mean, color=_colour(name), linestyle=LINES[2], linewidth=1.2, label=f"{name}, published mean")
        from_zero(axes, list(rows["list_mean"].dropna()))
    return figure


def _copies(rows: pd.DataFrame) -> Figure:
    title = "copies of a subscription in the network"
    label = "brokers with advertisements that it meets (%)"
    with _titled("figure-17-copies", title, label, "copies per subscription", "routing") as (figure, axes):
        for name, some in _by_title(rows.sort_values("advertisers")):
            axes.plot(100 * some["advertisers"], some["copies"], label=name, **_style(name))
        _published(axes, "FBR", [80], [221])
        from_zero(axes, list(rows["copies"]))
    return figure


def _stored(rows: pd.DataFrame) -> Figure:
    title = "subscriptions stored, for 3,000 issued"
    with _titled("figure-18-stored", title, "brokers, by what they store", "subscriptions", "routing") as (figure, axes):
        top = []
        for name, some in _by_title(rows[rows["advertisers"] == 0.6]):
            scale = 100 * general.SUBSCRIPTIONS_PER_BROKER / some["issued"].iloc[0]
            counts = np.sort(some["stored"]) * scale
            axes.plot(range(1, len(counts) + 1), counts, label=name, color=_colour(name))
            top.append(float(counts[-1]))
        for name, mean in (("FBR", 5005), ("D-DBR", 1800), ("MERC", 1945)):
            axes.axhline(mean, color=_colour(name), linestyle=LINES[2], linewidth=1.2, label=f"{name}, published mean")
        from_zero(axes, top)
    return figure


# ---- lists


def _lists(table: pd.DataFrame) -> Iterator[Figure]:
    six = table[(table["degree"] == 6) & (table["shape"] == "random-graph")]
    for published, of, title, label in (
        (19, "messages", "mean destination list, brokers of degree 6", "destinations per message"),
        (21, "at_source", "mean destination list at the source", "destinations per message of the source"),
    ):
        with _titled(f"figure-{published}-lists", title, "brokers", label, "interested") as (figure, axes):
            means = []
            for number, (share, some) in enumerate(six.groupby("share")):
                points = [(brokers, mean_length(rows, of)) for brokers, rows in some.groupby("brokers")]
                axes.plot(*zip(*points, strict=True), label=f"{share:.0%} of all", color=COLOURS[number], marker=MARKERS[number])
                means += [mean for _, mean in points]
            if published == 19:
                axes.plot([700], [3.8], color=COLOURS[number], label="published, 100%", **_CROSS)
            from_zero(axes, means)
        yield figure
    with _titled(
        "figure-20-lists",
        "lengths of lists, 10 % of 700 brokers interested",
        "destinations",
        "messages with as many or fewer (%)",
        "lists",
    ) as (figure, axes):
        few = table[(table["brokers"] == six["brokers"].max()) & (table["degree"] == 6) & (table["share"] == 0.1)]
        for number, (shape, some) in enumerate(few.sort_values("length").groupby("shape")):
            share = 100 * some["messages"].cumsum() / some["messages"].sum()
            axes.step(some["length"], share, where="post", label=f"ours, {shape}", color=COLOURS[number])
        axes.plot([4, 11], [95, 99], color=COLOURS[2], label="published: at least", **_CROSS)
        axes.set_xscale("log")
    yield figure


# ---- failures


def _reorganisation(rows: pd.DataFrame) -> Figure:
    most, last = rows["degree_max"].iloc[0], rows["period"].max()
    title = f"the overlay organises itself, {most} links a broker"
    with new_figure("figure-22-reorganisation", title) as (figure, axes):
        axes.set_title(title)
        for place, (period, name) in enumerate(((0, "before"), (last, "after"))):
            some = rows[rows["period"] == period].groupby("hops")["share"].sum() / rows["seed"].nunique()
            mean = float((some.index * some).sum())
            axes.bar(
                some.index + 0.4 * place - 0.2, 100 * some, 0.4, color=COLOURS[place], label=f"{name}: {mean:.2f} on average"
            )
        axes.set_xlabel("hops")
        axes.set_ylabel("messages (%)")
        add_legend(axes, "hops (published 3.97, then 3.51)")
    return figure


def _failures(number: int, kind: str, rows: pd.DataFrame) -> Figure:
    title = f"what is delivered when {kind} are gone"
    published = {"brokers": {"D-DBR": 21.8, "FBR": 8.7}, "connections": {"D-DBR": 86.2, "FBR": 17.5}}[kind]
    with _titled(f"figure-{number}-{kind}-gone", title, f"{kind} gone (%)", "delivered, of all pairs (%)", "routing") as (
        figure,
        axes,
    ):
        for name, some in _by_title(rows):
            of = some.groupby("share")["delivered"]
            axes.errorbar(
                100 * of.mean().index, 100 * of.mean(), yerr=100 * of.std().fillna(0), label=name, capsize=2, **_style(name)
            )
            if name in published:
                _published(axes, name, [50], [published[name]])
        axes.set_ylim(0, 105)
    return figure


# ---- what they share


@contextmanager
def _titled(name: str, title: str, x: str, y: str, legend: str) -> Iterator[tuple[Figure, Axes]]:
    with new_figure(name, title) as (figure, axes):
        axes.set_title(title)
        yield figure, axes
        axes.set_xlabel(x)
        axes.set_ylabel(y)
        plain_numbers(axes.xaxis)
        plain_numbers(axes.yaxis)
        add_legend(axes, legend)


def _by_title(rows: pd.DataFrame) -> Iterable[tuple[str, pd.DataFrame]]:
    """The rows of each protocol, by what DEST calls it."""
    return sorted(
        ((TITLES[str(protocol)], some) for protocol, some in rows.groupby("protocol")), key=lambda each: _PLACES[each[0]]
    )


def _published(axes: Axes, name: str, x: list[float], y: list[float]) -> None:
    axes.plot(x, y, color=_colour(name), label=f"{name}, published", **_CROSS)


def _style(name: str) -> dict[str, Any]:
    return {"color": _colour(name), "marker": MARKERS[_PLACES[name]]}


def _colour(name: str) -> str:
    return COLOURS[_PLACES[name]]
