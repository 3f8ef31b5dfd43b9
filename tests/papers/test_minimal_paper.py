"""MINIMAL section 6 in small: the evaluation runs, its tables are right, and its claims say what the tables say."""

import numpy as np
import pandas as pd
import pytest

from overweave.experiments import PAPERS
from overweave.experiments.base import Setting
from overweave.experiments.minimal import claims, figures, measure
from overweave.experiments.minimal.counts import count
from overweave.experiments.minimal.designs import DESIGNS, PAPER, RANKINGS, networks
from overweave.experiments.minimal.network import preorder
from overweave.experiments.minimal.run import run_at
from overweave.experiments.minimal.workload import GENERATORS, make_workload

SMALL = measure.Sizes(
    clients=(240, 360, 480), seeds=(1, 2), lcf_clients=360, lcfs=(0.5, 0.75, 1.0), lcf_designs=RANKINGS, check_clients=60
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("minimal")


def setting(folder):
    def no_spark():
        raise AssertionError("needs no Spark")

    return Setting(folder, False, no_spark, lambda text: None)


@pytest.fixture(scope="module")
def found(folder):
    return run_at(setting(folder), SMALL)


@pytest.fixture(scope="module")
def grown(folder, found):
    return pd.concat(pd.read_csv(folder / f"clients-{g}-{s}.csv") for g in GENERATORS for s in SMALL.seeds)


def test_the_paper_has_a_name():
    assert PAPERS["minimal"] == "overweave.experiments.minimal.run"


def test_every_design_is_measured_at_every_size(grown, folder):
    for (_, _, clients), rows in grown.groupby(["generator", "seed", "clients"]):
        assert set(rows["design"]) == set(DESIGNS if clients == 480 else PAPER)
    factors = pd.concat(pd.read_csv(folder / f"lcf-{g}-{s}.csv") for g in GENERATORS for s in SMALL.seeds)
    assert len(factors) == 2 * 2 * 3 * 3
    assert (factors.groupby(["generator", "design", "lcf"])["brokers"].mean().unstack().diff(axis=1).iloc[:, 1:] < 0).all(None)


def test_designs_with_one_ranking_have_one_allocation(grown):
    counts = grown.pivot_table(index=["generator", "seed", "clients"], columns="design", values="brokers")
    for name, design in DESIGNS.items():
        (same,) = [each for each in PAPER if PAPER[each].ranking == design.ranking and each != "DT-Baldoni"]
        assert (counts[name].dropna() == counts[same][counts[name].notna()]).all(), name


def test_latency_is_links_and_processing_delay(grown):
    assert grown["latency_ticks"].to_numpy() == pytest.approx((100 * grown["hops"] + grown["processing_delay_ticks"]).to_numpy())
    assert (grown["peak_load_max"] >= grown["peak_load_mean"]).all()
    assert grown["pure_forwarding"].between(0, 1).all()


def test_the_simulator_agrees(found, folder):
    (claim,) = [each for each in found if "simulator" in each.claim]
    assert claim.holds
    table = pd.read_csv(folder / "simulator.csv")
    assert (table["counts_differ"] == 0).all()
    assert (table["processing_delay_ticks"] > 0).all()


def test_there_is_a_figure_of_every_figure(found, folder):
    names = {path.stem for path in (folder / "figures").glob("*.svg")}
    for generator in GENERATORS:
        assert {f"{figure}-{generator}" for figure, _, _ in (*figures._GROWING, *figures._FACTORS)} <= names
    assert len(names) == 22


def test_a_second_run_measures_nothing_again(found, folder, monkeypatch):
    for name in ("growing", "compensated", "compared"):
        monkeypatch.setattr(measure, name, lambda *_: pytest.fail("measured again"))
    again = run_at(setting(folder), SMALL)
    assert [(each.claim, each.ours) for each in again] == [(each.claim, each.ours) for each in found]


def test_the_quick_run_is_part_of_the_full_one():
    quick, full = measure.sizes(False), measure.sizes(True)
    assert set(quick.clients) <= set(full.clients)
    assert full.clients == (800, 1600, 2400, 3200, 4000)
    assert full.seeds == (1, 2, 3, 4, 5)
    assert quick.generators == full.generators == GENERATORS
    assert set(quick.lcfs) <= set(full.lcfs)
    assert (min(full.lcfs), max(full.lcfs)) == (0.3, 1.0)


@pytest.mark.parametrize("generator", GENERATORS)
def test_rankings_at_1600_clients(generator):
    """The order of message counts and the numbers of brokers, which need no congestion."""
    workload = make_workload(1_600, generator, 1)
    messages, brokers, forwarding = {}, {}, {}
    for name, network in networks(workload, [*RANKINGS, "Baseline"]):
        counts = count(workload, network)
        messages[name], brokers[name] = counts["hops"].sum(), network.brokers
        forwarding[name] = np.mean(counts["pure_forwards"] / np.maximum(counts["arrivals"], 1))
    assert messages["GIg"] <= 1.01 * messages["GI"]
    assert messages["GI"] < messages["GLI"] < messages["Baseline"]
    some = [brokers[name] for name in RANKINGS]
    assert max(some) <= 1.03 * min(some)
    assert 180 <= min(some) <= max(some) <= 205
    assert max(forwarding[name] for name in RANKINGS) <= 0.2


def test_every_client_has_a_broker_and_every_broker_a_client():
    workload = make_workload(400, "corners", 3)
    for _, network in networks(workload, list(DESIGNS)):
        assert set(np.concatenate([network.publisher, network.subscriber]).tolist()) == set(range(network.brokers))
        assert len(network.publisher) == 100
        assert len(network.subscriber) == 300
        preorder(network.brokers, network.links)


# ---- claims of tables made by hand

LATENCY = {"GLI": 300.0, "GI": 200.0, "GIg": 100.0, "DT-Baldoni": 350.0, "Baseline": 400.0, "Baseline, commonality tree": 380.0}


def by_hand(**changes):
    """A table in which everything holds, but for a change of (design, measure) to a value."""
    rows = []
    for clients in (1_600, 2_400, 4_000):
        for design, latency in LATENCY.items():
            base = design.startswith("Baseline")
            row = {
                "generator": "corners", "seed": 1, "clients": clients, "lcf": 0.75, "design": design,
                "brokers": {1_600: 195, 2_400: 420, 4_000: 1_000}[clients], "messages": latency, "latency_ticks": latency,
                "processing_delay_ticks": latency / 2, "hops": 3.0, "pure_forwarding": 0.3 if base else 0.12,
                "peak_load_mean": 1_200.0 if base else 800.0, "peak_load_max": 1_000 + latency, "overloaded": 0.1,
            }  # fmt: skip
            for (which, measured), value in changes.get("of", {}).items():
                if which == design and clients == 4_000:
                    row[measured] = value
            rows.append(row)
    return pd.DataFrame(rows)


def growing_claims(table):
    parts = (claims.of_brokers, claims.of_messages, claims.of_latency, claims.of_forwarding, claims.of_load)
    return [claim for part in parts for claim in part(table)]


def test_all_claims_of_a_good_table_hold():
    assert [each.claim for each in growing_claims(by_hand()) if not each.holds] == []


@pytest.mark.parametrize(
    ("design", "measured", "value", "broken"),
    [
        ("GLI", "brokers", 1_050, ["within 3%"]),
        ("GIg", "messages", 205.0, ["of GIg over those of GI", "every number of clients"]),
        ("GLI", "messages", 410.0, ["GI < GLI < baseline", "every number of clients"]),
        ("DT-Baldoni", "messages", 150.0, ["messages of DT-Baldoni"]),
        ("GLI", "latency_ticks", 390.0, ["all on a commonality tree"]),
        ("GI", "processing_delay_ticks", 191.0, ["all on a commonality tree"]),
        ("GI", "pure_forwarding", 0.21, ["at most 20 %", "is 10 to 15 %", "within 5 points"]),
        ("Baseline", "pure_forwarding", 0.1, ["forwards more"]),
        ("Baseline", "peak_load_mean", 990.0, ["of the baseline, most clients: above"]),
        ("GI", "peak_load_mean", 1_001.0, ["within the capacity"]),
        ("GI", "peak_load_max", 1_301.0, ["GLI is above GI", "GIg the lowest"]),
        ("GIg", "peak_load_max", 999.0, ["in every overlay"]),
    ],
)  # fmt: skip
def test_a_claim_whose_figures_are_wrong_does_not_hold(design, measured, value, broken):
    failed = [each.claim for each in growing_claims(by_hand(of={(design, measured): value})) if not each.holds]
    assert len(failed) == len(broken)
    assert all(any(part in text for text in failed) for part in broken)


def factor_rows(change=lambda row: row):
    rows = [
        {"generator": "widths", "seed": 1, "clients": 2_400, "lcf": lcf, "design": design, "brokers": round(320 / lcf),
         "messages": 300 - 100 * lcf, "latency_ticks": 100 + abs(lcf - 0.75), "peak_load_mean": 900 * lcf}
        for lcf in (0.5, 0.75, 1.0) for design in RANKINGS
    ]  # fmt: skip
    return pd.DataFrame([change(row) for row in rows])


def test_claims_of_figure_8():
    assert all(each.holds for each in claims.of_factors(factor_rows()))
    for measure_, place in (("brokers", 0), ("messages", 1), ("peak_load_mean", 2)):
        table = factor_rows(lambda row, m=measure_: {**row, m: row[m] + 400 * (row["lcf"] == 0.75) * (row["design"] == "GI")})
        assert [each.holds for each in claims.of_factors(table)] == [i != place for i in range(4)]
