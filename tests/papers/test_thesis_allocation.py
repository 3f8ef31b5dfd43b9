"""THESIS 7.3 in small: the evaluation runs, its tables are right, and its claims say what the tables say."""

import json

import msgspec
import numpy as np
import pandas as pd
import pytest

from overweave.bench import planning as bench_planning
from overweave.bench.planning_tables import plain_profiles, write_profile
from overweave.experiments.base import Setting
from overweave.experiments.thesis_allocation import claims, figures, measure, unseen
from overweave.experiments.thesis_allocation.run import run_at
from overweave.experiments.thesis_allocation.scenarios import Scenario, make_problem
from overweave.pipeline.plan_brokers import Network, read_brokers
from overweave.pipeline.planning import read_problem
from overweave.pipeline.workloads.walks import quotes
from overweave.planning.algorithms import ALGORITHMS
from overweave.planning.make import make_plan

SMALL = measure.Sizes(
    base=Scenario(publishers=12, brokers=24, bits=256),
    workloads=(20, 60),
    large={48: 16},
    large_subscriptions=60,
    lengths=(64, 256),
    quotes=256,
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("thesis")


@pytest.fixture(scope="module")
def found(folder):
    def no_spark():
        raise AssertionError("planning needs no Spark")

    return run_at(Setting(folder, False, no_spark, lambda text: None), SMALL)


@pytest.fixture(scope="module")
def tables(folder, found):
    return {name: pd.read_csv(folder / f"{name}.csv") for name in ("bandwidths", "comparison", "lengths", "unseen")}


def claim(found, text):
    (one,) = [each for each in found if text in each.claim]
    return one


def test_every_size_has_its_own_bandwidth_which_saturates_manual(found, tables):
    assert tables["bandwidths"]["brokers"].tolist() == [24, 48]
    assert tables["bandwidths"]["manual_utilisation_max"].tolist() == pytest.approx([0.98, 0.98], abs=0.01)
    told = claim(found, "saturates MANUAL")
    assert told.holds
    assert all(each["bandwidth_bytes_per_s"] > 0 for each in told.ours.values())


def test_manual_runs_at_098_under_the_largest_workload_only(tables):
    rows = tables["comparison"]
    manual = rows[(rows["algorithm"] == "manual") & (rows["scenario"] == "homogeneous") & (rows["headroom"] == 0)]
    by = dict(zip(zip(manual["pool"], manual["subscriptions"], strict=True), manual["output_utilisation_max"], strict=True))
    assert by[24, 720] == pytest.approx(0.98, abs=0.01)
    assert by[48, 960] == pytest.approx(0.98, abs=0.01)
    assert by[24, 240] < 0.9


def test_all_algorithms_in_both_scenarios(tables):
    rows = tables["comparison"]
    base = rows[(rows["pool"] == 24) & (rows["headroom"] == 0) & (rows["rule"] == "split")]
    for _, part in base.groupby(["scenario", "subscriptions"]):
        assert set(part["algorithm"]) == set(ALGORITHMS)


@pytest.mark.parametrize(
    "text",
    [
        "never more than the next",
        "FBF, BIN PACKING and CRAM overload nobody",
        "clustering without placement leaves the maximum rate",
        "MANUAL and AUTOMATIC allocate all brokers",
        "links per delivery: CRAM-IOU",
        "no broker is above 1 at headroom 0.1",
        "at most 1 less headroom at every broker",
    ],
)
def test_claims_that_hold_at_any_size(found, text):
    assert claim(found, text).holds, claim(found, text).ours


def test_claims_are_plain_json_and_give_a_reason_only_where_they_do_not_hold(found):
    assert all(each.reason is None for each in found if each.holds)
    assert all(isinstance(each.holds, bool) for each in found)
    assert len({each.claim for each in found}) == len(found)
    json.dumps([each.ours for each in found], allow_nan=False)


def test_a_second_run_computes_nothing_again_and_says_the_same(folder, found, monkeypatch):
    monkeypatch.setattr(measure, "make_plan", None)
    monkeypatch.setattr(figures, "figures", lambda *tables: [])
    monkeypatch.setattr(unseen, "figures", lambda *tables: [])
    again = run_at(Setting(folder, False, lambda: None, lambda text: None), SMALL)
    assert again == found


def test_figures(folder, found):
    names = {path.stem for path in (folder / "figures").glob("*.png")}
    for name in ("homogeneous-brokers", "heterogeneous-breakdown-input-hz-max", "homogeneous-closeness-input-hz-mean"):
        assert name in names
    assert {"lengths-seconds", "lengths-input-hz-max", "lengths-brokers"} <= names
    assert {"unseen-next-homogeneous-brokers", "unseen-even-odd-heterogeneous-overloaded"} <= names


@pytest.mark.parametrize("worse", ["brokers", "input_hz_mean"])
def test_a_table_in_which_it_is_not_so_does_not_hold(tables, worse):
    rows = tables["comparison"].copy()
    rows.loc[rows["algorithm"] == "cram-iou", worse] = rows[worse].max() + 1
    told = [*claims.of_brokers(rows), *claims.of_rates(rows)]
    text = "never more than the next" if worse == "brokers" else "lowers the mean message rate"
    assert not claim(told, text).holds


def test_unseen_quotes_are_those_that_were_not_profiled(tables):
    """By hand, from the walk itself: what one broker for all would carry of the other quotes."""
    scenario = Scenario(publishers=2, subscriptions=10, brokers=3, bits=64, bandwidth_bytes_per_s=1e5)
    for kind, first, other in (("even-odd", slice(0, None, 2), slice(1, None, 2)), ("next", slice(64), slice(64, None))):
        problem, truth = (make_problem(scenario, part) for part in unseen.days(kind, 64))
        assert problem.units.ids == truth.units.ids
        for each, part in ((problem, first), (truth, other)):
            draw, wanted = np.random.default_rng(scenario.seed), 0
            for p in range(2):
                low = quotes(scenario.seed, 128, np.full(128, p), np.arange(128)).low
                known = low if kind == "even-odd" else low[:64]
                limits = known[draw.integers(len(known), size=10)]
                wanted += 4 * 64 + sum(int((low[part] < limit).sum()) for limit in limits[4:])
            assert int(each.units.row_deliveries.sum()) == wanted
    rows = tables["unseen"]
    assert set(rows["headroom"]) == {0.0, 0.1, 0.2, 0.3, 0.4}
    usual = rows[(rows["quotes"] == "next") & (rows["algorithm"] == "cram-iou") & (rows["scenario"] == "homogeneous")]
    assert usual.groupby("headroom")["brokers"].sum().is_monotonic_increasing


def test_overloaded_brokers_break_the_promise(tables):
    rows = tables["unseen"].copy()
    rows.loc[rows["headroom"] == 0.1, "overloaded"] = 1
    assert not claim(unseen.claims(rows), "no broker is above 1 at headroom 0.1").holds
    rows["predicted_max"] = 0.95
    assert not claim(unseen.claims(rows), "at most 1 less headroom at every broker").holds


def test_the_mean_rate_has_a_floor(tables):
    """All that is published arrives somewhere, so that no claim can be about less than total rate over brokers."""
    rows = tables["comparison"].dropna(subset=["brokers"])
    assert (rows["input_hz_mean"] * rows["brokers"] >= rows["publishers_hz"] * (1 - 1e-9)).all()


def test_short_vectors_hold_the_last_quotes():
    long, short = (make_problem(Scenario(publishers=3, subscriptions=20, brokers=8, bits=bits, quotes=256)) for bits in (256, 64))
    assert short.units.ids == long.units.ids
    for unit in range(len(long.units)):
        rows = [each.units.rows[each.units.row_start[unit] : each.units.row_start[unit + 1]] for each in (long, short)]
        last = long.vectors.words[rows[0], 3].tolist()
        assert short.vectors.words[rows[1], 0].tolist() == [word for word in last if word]


def test_longest_path_against_all_pairs():
    problem = make_problem(Scenario(publishers=4, subscriptions=20, brokers=20, bits=64))
    for name in ("manual", "automatic"):
        plan = make_plan(problem, name)
        far = {(a, b): 0 if a == b else 1000 for a in plan.brokers for b in plan.brokers}
        for a, b in plan.links:
            far[a, b] = far[b, a] = 1
        for middle in plan.brokers:
            for a, b in far:
                far[a, b] = min(far[a, b], far[a, middle] + far[middle, b])
        assert measure.longest_path(plan) == max(far.values())


def test_the_bench_has_a_baseline_and_both_versions_agree_roughly():
    rows = bench_planning.run(lambda text: None, subscriptions=(400,))
    assert [row.baseline is not None for row in rows] == [False, False, True, False, False, True, True]
    problem = bench_planning._problem(400)
    assert bench_planning.plain_packing(problem) <= make_plan(problem, "bin-packing").totals.brokers
    assert 40 <= bench_planning.plain_clusters(problem) <= 80


def test_what_the_bench_writes_is_what_it_reads(tmp_path):
    problem = bench_planning._problem(400)
    write_profile(problem, tmp_path / "profile")
    network = Network(read_brokers(tmp_path / "profile" / "brokers"))
    read = read_problem(tmp_path / "profile", network, problem.goals)
    # Which of equal brokers is which depends on where clients are today, and only the tables say that.
    loads = [sorted(msgspec.structs.astuple(load) for load in make_plan(each).load.values()) for each in (read, problem)]
    assert loads[0] == loads[1]
    plain = plain_profiles(tmp_path / "profile")
    assert plain.words.tolist() == problem.vectors.words[problem.units.rows].tolist()
