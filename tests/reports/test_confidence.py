"""Means and their margins, against the textbook."""

import itertools
import math
import statistics

import numpy as np
import pandas as pd
import pytest

from overweave.reports.confidence import T_95, mean_and_margin, student_t


@pytest.mark.parametrize("freedom", T_95)
def test_quantiles_leave_five_percent_outside(freedom):
    """The density of Student's t, integrated numerically."""
    x = np.linspace(0, T_95[freedom], 200_001)
    logarithm = math.lgamma((freedom + 1) / 2) - math.lgamma(freedom / 2) - math.log(freedom * math.pi) / 2
    density = np.exp(logarithm - (freedom + 1) / 2 * np.log1p(x**2 / freedom))
    assert 2 * np.trapezoid(density, x) == pytest.approx(0.95, abs=5e-5)


def test_between_two_quantiles_the_wider_interval_is_taken():
    counts = range(2, 500)
    assert all(student_t(one) >= student_t(other) for one, other in itertools.pairwise(counts))
    assert (student_t(25), student_t(26), student_t(10_000)) == (T_95[20], T_95[25], T_95[120])
    assert math.isnan(student_t(1))


def test_groups_keep_their_order_and_missing_values_do_not_count():
    values = {("b", 2): [1.0, 4.0, 2.5], ("a", None): [7.0], ("a", 1): [3, 5]}
    rows = [(name, number, value) for (name, number), some in values.items() for value in some]
    table = pd.DataFrame([*rows, ("a", 1, None), ("c", 1, None)], columns=["name", "number", "y"])
    found = mean_and_margin(table, ["name", "number"], "y")
    assert found["name"].tolist() == ["b", "a", "a"]
    assert found["count"].tolist() == [3, 1, 2]
    for row, some in zip(found.itertuples(), values.values(), strict=True):
        assert row.mean == pytest.approx(statistics.fmean(some))
        if len(some) > 1:
            assert row.margin == pytest.approx(T_95[len(some) - 1] * statistics.stdev(some) / math.sqrt(len(some)))
        else:
            assert math.isnan(row.margin)
