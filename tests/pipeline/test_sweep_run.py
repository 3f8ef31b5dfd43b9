"""Sweeps on Spark: what tasks find is what one by one is found; what is finished stays; what fails is told."""

import itertools
import threading
from types import SimpleNamespace

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from overweave.analysis.hierarchical import analyse
from overweave.analysis.tree import Tree
from overweave.analysis.workload import Workload
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.sim.utilisation import NotSettled, Overloaded
from overweave.drivers.sim.workload import Publisher
from overweave.errors import InvalidInput
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.pipeline.sweeps import EVALUATORS, running
from overweave.pipeline.sweeps import replay as replay_kind
from overweave.pipeline.sweeps.base import Evaluator, flattened
from overweave.pipeline.sweeps.file import sweep_of
from overweave.pipeline.sweeps.replay import Rates
from overweave.pipeline.sweeps.results import Results, measured_schema, read_manifest, read_metrics
from overweave.pipeline.sweeps.running import evaluate_batches, run_sweep
from overweave.pipeline.sweeps.summary import overloaded_scenarios

DOCUMENT = {
    "duration_s": 4,
    "overlay": [{"shape": "chain", "brokers": [1, 4]}, {"shape": "balanced", "brokers": 7, "degree": 3}],
    "routing": {"protocol": ["filter", "flooding"]},
    "workload": {"publishers": 2, "subscriptions_per_publisher": 3, "rate_hz": 2},
}
#: Its second half fails: every publication waits for the one before.
SLOW = DOCUMENT | {
    "overlay": {"shape": "chain", "brokers": 2},
    "routing": {},
    "workload": {"publishers": 1, "subscriptions_per_publisher": 1, "rate_hz": [1, 50]},
    "costs": {"matching_delay_base_s": 0.1},
    "checks": {"queue_max": 20},
}


def replay(**change):
    return sweep_of(DOCUMENT | {"sweep": {"kind": "replay"}} | change)


def rows(directory):
    return {row["scenario"]: row for row in read_metrics(directory).to_pylist()}


def test_a_sweep_finds_what_simulate_finds_one_by_one(spark, tmp_path):
    sweep, done = sweep_of(DOCUMENT | {"sweep": {"repetitions": 2}}), []
    outcome = run_sweep(lambda: spark, sweep, Results(sweep, tmp_path), on_done=done.append)
    assert outcome == (12, 12, 0, 0)
    assert (done[-1], done) == (12, sorted(done))
    found = read_metrics(tmp_path).to_pylist()
    assert [row["scenario"] for row in found] == [task.key for task in sweep.tasks]
    for row, task in zip(found, sweep.tasks, strict=True):
        metrics = simulate(scenario_of(task.document))
        expected = flattened(msgspec.to_builtins(metrics)) | dict(task.parameters)
        assert {name: value for name, value in row.items() if value is not None} == {
            name: value for name, value in expected.items() if value is not None
        } | {"scenario": task.key}
    assert (read_manifest(tmp_path).scenarios, read_manifest(tmp_path).kind) == (12, "simulation")


def test_a_replay_counts_what_the_simulator_counts(spark, tmp_path):
    sweep = replay(workload={"publishers": 2, "subscriptions_per_publisher": 3, "rate_hz": 2, "batch": [1, 3]})
    run_sweep(lambda: spark, sweep, Results(sweep, tmp_path))
    found = rows(tmp_path)
    for task in sweep.tasks:
        metrics, row = flattened(msgspec.to_builtins(simulate(scenario_of(task.document)))), found[task.key]
        common = set(metrics) & set(sweep.measures)
        assert common >= {
            "publications",
            "arrivals",
            "useful_arrivals",
            "pure_forwards",
            "deliveries",
            "yield",
            "hops_mean",
            "publication_hops",
        }
        assert {name: row[name] for name in common} == {name: metrics[name] for name in common}
        arrivals = metrics["useful_arrivals"] + metrics["pure_forwards"]
        brokers = task.parameters["overlay_brokers"]
        assert row["input_hz_mean"] == pytest.approx(arrivals / brokers / 4)
        assert row["input_hz_max"] >= row["input_hz_mean"]


def test_what_is_due_when_time_is_over_is_not_published():
    publisher = Publisher("p", "B", parse_filter("[x,>,0]"), 2.0, 0.0, lambda: itertools.repeat(parse_publication("[x,1]")))
    assert len(list(replay_kind._published(publisher, 4.0))) == 8


def test_an_analysis_finds_what_the_equations_say(spark, tmp_path):
    document = {
        "sweep": {"kind": "analysis"},
        "overlay": {"shape": "level-limited", "width": [1, 8]},
        "workload": {"subscriptions": [0, 1000.5], "classes": 50, "lifetime_s": 30, "rate_hz": 20},
    }
    sweep = sweep_of(document)
    assert run_sweep(lambda: spark, sweep, Results(sweep, tmp_path)).failed == 0
    for row in rows(tmp_path).values():
        tree = Tree.of_overlay(make_overlay("level-limited", width=row["overlay_width"]))
        totals = analyse(tree, Workload.uniform(len(tree), 50, row["workload_subscriptions"], 30, 20)).totals
        assert {name: row[name] for name in sweep.measures} == {name: float(getattr(totals, name)) for name in sweep.measures}
        assert (row["routing_entries"] > 0) == (row["workload_subscriptions"] > 0)


def test_a_second_run_computes_only_what_is_missing(spark, tmp_path):
    small, large = replay(), replay(seed=[1, 2])
    run_sweep(lambda: spark, small, Results(small, tmp_path))
    first = rows(tmp_path)
    assert run_sweep(None, small, Results(small, tmp_path)) == (6, 0, 6, 0)
    assert run_sweep(lambda: spark, large, Results(large, tmp_path)) == (12, 6, 6, 0)
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["part-00000.parquet"]
    assert rows(tmp_path).items() >= first.items()
    with pytest.raises(InvalidInput, match=r"expected the scenarios of this file, found 6 others"):
        Results(small, tmp_path)
    assert len(rows(tmp_path)) == 12


def test_measures_of_the_release_before_are_read_by_their_names_of_today(tmp_path):
    sweep = replay()
    Results(sweep, tmp_path)
    file = tmp_path / "metrics" / "part-00000.parquet"
    old = pa.table(
        {"scenario": [sweep.tasks[0].key], "deliveries": [7], "client_deliveries": [12], "error": pa.nulls(1, pa.string())}
    )
    pq.write_table(old, file)
    Results(sweep, tmp_path)
    (row,) = pq.read_table(file).to_pylist()
    assert (row["useful_arrivals"], row["deliveries"], row["arrivals"], "client_deliveries" in row) == (7, 12, None, False)


def test_what_is_finished_survives_an_interruption(spark, tmp_path, monkeypatch):
    """Ctrl-C comes to the main thread, here when the first tasks are there."""
    sweep = replay(seed=list(range(1, 9)))
    monkeypatch.setitem(EVALUATORS, "replay", EVALUATORS["replay"]._replace(per_task=2))
    told = []

    def interrupt(done):
        told.append(done)
        if done >= 6:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_sweep(lambda: spark, sweep, Results(sweep, tmp_path), on_done=interrupt)
    before = rows(tmp_path)
    assert len(before) == told[-1] < 48
    # A new run, as after a crash, first reads what is there.
    computed = []
    monkeypatch.setattr(running, "_evaluated", recording(running._evaluated, computed))
    results = Results(sweep, tmp_path)
    outcome = run_sweep(lambda: spark, sweep, results)
    assert outcome == (48, 48 - len(before), len(before), 0)
    assert {task.key for task in computed} == {task.key for task in sweep.tasks} - set(before)
    assert rows(tmp_path).items() >= before.items()
    assert [row["seed"] for row in read_metrics(tmp_path).to_pylist()] == [task.parameters["seed"] for task in sweep.tasks]


def recording(function, computed):
    def record(spark, sweep, tasks, parallel):
        computed.extend(tasks)
        return function(spark, sweep, tasks, parallel)

    return record


def test_a_scenario_that_fails_says_why_and_the_others_stay(spark, tmp_path):
    sweep = sweep_of(SLOW)
    assert run_sweep(lambda: spark, sweep, Results(sweep, tmp_path)) == (2, 2, 0, 1)
    good, failed = read_metrics(tmp_path).to_pylist()
    assert (good["error"], good["publications"]) == (None, 4)
    assert "more than checks.queue_max = 20; is it overloaded?" in failed["error"]
    assert (failed["publications"], failed["workload_rate_hz"]) == (None, 50)
    # Failed scenarios are finished, too, unless they are wanted again.
    assert run_sweep(lambda: spark, sweep, Results(sweep, tmp_path)) == (2, 0, 2, 1)
    assert run_sweep(lambda: spark, sweep, Results(sweep, tmp_path), again=True) == (2, 1, 1, 1)
    assert read_metrics(tmp_path).num_rows == 2


def test_whatever_a_scenario_does_to_its_worker_stays_its_own_error(spark, tmp_path, monkeypatch):
    sweep = replay(seed=[1, 2, 3, 4], overlay={"shape": "chain", "brokers": 2}, routing={})

    # Functions of a function travel to the workers by value.
    def read(document):
        return document

    def evaluate(document):
        import os

        if document["seed"] == 2:
            os._exit(7)
        if document["seed"] == 3:
            raise ValueError("no\nway")
        return Rates(0.5, document["seed"])

    monkeypatch.setitem(EVALUATORS, "replay", Evaluator(read, evaluate, Rates, (), (), per_task=8))
    sweep = msgspec.structs.replace(sweep, measures={"max": float, "mean": float})
    assert run_sweep(lambda: spark, sweep, Results(sweep, tmp_path)) == (4, 4, 0, 2)
    for row in rows(tmp_path).values():
        expected = {2: "the worker that computed it ended without a word", 3: "ValueError: no way"}.get(row["seed"])
        assert (row["error"] or "").startswith(expected or "")
        assert (row["error"] is None, row["mean"]) == ((True, row["seed"]) if expected is None else (False, None))


def test_a_job_that_cannot_run_at_all_is_no_scenarios_fault(spark, tmp_path, monkeypatch):
    sweep = replay()
    monkeypatch.setattr(SparkSession, "createDataFrame", lambda *_: np.nothing)
    with pytest.raises(AttributeError):
        run_sweep(lambda: spark, sweep, Results(sweep, tmp_path))
    assert read_metrics(tmp_path).num_rows == 0


@pytest.mark.parametrize(
    ("master", "parallel", "together"), [("spark://h:1", None, 12), ("yarn", 3, 3), ("local[1]", None, 1), ("local[1]", 3, 3)]
)
def test_more_is_submitted_than_a_cluster_has_cores(monkeypatch, master, parallel, together):
    """One that begins with one core and grows has to have something to do for the others."""
    sweep = sweep_of(DOCUMENT | {"sweep": {"repetitions": 2}})
    # Nothing is ever computed in it.
    session = SimpleNamespace(interruptTag=lambda _: None, conf=SimpleNamespace(get=lambda *_: master))
    # Nobody goes on before so many are there.
    all_there = threading.Barrier(together, timeout=20)
    monkeypatch.setattr(running, "_cores", lambda _: 1)
    monkeypatch.setattr(running._Job, "run", lambda _, group: all_there.wait() is None or [len(group)])
    assert sum(running._evaluated(session, sweep, list(sweep.tasks), parallel)) == len(sweep.tasks) == 12


def test_files_of_others_are_left_alone(tmp_path):
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(InvalidInput, match="expected a directory that is new, empty or of an earlier sweep"):
        Results(replay(), tmp_path)
    with pytest.raises(InvalidInput, match="expected a directory, found a file"):
        Results(replay(), tmp_path / "mine")
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_a_table_with_rows_left_over_twice_has_them_once(spark, tmp_path):
    sweep = replay()
    run_sweep(lambda: spark, sweep, Results(sweep, tmp_path))
    whole = tmp_path / "metrics" / "part-00000.parquet"
    pq.write_table(pq.read_table(whole).slice(2, 2), tmp_path / "metrics" / "part-abc.parquet")
    assert read_metrics(tmp_path).equals(pq.read_table(whole))
    assert run_sweep(lambda: spark, sweep, Results(sweep, tmp_path)).kept == 6
    whole.write_bytes(b"no Parquet")
    with pytest.raises(InvalidInput, match="expected Parquet, found"):
        Results(sweep, tmp_path)


def test_a_scenario_that_does_not_settle_names_its_overloaded_brokers():
    class Endless:
        def read(self, document):
            return document

        def evaluate(self, document):
            raise NotSettled(7, 60.0, (Overloaded("B2", "input", 2.5),))

    schema = measured_schema({"overloaded": str})
    documents = pa.RecordBatch.from_pylist([{"scenario": "a", "document": msgspec.msgpack.encode({})}])
    metrics = pa.Table.from_batches(evaluate_batches(Endless(), schema, iter([documents])))
    assert overloaded_scenarios(metrics) == [{"scenario": "a", "overloaded": "B2 input 2.50"}]
    assert "did not settle" in metrics["error"][0].as_py()
