"""``overweave workload``: what it writes and says, and what it refuses before Spark starts."""

import json

import pyarrow.parquet as pq
import pytest

from overweave.pipeline import session
from overweave.pipeline.schemas import TABLES

SMALL = ("--publishers", 2, "--subscriptions", 3, "--publications", 4, "--brokers", 1)


def test_tables_are_written_and_counted(run, tmp_path, small_session):
    status, out, _ = run("workload", "stock", "--out", tmp_path / "w", *SMALL, "--seed", 7, "--json")
    assert status == 0
    answer = json.loads(out)
    rows = {"brokers": 1, "publishers": 2, "subscriptions": 3, "publications": 4}
    assert (answer["kind"], answer["seed"], answer["rows"], answer["out"]) == ("stock", 7, rows, str(tmp_path / "w"))
    assert answer["options"]["publications"] == 4
    for name, count in rows.items():
        table = pq.read_table(tmp_path / "w" / name)
        assert (table.num_rows, table.column_names) == (count, TABLES[name].fieldNames())
    first = pq.read_table(tmp_path / "w" / "publications").to_pylist()
    status, out, _ = run("workload", "stock", "--out", tmp_path / "w", *SMALL, "--seed", 7)
    assert (status, out.splitlines()[-2].split()) == (0, ["4", "publications"])
    assert pq.read_table(tmp_path / "w" / "publications").to_pylist() == first


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["bonds"], "KIND: expected one of stock, classes, boxes, mesh, quotes, found 'bonds'"),
        (["stock", "--publishers", 0], "--publishers: expected int >= 1, found 0"),
        (["stock", "--zero-traffic", 1.5], "--zero-traffic: expected float <= 1.0, found 1.5"),
        (["stock", "--distribution", "even"], "--distribution: expected one of uniform, random, enterprise, allocation"),
        (["mesh", "--dataset", "DT9"], "--dataset: expected one of DT1, DT2, DT3, DT4, DT5, DT-C, DT-FB, found 'DT9'"),
        (["classes", "--zipf", 1], "--zipf: expected an option of this kind (--brokers, --classes, "),
        (["boxes", "--subscriptions", -1], "--subscriptions: expected int >= 0, found -1"),
        (["quotes"], "expected the option --file"),
        (["stock", "--publications", "many"], "Invalid value for '--publications'"),
    ],
)
def test_wrong_options_are_named_before_anything_starts(run, tmp_path, monkeypatch, arguments, text):
    monkeypatch.setattr(session, "session", None)
    status, out, err = run("workload", *arguments, "--out", tmp_path / "w")
    assert (status, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1
    assert not (tmp_path / "w").exists()


def test_a_directory_of_somebody_else_is_refused(run, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "session", None)
    (tmp_path / "mine").touch()
    status, _, err = run("workload", "stock", "--out", tmp_path)
    assert (status, "expected a directory that is new, empty or a workload" in err) == (2, True)
