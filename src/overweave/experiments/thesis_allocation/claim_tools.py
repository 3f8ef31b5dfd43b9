"""Helpers of the claims of THESIS 7.3: kinds of claims, and rows of the table of plans."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from overweave.experiments.base import Claim

SCENARIOS = ("homogeneous", "heterogeneous")


METRICS = ("cram-intersect", "cram-ios", "cram-iou")


AWARE = ("fbf", "bin-packing", "cram-iou")


FIRM = ("bin-packing", "cram-iou")


#: The thesis's workload is Yahoo's closing prices of 114 bytes, ours are random walks of 220.
BATCHES = "our model sends all copies of a publication as one batch, so that gathering subscribers at a broker costs delay"


def reasoned_claim(text: str, published: Any, ours: Any, holds: bool, reason: str) -> Claim:
    """A claim with a reason if it does not hold."""
    return Claim(text, published, ours, bool(holds), None if holds else reason)


def bar_claim(text: str, bar: float, ours: float | Mapping[str, float]) -> Claim:
    """A claim of our own: at most ``bar``."""
    values = list(ours.values()) if isinstance(ours, Mapping) else [ours]
    return Claim(f"CRAM-IOU against MANUAL: {text} (our bar)", bar, ours, bool(values) and max(values) <= bar)


def average_claim(text: str, published: tuple[float, float], found: dict[str, dict[str, float]], reason: str) -> Claim:
    """Means over workloads, about the published ones."""
    means = {name: round(float(np.mean(list(by.values()))), 3) if by else None for name, by in found.items()}
    holds = all(mean is not None and is_about(mean, each) for mean, each in zip(means.values(), published, strict=True))
    return reasoned_claim(text, dict(zip(SCENARIOS, published, strict=True)), means, holds, reason)


def is_about(ours: float, published: float) -> bool:
    """Whether two figures agree within a factor of two."""
    return bool(0.5 <= ours / published <= 2)


def all_within(found: Mapping[str, float], share: float) -> bool:
    """Whether all values are within ``share`` of 0."""
    return all(abs(value) <= share for value in found.values())


def holds_always(found: Mapping[str, Mapping[str, float]], test: Callable[[float], bool]) -> bool:
    """Whether all values satisfy the test."""
    return all(test(value) for by in found.values() for value in by.values())


def holds_mostly(found: Mapping[str, Mapping[str, float]], test: Callable[[float], bool]) -> bool:
    """Whether most values satisfy the test."""
    values = [test(value) for by in found.values() for value in by.values()]
    return sum(values) * 2 > len(values)


def base_rows(table: pd.DataFrame, scenario: str) -> pd.DataFrame:
    """The smallest network, in which all workloads were run."""
    return table[(table["pool"] == table["pool"].min()) & (table["scenario"] == scenario)]


def size_key(pool: int, subscriptions: int, smallest: int) -> str:
    """The name of a size."""
    return f"{subscriptions:,}" if pool == smallest else f"{subscriptions:,} at {pool:,} brokers"


def rows_of(table: pd.DataFrame, algorithm: str, scenario: str, headroom: float = 0.0, rule: str = "split") -> pd.DataFrame:
    """The rows of an algorithm by workload, smallest first."""
    where = (table["algorithm"] == algorithm) & (table["scenario"] == scenario) & (table["rule"] == rule)
    rows = table[where & np.isclose(table["headroom"], headroom) & table["brokers"].notna()].sort_values(
        ["pool", "subscriptions"]
    )
    smallest = table["pool"].min()
    rows.index = pd.Index(
        [size_key(*each, smallest) for each in zip(rows["pool"], rows["subscriptions"], strict=True)], dtype=object
    )
    return rows


def by_algorithm(table: pd.DataFrame, measure: str, scenario: str) -> pd.DataFrame:
    """A measure by workload and algorithm."""
    names = dict.fromkeys(table["algorithm"])
    rows = rows_of(table, "cram-iou", scenario).index
    return pd.DataFrame({name: rows_of(table, name, scenario)[measure] for name in names}).reindex(rows)


def relative_changes(
    table: pd.DataFrame, measure: str, one: str, other: str, scenario: str, headroom: float = 0.0, rule: str = "split"
) -> dict[str, float]:
    """By workload, how much more one algorithm has than another, as a share."""
    values, base = (rows_of(table, name, scenario, headroom, rule)[measure] for name in (one, other))
    found = (values / base - 1).replace([np.inf, -np.inf], np.nan).dropna()
    return {str(key): round(float(found[key]), 3) for key in base.index if key in found.index}


def from_size(table: pd.DataFrame, found: Mapping[str, float], per_publisher: int) -> dict[str, float]:
    """The values from a size on."""
    rows = rows_of(table, "cram-iou", "heterogeneous")
    return {key: value for key, value in found.items() if rows.loc[key, "per_publisher"] >= per_publisher}


def rounded(values: "pd.Series[Any]", digits: int = 3) -> dict[str, float]:
    """Values by size, rounded."""
    return {
        f"{key:,}" if isinstance(key, int) else str(key): round(float(value), digits) for key, value in values.dropna().items()
    }


def utilisations(table: pd.DataFrame, headroom: float) -> dict[str, dict[str, dict[str, float]]]:
    """Utilisation by scenario and algorithm."""
    return {
        name: {each: rounded(rows_of(table, each, name, headroom)["output_utilisation_mean"]) for each in FIRM}
        for name in SCENARIOS
    }


def spread(table: pd.DataFrame, measure: str, scenario: str) -> float:
    """The ratio of the largest to the smallest value."""
    wide = by_algorithm(table, measure, scenario)[list(METRICS)]
    return float((wide.max(axis=1) / wide.min(axis=1) - 1).max())


def growth_exponent(table: pd.DataFrame, algorithm: str, scenario: str) -> float:
    """The exponent of the time over the size."""
    rows = rows_of(table, algorithm, scenario)
    return round(float(np.polyfit(np.log(rows["subscriptions"].astype(float)), np.log(rows["seconds"]), 1)[0]), 2)
