"""``overweave sweep`` and ``overweave report``: what they write and say, what they refuse before Spark starts, and Ctrl-C."""

import json
import signal
import subprocess
import sys
import time

import pyarrow.parquet as pq
import pytest

from overweave.pipeline import session

SWEEP = """\
duration_s = 2
[sweep]
kind = "replay"
repetitions = 2
[[sweep.figures]]
x = "overlay_brokers"
y = "hops_mean"
[overlay]
shape = "chain"
brokers = [2, 3]
[workload]
publishers = 1
subscriptions_per_publisher = 3
"""


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "sweep.toml"
    path.write_text(SWEEP)
    return path


def test_a_sweep_is_a_table_figures_and_a_page_and_is_not_computed_twice(run, file, tmp_path, small_session, monkeypatch):
    out = tmp_path / "out"
    status, said, _ = run("sweep", file, "--out", out, "--json")
    assert status == 0
    answer = json.loads(said)
    assert [answer[name] for name in ("scenarios", "computed", "kept", "failed")] == [4, 4, 0, 0]
    assert pq.read_table(answer["metrics"])["overlay_brokers"].to_pylist() == [2, 2, 3, 3]
    assert [path.rpartition("/")[2] for path in answer["figures"]] == [
        "01-hops-mean-over-overlay-brokers.png",
        "01-hops-mean-over-overlay-brokers.svg",
    ]
    assert "</html>" in (out / "report.html").read_text()
    # Another figure of the same scenarios needs no Spark.
    monkeypatch.setattr(session, "session", None)
    file.write_text(SWEEP.replace('"hops_mean"', '"yield"'))
    status, said, err = run("sweep", file, "--out", out)
    assert (status, err) == (0, "")
    assert said.splitlines()[:4] == ["scenarios   4", "computed    0", "kept        4", "failed      0"]
    assert sorted(path.name for path in (out / "figures").iterdir()) == [
        "01-yield-over-overlay-brokers.png",
        "01-yield-over-overlay-brokers.svg",
    ]
    status, said, _ = run("report", out, "--out", tmp_path / "page.html", "--json")
    assert (status, json.loads(said)) == (0, {"kind": "sweep", "report": str(tmp_path / "page.html")})
    assert (tmp_path / "page.html").read_text() == (out / "report.html").read_text()


def test_failures_are_told_and_nothing_but_failures_is_a_failure(run, file, tmp_path, small_session):
    slow = (
        SWEEP.replace('"replay"', '"simulation"')
        + "rate_hz = [1, 50]\n[costs]\nmatching_delay_base_s = 0.1\n[checks]\nqueue_max = 10\n"
    )
    slow = slow.replace('y = "hops_mean"', 'y = "hops_mean"\nseries = "workload_rate_hz"').replace(
        "repetitions = 2", "repetitions = 1"
    )
    file.write_text(slow)
    status, said, err = run("sweep", file, "--out", tmp_path / "out", "--json")
    assert (status, json.loads(said)["failed"]) == (0, 2)
    assert err == "overweave: 2 of 4 scenarios failed; see the column 'error'; --retry-failed retries them\n"
    assert json.loads(run("sweep", file, "--out", tmp_path / "out", "--retry-failed", "--json").out)["computed"] == 2
    file.write_text(slow.replace("[1, 50]", "[50, 60]"))
    status, _, err = run("sweep", file, "--out", tmp_path / "all")
    assert status == 1
    assert err.splitlines()[1].startswith(f"overweave: {file}: no scenario could be evaluated")


def test_overloaded_scenarios_and_faults_are_reported(run, file, tmp_path, small_session):
    busy = SWEEP.replace('"replay"', '"simulation"').replace("repetitions = 2", "repetitions = 1").replace("[2, 3]", "2")
    busy = busy.replace('x = "overlay_brokers"', 'x = "workload_rate_hz"')
    file.write_text(busy + "rate_hz = [1, 40]\n[costs]\nmatching_delay_base_s = 0.05\n[faults]\nduplication = 0.3\n")
    status, said, err = run("sweep", file, "--out", tmp_path / "out", "--json")
    answer = json.loads(said)
    (overloaded,) = answer["overloaded"]
    assert (status, err) == (0, "")
    assert answer["faults"]["duplicated_frames"] > 10
    assert answer["faults"]["crashes"] == 0
    metrics = {row["scenario"]: row for row in pq.read_table(answer["metrics"]).to_pylist()}
    row = metrics[overloaded["scenario"]]
    assert row["workload_rate_hz"] == 40
    assert f"{row['input_utilisation_max']:.2f}" in row["overloaded"] == overloaded["overloaded"]
    assert [each["overloaded"] for each in metrics.values()].count(None) == 1
    _, said, _ = run("sweep", file, "--out", tmp_path / "out")
    assert "overloaded  1\n" in said
    assert f"scenario {overloaded['scenario']} overloaded: {overloaded['overloaded']}: delays grow with the length" in said
    assert f"{row['overloaded']}</td>" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("hops_mean", "overloaded", "sweep.figures[0].y: unknown 'overloaded'"),
        ("brokers = [2, 3]", "brokrs = [2, 3]", "overlay.brokrs: unknown key, the nearest known one is 'brokers'"),
        ("repetitions", "repetition", "sweep.repetition: unknown key, the nearest known one is 'repetitions'"),
        ("[2, 3]", "[2, 0]", "overlay.brokers: expected an integer of at least 1, got 0"),
        ("[2, 3]", "[2, ", "expected TOML"),
        ("hops_mean", "hop_mean", "sweep.figures[0].y: unknown 'hop_mean', the nearest known one is 'hops_mean'"),
    ],
)
def test_what_is_wrong_is_told_before_anything_starts(run, file, tmp_path, monkeypatch, old, new, text):
    monkeypatch.setattr(session, "session", None)
    file.write_text(SWEEP.replace(old, new))
    status, said, err = run("sweep", file, "--out", tmp_path / "out")
    assert (status, said, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"overweave: {file}: {text}")
    assert not (tmp_path / "out").exists()


def test_directories_of_others_are_refused(run, file, tmp_path, monkeypatch):
    monkeypatch.setattr(session, "session", None)
    for arguments, text in [
        (("sweep", file, "--out", tmp_path), "expected a directory that is new, empty or of an earlier sweep"),
        (("sweep", file, "--out", file), "expected a directory, found a file"),
        (("report", tmp_path), "expected the tables of 'overweave profile', or a sweep, found neither"),
        (("report", tmp_path / "none"), "found nothing"),
        (("report", file), "found a file"),
    ]:
        status, said, err = run(*arguments)
        assert (status, said, err.count("\n")) == (2, "", 1)
        assert text in err
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.toml"]


@pytest.mark.spark
def test_ctrl_c_keeps_what_is_finished_and_says_so(file, tmp_path, quick_conf):
    """Scenarios that take a while, in a process of their own; the signal comes when the first are there."""
    seeds = ", ".join(map(str, range(1, 200)))
    file.write_text(SWEEP.replace("duration_s = 2", f"seed = [{seeds}]\nduration_s = 300").replace("repetitions = 2\n", ""))
    metrics = tmp_path / "out" / "metrics"
    command = [sys.executable, "-m", "overweave", "sweep", str(file), "--out", str(tmp_path / "out"), "--master", "local[1]"]
    command += quick_conf
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        deadline_s = time.monotonic() + 150
        while len(list(metrics.glob("part-*.parquet"))) < 2 and time.monotonic() < deadline_s and process.poll() is None:
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        said, err = process.communicate(timeout=60)
    assert (process.returncode, said) == (130, "")
    first, second = err.splitlines()
    finished = sum(pq.read_metadata(path).num_rows for path in metrics.glob("part-*.parquet"))
    assert first == f"overweave: {finished} of 398 scenarios are finished; the same command goes on with the rest"
    assert second == "overweave: interrupted"
    assert finished > 0
