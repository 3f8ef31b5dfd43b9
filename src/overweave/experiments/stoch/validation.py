"""Analysis against simulation: for every scenario the mean of independent runs, its 95 % interval, and what the model expects."""

from typing import Any

import numpy as np
import pandas as pd

from overweave.reports.confidence import mean_and_margin

MEASURES = ("routing_entries", "notification_rate", "control_rate")
#: What makes a scenario, besides the runs that repeat it.
SCENARIO = ("routing_protocol", "workload_lifetimes", "overlay_brokers", "workload_subscriptions", "workload_draw")
#: The error of a wrong analysis that the intervals should not contain: a test of their power.
WRONG = 1.10


def compared(runs: pd.DataFrame, scenario: tuple[str, ...] = SCENARIO) -> pd.DataFrame:
    """A row per scenario and measure: ``mean``, ``margin``, ``expected``, and whether the interval has it, ``inside``.

    Where a protocol has nothing of a kind (flooding has no entries) there is nothing to compare, and no row.
    """
    parts = []
    for measure in MEASURES:
        part = mean_and_margin(runs, list(scenario), measure)
        expected = runs.groupby(list(scenario), sort=False)[f"{measure}_expected"].first().reset_index()
        part = part.merge(expected.rename(columns={f"{measure}_expected": "expected"}), on=list(scenario))
        parts.append(part.assign(measure=measure))
    table = pd.concat(parts, ignore_index=True)
    nothing = (table["expected"] == 0) & (table["mean"] == 0)
    table = table[~nothing].reset_index(drop=True)
    away = (table["mean"] - table["expected"]).abs()
    return table.assign(
        relative_difference=(table["mean"] - table["expected"]) / table["expected"],
        inside=away <= table["margin"],
        inside_wrong=(table["mean"] - WRONG * table["expected"]).abs() <= table["margin"],
    )


def summarised(table: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Per group: how many comparisons, the mean relative difference, the mean margin, and the share inside the interval."""
    rows: list[dict[str, Any]] = []
    for key, part in table.groupby(by, sort=False):
        rows.append(
            {
                **dict(zip(by, key, strict=True)),
                "comparisons": len(part),
                "relative_difference": float(part["relative_difference"].mean()),
                "relative_difference_absolute": float(part["relative_difference"].abs().mean()),
                "relative_margin": float((part["margin"] / part["expected"]).mean()),
                "share_inside": float(part["inside"].mean()),
                "share_inside_if_10_percent_wrong": float(part["inside_wrong"].mean()),
            }
        )
    return pd.DataFrame(rows)


def share(values: Any) -> float:
    """How many of them are true."""
    return float(np.mean(values))
