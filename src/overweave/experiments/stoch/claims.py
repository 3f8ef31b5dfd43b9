"""The claims of STOCH 4, each with the published result and ours."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from overweave.analysis.choosing import choose
from overweave.analysis.hierarchical import analyse
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.experiments.base import Claim
from overweave.experiments.stoch.scenarios import BROKERS, CLASSES, EXTENSIONS, LIFETIME_S, PUBLISHED, RATE_HZ, WIDTHS
from overweave.experiments.stoch.validation import SCENARIO, share
from overweave.overlay.fixed_shapes import level_limited

_X = "workload_subscriptions"
_LINKS = (BROKERS - 1) * CLASSES
#: The share of intervals that have to contain the analysis, if it is right: 95 % but for chance.
INSIDE_MIN = 0.93
SECONDS_MAX = 60.0


def of_figures(topologies: pd.DataFrame) -> list[Claim]:
    """Figures 3 to 6."""
    lines = {f"T{width}": topologies[topologies["overlay_width"] == width].sort_values(_X) for width in WIDTHS}
    better = Claim(
        "identity-based routing outperforms simple routing",
        True,
        float((topologies["control_rate"] / topologies["control_rate_simple"]).max()),
        bool((topologies["control_rate"] < topologies["control_rate_simple"]).all()),
    )
    return [*_entries_and_notifications(lines), *_control_rates(lines), *_saved_rates(lines), better]


def _entries_and_notifications(lines: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """Figures 3 and 4."""
    limits = {name: round(float(_totals(width, 1e9).routing_entries)) for name, width in zip(lines, WIDTHS, strict=True)}
    slopes = [np.diff(rows["routing_entries"]) / np.diff(rows[_X]) for rows in lines.values()]
    rising = [np.diff(rows["notification_rate"]) for rows in lines.values()]
    return [
        Claim("routing entries converge to links x classes (figure 3)", _LINKS, limits, set(limits.values()) == {_LINKS}),
        Claim(
            "routing entries grow strictly, ever more slowly (figure 3)",
            True,
            {"smallest slope": min(float(each.min()) for each in slopes)},
            all((each > 0).all() and (np.diff(each) < 1e-9).all() for each in slopes),
        ),
        Claim(
            "the notification rate grows until it converges to 126,000 (figure 4)",
            126_000,
            round(float(_totals(8, 1e9).notification_rate)),
            all((each >= -1e-9).all() for each in rising) and round(float(_totals(8, 1e9).notification_rate)) == 126_000,
        ),
    ]


def _control_rates(lines: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """Figure 5."""
    maxima = {name: _maxima(rows["control_rate"].to_numpy()) for name, rows in lines.items()}
    highest = {name: float(rows[_X].iloc[int(rows["control_rate"].argmax())]) for name, rows in lines.items()}
    return [
        Claim(
            "the control rate has two local maxima for T2 and T4 and one for the others (figure 5)",
            {name: 2 if name in ("T2", "T4") else 1 for name in lines},
            maxima,
            maxima == {name: 2 if name in ("T2", "T4") else 1 for name in lines},
        ),
        Claim(
            "the control rate of T1 is highest at a much smaller number of subscriptions (figure 5)",
            "T1 first",
            highest,
            all(highest["T1"] * 10 < value for name, value in highest.items() if name != "T1"),
        ),
        Claim(
            "the control rate converges to 0 (figure 5)",
            0,
            max(float(_totals(width, 1e9).control_rate) for width in WIDTHS),
            all(float(_totals(width, 1e9).control_rate) < 1e-6 for width in WIDTHS),
        ),
    ]


def _saved_rates(lines: Mapping[str, pd.DataFrame]) -> list[Claim]:
    """Figure 6."""
    none = {name: float(_totals(width, 0).saved_rate) for name, width in zip(lines, WIDTHS, strict=True)}
    falling = [np.diff(rows["saved_rate"]) for rows in lines.values()]
    return [
        Claim(
            "without subscriptions 126,000 messages per second are saved (figure 6; equation 7 sends all of them to the root)",
            126_000,
            {name: round(value) for name, value in none.items()},
            all(round(value) == 126_000 for value in none.values()),
        ),
        Claim(
            "the saved rate falls continuously and converges to 0 (figure 6)",
            0,
            max(float(_totals(width, 1e9).saved_rate) for width in WIDTHS),
            all((each <= 1e-9).all() for each in falling) and abs(float(_totals(8, 1e9).saved_rate)) < 1e-6,
        ),
    ]


def of_crossings() -> list[Claim]:
    """Figure 7: where flooding is cheaper, at 32 publications per second on T8."""
    tree = Tree.of_overlay(level_limited(8))
    found = choose(tree, Workload.uniform(BROKERS, CLASSES, 1000, LIFETIME_S, 32.0), ("flooding", *PUBLISHED[:2])).break_even
    text = "at 32 publications per second on T8 flooding is cheaper than {} routing from so many subscriptions on (figure 7)"
    claims = []
    for protocol, title, published in (("identity", "identity-based", 100_000), ("hierarchical-simple", "simple", 10_000)):
        (ours,) = found[protocol]
        # The text gives round numbers.
        claims.append(Claim(text.format(title), published, round(ours), abs(ours / published - 1) < 0.1))
    return claims


def of_sweep(scenarios: int, seconds: float | None) -> list[Claim]:
    """The number of scenarios and the time of the sweep."""
    ours = {"scenarios": scenarios, "seconds": None if seconds is None else round(seconds, 1)}
    holds = scenarios >= 1400 and (seconds is None or seconds < SECONDS_MAX)
    return [Claim("over 1,400 scenarios are analysed, in less than a minute", {"scenarios": 1400, "seconds": 60}, ours, holds)]


def of_validation(table: pd.DataFrame) -> list[Claim]:
    """Analysis against simulation."""
    claims = []
    for title, protocols in (("analysis", PUBLISHED), ("extensions of the analysis", EXTENSIONS)):
        part = table[table["routing_protocol"].isin(protocols)]
        ours = {
            "scenarios": len(part.drop_duplicates(list(SCENARIO))),
            "comparisons": len(part),
            "share inside": round(share(part["inside"]), 4),
            "mean relative difference": round(float(part["relative_difference"].mean()), 4),
            "share inside, were it 10 % wrong": round(share(part["inside_wrong"]), 4),
        }
        claims.append(_inside(f"{title} and simulation agree: inside the 95 % interval, unequal rates", "identical", ours, part))
    published = table[table["routing_protocol"].isin(PUBLISHED)]
    for lifetimes, part in published.groupby("workload_lifetimes", sort=False):
        ours = {"share inside": round(share(part["inside"]), 4), "comparisons": len(part)}
        claims.append(_inside(f"lifetimes may have any distribution: {lifetimes}", "arbitrary distributions", ours, part))
    return claims


def of_paper_scale(table: pd.DataFrame) -> list[Claim]:
    """The setting of the paper, simulated."""
    ours = {"comparisons": len(table), "share inside": round(share(table["inside"]), 4)}
    return [_inside("analysis and simulation agree on 127 brokers and 1,000 classes", "identical", ours, table)]


def _inside(text: str, published: Any, ours: dict[str, Any], part: pd.DataFrame) -> Claim:
    return Claim(text, published, ours, share(part["inside"]) >= INSIDE_MIN)


def _totals(width: int, subscriptions: float) -> Any:
    workload = Workload.uniform(BROKERS, CLASSES, subscriptions, LIFETIME_S, RATE_HZ)
    return analyse(Tree.of_overlay(level_limited(width)), workload).totals


def _maxima(values: Any) -> int:
    """The number of local maxima."""
    return int(np.sum((values[1:-1] > values[:-2]) & (values[1:-1] >= values[2:])))
