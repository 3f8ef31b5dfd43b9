"""``overweave analyze``: names that others rely on, files, and what is wrong with them."""

import json
import subprocess
from pathlib import Path

import pytest

from overweave.cli.analyze import EXAMPLE
from overweave.overlay.files import to_json
from overweave.overlay.graph import Overlay

ROOT = Path(__file__).parents[2]


def test_the_published_limit(run):
    status, out, err = run("analyze", "--topology", "T8", "--subscriptions", "1000000000", "--json")
    answer = json.loads(out)
    assert (status, err) == (0, "")
    assert answer["routing_entries"] == 126_000
    assert answer["notification_rate"] == pytest.approx(126_000)
    assert (answer["control_rate"], answer["flooding_rate"]) == (0, pytest.approx(126_000))
    assert answer["saved_rate"] == 0
    assert {"control_rate_simple", "brokers", "subscriptions"} <= set(answer)


def test_choose_says_where_it_flips(run):
    answer = json.loads(run("analyze", "--rate", "32", "--choose", "--json").out)["choose"]
    assert answer["cheapest"] == "identity"
    assert [(flip["then"], round(flip["subscriptions"], -3)) for flip in answer["flips"]][-1] == ("flooding", 101_000)
    assert round(answer["break_even"]["hierarchical-simple"][0], -2) == 9400


def test_every_broker_on_request(run):
    answer = json.loads(run("analyze", "--topology", ROOT / "examples/tree.csv", "--rates", ROOT / "examples/rates.csv",
                            "--classes", "3", "--per-broker", "--routing", "identity-peer", "--json").out)  # fmt: skip
    rows = answer["per_broker"]
    assert [row["broker"] for row in rows] == ["B1", "B2", "B3", "B4", "B5"]
    for name in ("routing_entries", "control_rate", "saved_rate"):
        assert sum(row[name] for row in rows) == pytest.approx(answer[name])
    assert answer["subscriptions"] == pytest.approx(4 * 3 * 6 - 6 + 50)
    assert answer["routing"]["per_broker"][1]["input_hz"] > 0
    assert answer["routing"]["delivery_s"] > 0.001


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_tables_of_other_kinds_say_the_same(run, tmp_path, kind):
    import pandas as pd

    answers = []
    for suffix in ("csv", kind):
        options = []
        for option, name in (("--topology", "tree"), ("--rates", "rates")):
            table, path = pd.read_csv(ROOT / f"examples/{name}.csv"), tmp_path / f"{name}.{suffix}"
            match suffix:
                case "csv":
                    table.to_csv(path, index=False)
                case "jsonl":
                    table.to_json(path, orient="records", lines=True)
                case "parquet":
                    table.to_parquet(path)
            options += [option, path]
        answer = json.loads(run("analyze", *options, "--classes", "2", "--json").out)
        answers.append({name: value for name, value in answer.items() if name != "topology"})
    assert answers[0] == answers[1]


def test_text_for_people(run):
    out = run("analyze", "--choose", "--routing", "covering", "--per-broker").out
    assert "routing entries" in out
    assert "identity meets flooding at" in out
    assert out.count("B127\t") == 2


def test_covering_has_fewer_entries_where_classes_include_each_other(run, tmp_path):
    (tmp_path / "within.csv").write_text("class,within\nF2,F1\nF3,F2\n")
    tree = ("--topology", ROOT / "examples/tree.csv")
    options = (*tree, "--classes", "3", "--subscriptions", "300", "--within", tmp_path / "within.csv", "--choose", "--json")
    covering, identity = (
        json.loads(run("analyze", *options, "--routing", name).out)["routing"]["routing_entries"]
        for name in ("covering", "identity")
    )
    assert covering < identity


def test_an_overlay_brings_its_costs(run, tmp_path):
    overlay = json.loads(to_json(Overlay(["B1", "B2"], [("B1", "B2")])))
    times = []
    for delay_s in (0.1, 0.4):
        overlay["links"][0]["delay_s"] = delay_s
        (tmp_path / "two.json").write_text(json.dumps(overlay))
        out = run("analyze", "--topology", tmp_path / "two.json", "--rate", "1", "--routing", "identity", "--json").out
        times.append(json.loads(out)["routing"]["delivery_s"])
    # Half of what is published is wanted at the other broker.
    assert times[1] - times[0] == pytest.approx(0.15, rel=1e-3)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "t.csv",
            "broker,parent\nB1,\nB2,B3\nB3,B2\n",
            "t.csv: broker 'B2': parent: expected a way up to the root, found the cycle",
        ),
        (
            "t.csv",
            "broker,parent\nB1,\nB2,\n",
            "t.csv: broker 'B2': parent: expected a broker, as 'B1' is the root already, found",
        ),
        ("t.csv", "broker,parent\nB1,\nB2,B7\n", "t.csv: broker 'B2': parent: expected one of the brokers, found 'B7'"),
        ("t.csv", "broker,parent\nB1,\nB1,\n", "t.csv: row 2: broker: expected every broker once, found 'B1' again"),
        ("t.csv", "broker,perant\nB1,\n", "t.csv: expected a column 'parent', found broker, perant"),
        ("t.json", "{}", "t.json: JSON: $: "),
        ("t.txt", "", "topology: expected T1, T2, … or a file (.json, .graphml, .csv, .jsonl, .parquet), found "),
    ],
)
def test_a_topology_that_is_no_tree_is_status_2(run, tmp_path, name, text, expected):
    (tmp_path / name).write_text(text)
    status, out, err = run("analyze", "--topology", tmp_path / name)
    assert (status, out) == (2, "")
    assert expected in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("broker,class,arrival_hz\nB1,F1,-1\n", "row 1: arrival_hz: expected a finite number from 0 on, found -1"),
        ("broker,class,arrival_hz\n*,*,1\nB1,F1,nan\n", "row 2: arrival_hz: expected a finite number from 0 on, found nan"),
        ("broker,class,lifetime_s\nB1,F1,0\n", "row 1: lifetime_s: expected a finite number above 0, found 0"),
        ("broker,class,publication_hz\nB1,F4,1\n", "row 1: class: unknown 'F4', the nearest known one is 'F3'"),
        ("broker,class,publication_hz\nB999,F1,1\n", "row 1: broker: unknown 'B999', the nearest known one is 'B"),
        ("broker,class,arival_hz\nB1,F1,1\n", "column 'arival_hz': unknown, the nearest known one is 'arrival_hz'"),
        ("broker,class,arrival_hz\nB1,F1,many\n", "arrival_hz: expected numbers, found string"),
        ("broker,arrival_hz\nB1,1\n", "expected a column 'class', found broker, arrival_hz"),
        ("", "expected a table, found one that cannot be read: "),
    ],
)
def test_rates_that_cannot_be_are_status_2(run, tmp_path, text, expected):
    (tmp_path / "rates.csv").write_text(text)
    status, out, err = run("analyze", "--topology", "T2", "--classes", "3", "--rates", tmp_path / "rates.csv")
    assert (status, out) == (2, "")
    assert f"rates.csv: {expected}" in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--subscriptions", "-1"], "subscriptions: expected a finite number from 0 on, found -1"),
        (["--rate", "-1"], "rate: expected a finite number from 0 on, found -1"),
        (["--lifetime", "0"], "lifetime: expected a finite number above 0, found 0"),
        (["--topology", "T0"], "topology: expected T1, T2, … or a file"),
        (["--routing", "identiy"], "routing: unknown 'identiy', the nearest known one is 'identity'"),
        (["--rates", "gone.csv"], "gone.csv: expected a readable file, found no such file"),
        (["--publication-bytes", "-1", "--routing", "simple"], "publication_bytes: expected a finite number from 0 on, found -1"),
    ],
)
def test_wrong_options_are_status_2(run, options, expected):
    status, out, err = run("analyze", *options)
    assert (status, out) == (2, "")
    assert err.startswith(f"overweave: {expected}")
    assert err.count("\n") == 1


def test_classes_that_include_each_other_in_a_circle_are_status_2(run, tmp_path):
    (tmp_path / "within.csv").write_text("class,within\nF1,F2\nF2,F1\n")
    status, _, err = run("analyze", "--classes", "2", "--within", tmp_path / "within.csv")
    assert status == 2
    assert "within.csv: within: expected that no class includes itself, found the cycle 'F" in err
    (tmp_path / "within.csv").write_text("class,within\nF1,F3\n")
    assert "row 1: within: unknown 'F3'" in run("analyze", "--classes", "2", "--within", tmp_path / "within.csv").err


def test_the_example_works(tmp_path):
    import os
    import sys

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(["sh", "-ec", EXAMPLE], cwd=tmp_path, env=os.environ | {"PATH": path}, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
