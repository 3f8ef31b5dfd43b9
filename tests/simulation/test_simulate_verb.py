"""``overweave simulate``: metrics, traces, and refusals that leave nothing behind."""

import json
from pathlib import Path

import pytest

from overweave.cli import main

SCENARIO = """\
seed = 1
duration_s = 5
[overlay]
shape = "chain"
brokers = 4
[workload]
publishers = 2
subscriptions_per_publisher = 3
rate_hz = 2
[faults]
loss = 0.02
"""
EXAMPLE = Path(__file__).parents[2] / "examples" / "scenario.toml"


@pytest.fixture
def run(capfdbinary):
    def run(*arguments):
        with pytest.raises(SystemExit) as leaving:
            main(["simulate", *map(str, arguments)])
        said = capfdbinary.readouterr()
        return leaving.value.code, said.out.decode(), said.err.decode()

    return run


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    return file


def contents(directory):
    return {str(path.relative_to(directory)): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_json(run, file):
    status, out, err = run(file, "--json")
    metrics = json.loads(out)
    assert (status, err) == (0, "")
    assert (metrics["seed"], metrics["publications"]) == (1, 20)
    arrivals = metrics["useful_arrivals"] + metrics["pure_forwards"]
    assert metrics["arrivals"] == arrivals
    assert metrics["yield"] == metrics["useful_arrivals"] / arrivals
    assert set(metrics["delay_s"]) == {"mean", "p50", "p99", "max"}


def test_table(run, file):
    status, out, err = run(file)
    assert (status, err) == (0, "")
    assert all(text in out for text in ("publications", "yield", "delay s p99"))


def test_the_same_seed_writes_the_same_trace_byte_by_byte(run, file, tmp_path):
    answers = [run(file, "--json", "--trace", tmp_path / name) for name in ("one", "two")]
    assert answers[0] == answers[1]
    assert sorted(contents(tmp_path / "one")) == [
        "run=small-seed-1/_statements/part-00000.parquet",
        "run=small-seed-1/part-00000.parquet",
    ]
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_another_seed_is_another_run(run, file, tmp_path):
    for seed in (1, 2):
        assert run(file, "--seed", seed, "--trace", tmp_path / "traces")[0] == 0
    found = contents(tmp_path / "traces").items()
    one, other = (each for each in found if "_statements" not in each[0])
    assert {one[0], other[0]} == {f"run=small-seed-{seed}/part-00000.parquet" for seed in (1, 2)}
    assert one[1] != other[1]


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ("rate_hz = 2", "rat_hz = 2", "workload.rat_hz: unknown key, the nearest known one is 'rate_hz'"),
        ("rate_hz = 2", "rate_hz = -2", "workload.rate_hz: expected"),
        ("brokers = 4", "brokers = 0", "overlay.brokers: expected"),
        ('shape = "chain"', 'shape = "peer"\nclusters = 2\nedge_brokers_per_cluster = -1', "overlay.brokers: unknown key"),
        ("loss = 0.02", "loss = -1.0", "faults.loss: expected"),
        ("seed = 1", "seed = ", "expected TOML"),
    ],
)
def test_what_is_wrong_is_exit_2_with_file_and_field_and_nothing_is_written(run, file, tmp_path, old, new, field):
    file.write_text(SCENARIO.replace(old, new))
    traces = tmp_path / "traces"
    traces.mkdir()
    status, out, err = run(file, "--trace", traces)
    assert (status, out) == (2, "")
    assert err.startswith(f"overweave: {file}: {field}")
    assert err.count("\n") == 1
    assert list(traces.iterdir()) == []
    run(file, "--trace", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_a_file_that_is_not_there(run, tmp_path):
    status, _, err = run(tmp_path / "none.toml")
    assert (status, err) == (
        2,
        f"overweave: {tmp_path / 'none.toml'}: expected a readable file, found no such file or directory\n",
    )


def test_a_trace_directory_that_is_a_file(run, file):
    status, _, err = run(file, "--trace", file)
    assert (status, err) == (2, f"overweave: {file}: expected a directory for traces, found a file\n")


def test_a_run_that_fails_leaves_nothing(run, file, tmp_path, monkeypatch):
    def failing(scenario, progress, on_record, run):
        raise RuntimeError("no")

    monkeypatch.setattr("overweave.cli.simulate.simulate_scenario", failing)
    assert run(file, "--trace", tmp_path / "traces")[0] == 1
    assert list((tmp_path / "traces").iterdir()) == []


def test_the_example_runs(run):
    status, out, err = run(EXAMPLE, "--json")
    assert (status, err) == (0, "")
    assert json.loads(out)["publications"] == 600


OVERLOAD = SCENARIO.replace("rate_hz = 2", "rate_hz = 20").replace("[faults]", "[costs]\nmatching_delay_base_s = 0.05\n[faults]")


def test_an_overloaded_run_says_so_in_one_line_and_in_json(run, file):
    file.write_text(OVERLOAD)
    status, out, err = run(file)
    assert (status, err) == (0, "")
    (line,) = [line for line in out.splitlines() if line.startswith("overloaded")]
    metrics = json.loads(run(file, "--json")[1])
    named = [f"{each['broker']} {each['part']} {each['utilisation']:.2f}" for each in metrics["overloaded"]]
    assert line == f"overloaded: {', '.join(named)}: delays grow with the length of the run"
    assert metrics["overloaded"][0]["utilisation"] == metrics["input_utilisation"]["max"] > 1.5


def test_faults_that_occurred_are_reported(run, file):
    lost = json.loads(run(file, "--json")[1])["faults"]["lost_frames"]
    assert lost > 0
    status, out, _ = run(file)
    assert status == 0
    assert f"{lost} lost frames" in next(line for line in out.splitlines() if line.startswith("faults"))
    assert "overloaded" not in out
