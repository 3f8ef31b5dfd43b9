"""Comparing runs with the model: intervals that contain what they should, as often as they should."""

import numpy as np
import pandas as pd
import pytest

from overweave.errors import InvalidInput
from overweave.experiments.figure_files import write_figures
from overweave.experiments.stoch.claims import of_figures, of_sweep, of_validation
from overweave.experiments.stoch.figures import figures
from overweave.experiments.stoch.scenarios import RATES_HZ, WIDTHS
from overweave.experiments.stoch.validation import MEASURES, SCENARIO, compared, summarised
from overweave.pipeline.sweeps.analysis import ANALYSIS
from overweave.pipeline.sweeps.base import flattened
from overweave.pipeline.sweeps.churn import CHURN


def runs(scenarios, repetitions, bias=1.0, lifetimes="exponential"):
    """Runs that scatter normally about what is expected, times a bias."""
    dice = np.random.default_rng(1)
    rows = []
    for draw in range(scenarios):
        expected = {f"{name}_expected": 100.0 + draw for name in MEASURES}
        for _ in range(repetitions):
            values = {name: dice.normal(bias * (100 + draw), 10) for name in MEASURES}
            rows.append(dict(zip(SCENARIO, ("identity", lifetimes, 4, 10.0, draw), strict=True)) | expected | values)
    return pd.DataFrame(rows)


def test_intervals_contain_the_truth_in_95_of_100_cases():
    table = compared(runs(700, 8))
    assert len(table) == 2100
    assert table["inside"].mean() == pytest.approx(0.95, abs=0.015)
    assert table["relative_difference"].abs().max() < 0.2


def test_a_biased_simulation_is_found_out():
    assert all(claim.holds for claim in of_validation(compared(runs(200, 8))) if "extensions" not in claim.claim)
    assert not any(claim.holds for claim in of_validation(compared(runs(200, 8, bias=1.07))))


def test_what_a_protocol_has_not_is_not_compared():
    table = runs(3, 4)
    table["control_rate"] = table["control_rate_expected"] = 0.0
    assert set(compared(table)["measure"]) == {"routing_entries", "notification_rate"}


def test_summaries_count_and_average():
    table = compared(pd.concat([runs(5, 4), runs(7, 4, lifetimes="pareto")]))
    found = summarised(table, ["workload_lifetimes", "measure"]).set_index(["workload_lifetimes", "measure"])
    assert found["comparisons"].to_dict() == {
        (of, name): count for of, count in (("exponential", 5), ("pareto", 7)) for name in MEASURES
    }
    one = table[(table["workload_lifetimes"] == "pareto") & (table["measure"] == "control_rate")]
    assert found.loc[("pareto", "control_rate"), "share_inside"] == one["inside"].mean()
    assert found.loc[("pareto", "control_rate"), "relative_difference"] == pytest.approx(
        (one["mean"] / one["expected"] - 1).mean()
    )


def document(**changes):
    workload = {"subscriptions": 6.0, "classes": 2, "rate_hz": 5.0, **changes.pop("workload", {})}
    overlay = {"shape": "chain", "brokers": 3}
    return {"seed": 1, "duration_s": 2.0, "overlay": overlay, "routing": {"protocol": "identity"}, "workload": workload} | changes


def test_a_run_of_the_sweep_is_repeatable_and_its_scenario_does_not_depend_on_the_seed():
    one, again, other = (CHURN.evaluate(CHURN.read(document(seed=seed))) for seed in (1, 1, 2))
    assert one == again != other
    assert one.control_rate_expected == other.control_rate_expected
    drawn = CHURN.evaluate(CHURN.read(document(workload={"draw": 2})))
    assert drawn.control_rate_expected != one.control_rate_expected


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"routing": {"protocol": "filter"}}, "routing.protocol: unknown 'filter', the nearest known one is"),
        ({"routing": {"protcol": "identity"}}, "routing.protcol: unknown key, the nearest known one is 'protocol'"),
        ({"workload": {"lifetimes": "parto"}}, "workload.lifetimes: unknown 'parto', the nearest known one is 'pareto'"),
        ({"workload": {"subscriptions": -1.0}}, "workload.subscriptions: expected a number from 0 on, got -1"),
        ({"workload": {"lifetime_s": 0.0}}, "workload.lifetime_s: expected a time above 0, got 0"),
        ({"duration_s": 0.0}, "duration_s: expected a time above 0, got 0"),
        ({"overlay": {"shape": "random-graph", "brokers": 6, "degree": 3}}, "overlay.shape: expected a tree, got 'random-graph'"),
        ({"overlay": {"brokers": 6}}, "overlay.shape: expected one of"),
    ],
)
def test_a_run_that_cannot_be_is_refused(changes, expected):
    with pytest.raises(InvalidInput) as error:
        CHURN.read(document(**changes))
    assert str(error.value).startswith(expected)


@pytest.fixture(scope="module")
def analysed():
    """A coarse grid of the paper's setting."""
    rows = []
    for width in WIDTHS:
        for subscriptions in np.geomspace(10, 700_000, 40):
            for rate_hz in RATES_HZ if width == 8 else (1000.0,):
                case = {
                    "overlay": {"shape": "level-limited", "width": width},
                    "workload": {"rate_hz": rate_hz, "subscriptions": float(subscriptions)},
                }
                measures = ANALYSIS.evaluate(ANALYSIS.read(case))
                rows.append(flattened(case) | {name: getattr(measures, name) for name in measures.__struct_fields__})
    return pd.DataFrame(rows)


def test_claims_of_the_figures_hold_but_for_the_one_that_contradicts_equation_7(analysed):
    found = of_figures(analysed[analysed["workload_rate_hz"] == 1000.0])
    assert [claim.claim for claim in found if not claim.holds] == [
        "without subscriptions 126,000 messages per second are saved (figure 6; equation 7 sends all of them to the root)"
    ]


def test_too_few_scenarios_or_too_much_time_do_not_hold():
    assert [of_sweep(*case)[0].holds for case in ((1407, 5.0), (1399, 5.0), (1407, 61.0))] == [True, False, False]


def test_figures_are_drawn(analysed, tmp_path):
    paths = write_figures(
        tmp_path,
        figures(analysed[analysed["workload_rate_hz"] == 1000.0], analysed[analysed["overlay_width"] == 8], compared(runs(5, 4))),
    )
    assert [path.name.split("-")[0] + path.name.split("-")[1] for path in paths] == [
        "figure3",
        "figure4",
        "figure5",
        "figure6",
        "figure7",
        "analysisagainst",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") and path.with_suffix(".svg").stat().st_size > 5000 for path in paths)
