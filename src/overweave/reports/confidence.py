"""Means over repetitions with 95 % confidence intervals, by Student's t: repetitions are few."""

import math

import pandas as pd

#: Two-sided 95 % quantiles of Student's t by degrees of freedom; between two, the wider interval of the lower is taken.
T_95 = {
    1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262, 10: 2.228,
    11: 2.201, 12: 2.179, 13: 2.160, 14: 2.145, 15: 2.131, 16: 2.120, 17: 2.110, 18: 2.101, 19: 2.093, 20: 2.086,
    25: 2.060, 30: 2.042, 40: 2.021, 60: 2.000, 120: 1.980,
}  # fmt: skip


def mean_and_margin(table: pd.DataFrame, by: list[str], measure: str) -> pd.DataFrame:
    """Per group, in the order of the table: ``count`` of values, their ``mean`` and the ``margin`` on either side of it.

    One value has no margin (NaN); a value that is missing does not count.

    >>> table = pd.DataFrame({"x": [1, 1, 2], "y": [1.0, 3.0, 5.0]})
    >>> mean_and_margin(table, ["x"], "y").round(2).to_dict("records")
    [{'x': 1, 'count': 2, 'mean': 2.0, 'margin': 12.71}, {'x': 2, 'count': 1, 'mean': 5.0, 'margin': nan}]
    """
    values = table.assign(**{measure: table[measure].astype("float64")}).dropna(subset=[measure])
    grouped = values.groupby(by, sort=False, dropna=False)[measure].agg(["count", "mean", "std"]).reset_index()
    grouped["margin"] = grouped["std"] / grouped["count"] ** 0.5 * grouped["count"].map(student_t)
    return grouped.drop(columns="std")


def student_t(count: int) -> float:
    """What the standard error of ``count`` values is multiplied by."""
    return T_95[max(freedom for freedom in T_95 if freedom < count)] if count > 1 else math.nan
