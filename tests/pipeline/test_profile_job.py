"""From traces to tables, as the verb does it."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import nullcontext

import msgspec
import pytest

from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.tracing.files import TraceWriter
from overweave.errors import InvalidInput
from overweave.pipeline.jobs import profile_run


@pytest.fixture(scope="module")
def traces(tmp_path_factory):
    """Two runs of the simulator, and what it measured of each."""
    directory = tmp_path_factory.mktemp("traces")
    document = {
        "overlay": {"shape": "balanced", "brokers": 7, "degree": 3},
        "workload": {"publishers": 3, "subscriptions_per_publisher": 8, "rate_hz": 2},
        "costs": {"link_delay_s": 0.01},
    }
    metrics = {}
    for run, duration_s in (("a", 20), ("b", 2)):
        writer, scenario = TraceWriter(directory, run), scenario_of(document | {"duration_s": duration_s})
        with writer as on_record:
            metrics[run] = simulate(scenario, on_record=on_record, run=run, on_statement=writer.add_statement)
    return directory, metrics


def assert_counted(totals, run, metrics):
    assert (totals["run"], totals["publishers"], totals["publications"]) == (run, 3, metrics.publications)
    for name in ("arrivals", "useful_arrivals", "pure_forwards", "deliveries"):
        assert totals[name] == getattr(metrics, name), name
    assert totals["yield"] == pytest.approx(metrics.yield_)
    assert totals["hops_mean"] == pytest.approx(metrics.hops_mean)
    assert totals["delay_s_mean"] == pytest.approx(metrics.delay_s.mean)
    assert totals["delay_s_max"] == pytest.approx(metrics.delay_s.max)


def test_the_pipeline_counts_what_the_simulator_counts(spark, traces, tmp_path):
    directory, metrics = traces
    told = []
    totals = profile_run(spark, directory, tmp_path / "out", "a", 64, progress=told.append)
    assert_counted(msgspec.to_builtins(totals), "a", metrics["a"])
    # Tables are begun together: which of them is first is up to their threads.
    assert sorted(told) == ["load", "profiles", "publisher_profiles", "subscription_lifetimes", "summary"]
    publishers = spark.read.parquet(str(tmp_path / "out" / "publisher_profiles")).collect()
    assert all(row.rate_hz == pytest.approx(2.0) for row in publishers)
    profiles = spark.read.parquet(str(tmp_path / "out" / "profiles")).collect()
    assert sum(row["count"] for row in profiles) == metrics["a"].deliveries
    lifetimes = spark.read.parquet(str(tmp_path / "out" / "subscription_lifetimes")).collect()
    subscriptions = {row.subscription: row for row in lifetimes}
    # Each is there, also those that got nothing.
    assert len(subscriptions) == 3 * 8 > len({row.subscription for row in profiles})
    assert all(row.filter and row.client and row.broker and row.withdrawn_at_s is None for row in subscriptions.values())


def test_which_run_has_to_be_said_where_there_are_several(spark, traces, tmp_path):
    with pytest.raises(InvalidInput, match="expected one run or --run, found runs a, b"):
        profile_run(spark, traces[0], tmp_path / "out")
    with pytest.raises(InvalidInput, match="expected rows of run 'c', found none"):
        profile_run(spark, traces[0], tmp_path / "out", "c")
    assert not (tmp_path / "out").exists()


def test_files_of_others_are_left_alone(spark, traces, tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(InvalidInput, match="found other files"):
        profile_run(spark, traces[0], tmp_path, "b")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_totals_are_a_json_document(spark, traces, tmp_path, monkeypatch, capfdbinary):
    from overweave.cli import main

    monkeypatch.setattr("overweave.pipeline.session.session", lambda master, **_: nullcontext(spark))
    with pytest.raises(SystemExit, match="0"):
        main(["profile", str(traces[0]), "--out", str(tmp_path / "out"), "--run", "b", "--bits", "64", "--json"])
    assert_counted(json.loads(capfdbinary.readouterr().out), "b", traces[1]["b"])
    with pytest.raises(SystemExit, match="2"):
        main(["profile", str(tmp_path / "nowhere"), "--out", str(tmp_path / "out")])
    assert b"nowhere: expected a file or directory, found nothing" in capfdbinary.readouterr().err


def test_following_ends_with_ctrl_c_and_tells_the_totals(spark, traces, tmp_path, monkeypatch, capfdbinary):
    from overweave.cli import main

    def interrupt():
        while not (tmp_path / "out" / "summary").exists():
            time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr("overweave.pipeline.session.session", lambda master, **_: nullcontext(spark))
    before = signal.getsignal(signal.SIGINT)
    threading.Thread(target=interrupt, daemon=True).start()
    arguments = ["profile", str(traces[0]), "--out", str(tmp_path / "out"), "--run", "b", "--bits", "64", "--follow"]
    with pytest.raises(SystemExit, match="0"):
        main([*arguments, "--every", "0.2", "--json"])
    assert signal.getsignal(signal.SIGINT) is before
    assert_counted(json.loads(capfdbinary.readouterr().out), "b", traces[1]["b"])
    with pytest.raises(SystemExit, match="2"):
        main([*arguments, "--skip-bad"])
    assert b"--skip-bad: expected without --follow" in capfdbinary.readouterr().err


def test_ctrl_c_ends_following_with_its_totals(traces, tmp_path, quick_conf):
    """In a process of its own: Spark takes the signal for itself when it starts."""
    command = [sys.executable, "-m", "overweave", "profile", str(traces[0]), "--out", str(tmp_path / "out")]
    command += ["--run", "b", "--bits", "64", "--follow", "--every", "1", "--json", "--master", "local[2]", *quick_conf]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        end_s = time.monotonic() + 120
        while not (tmp_path / "out" / "summary").exists() and time.monotonic() < end_s and process.poll() is None:
            time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        answer, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert_counted(json.loads(answer), "b", traces[1]["b"])


def test_what_is_wrong_with_paths_is_said_before_spark_starts(traces, tmp_path, monkeypatch, capfd):
    from overweave.cli import main

    monkeypatch.setattr("overweave.pipeline.session.session", None)
    (tmp_path / "mine").write_text("precious")
    for source, out, said in (
        (f"file://host{traces[0]}", tmp_path / "out", "expected file:///PATH, found a host"),
        (f"file://{tmp_path}/nowhere", tmp_path / "out", "nowhere: expected a file or directory, found nothing"),
        (traces[0], f"file://{tmp_path}/mine", "mine: expected a directory, found a file"),
        (traces[0], tmp_path, "found other files"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["profile", str(source), "--out", str(out)])
        assert said in capfd.readouterr().err


def test_the_run_007_is_not_the_run_7_in_any_session(spark, traces, tmp_path):
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "run=007").symlink_to(traces[0] / "run=b")
    name = "spark.sql.sources.partitionColumnTypeInference.enabled"
    before = spark.conf.get(name)
    spark.conf.set(name, "true")
    try:
        assert profile_run(spark, tmp_path / "traces", tmp_path / "out", bits=64).run == "007"
        assert spark.conf.get(name) == "true"
    finally:
        spark.conf.set(name, before)
