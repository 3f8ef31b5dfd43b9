"""Time series of simulations, as files."""

import json

import pyarrow.csv
import pyarrow.parquet
import pytest

from overweave.cli import main
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of

DOCUMENT = {
    "duration_s": 10,
    "overlay": {"shape": "chain", "brokers": 3},
    "workload": {"publishers": 2, "subscriptions_per_publisher": 6, "rate_hz": 10},
    "costs": {"matching_delay_base_s": 0.01, "output_bandwidth_bytes_per_s": 50_000},
}
SCENARIO = """\
duration_s = 4
[overlay]
shape = "chain"
brokers = 3
[workload]
publishers = 2
subscriptions_per_publisher = 3
rate_hz = 5
"""


def sampled(every_s=1.0, **change):
    samples = []
    metrics = simulate(scenario_of(DOCUMENT | change), on_sample=samples.append, sample_every_s=every_s)
    return metrics, samples


def test_samples_add_up_to_the_metrics():
    metrics, samples = sampled()
    assert {each.broker for each in samples} == {"B1", "B2", "B3"}
    assert [each.time_s for each in samples if each.broker == "B2"][:10] == pytest.approx(range(1, 11))
    assert sum(each.deliveries for each in samples) == metrics.deliveries
    assert sum(each.publications_in for each in samples) == metrics.arrivals
    assert sum(each.control_out for each in samples) == metrics.control_messages
    measured = [each for each in samples if each.time_s <= 10.001]
    for name in ("input_utilisation", "output_utilisation"):
        means = [sum(getattr(each, name) for each in measured if each.broker == id) / 10 for id in ("B1", "B2", "B3")]
        assert max(means) == pytest.approx(getattr(metrics, name).max, rel=0.01)
    with_delays = [each for each in samples if each.deliveries]
    mean = sum(each.delay_s_mean * each.deliveries for each in with_delays) / metrics.deliveries
    assert mean == pytest.approx(metrics.delay_s.mean)
    assert all(each.delay_s_mean <= each.delay_s_p99 <= metrics.delay_s.max for each in with_delays)


def test_migrations_modules_and_the_load_have_series():
    move = [{"clients": ["P1", "P1.*"], "to": "B3", "at_s": 3, "over_s": 2}]
    metrics, samples = sampled(move=move)
    assert metrics.moves > 3
    assert sum(each.migrations_completed for each in samples) == metrics.moves
    assert sum(each.migrations_failed for each in samples) == metrics.moves_failed
    assert all((each.undeliverable, each.unadvertised, each.forged) == (0, 0, 0) for each in samples)
    measured = [each for each in samples if each.broker == "B2" and each.load]
    assert len(measured) >= 9
    assert any(each.load["input_hz"] > 0 and each.load["input_ratio"] > 0 for each in measured)
    assert {"output_busy", "queue_length", "output_delay_s_B1", "output_ratio"} <= measured[-1].load.keys()


def test_the_control_of_modules_has_series():
    modules = {"self_organise": {"every_s": 2.0, "degree_max": 4}}
    chain = {"shape": "chain", "brokers": 6}
    _, samples = sampled(routing={"protocol": "destination"}, overlay=chain, modules=modules)
    sent, received = (sum(each.modules.get(f"self_organise_{way}", 0) for each in samples) for way in ("out", "in"))
    assert sent == received > 50
    assert sent <= sum(each.control_out for each in samples)


def test_sampling_changes_nothing():
    assert sampled(0.1)[0] == simulate(scenario_of(DOCUMENT))


def test_the_timeline_and_crashes_show_in_the_series():
    join = [{"clients": ["P1.*"], "at_s": 5.5}]
    _, samples = sampled(join=join)
    clients = {at_s: sum(each.clients for each in samples if each.time_s == at_s) for at_s in (5.0, 6.0)}
    assert clients == {5.0: 8, 6.0: 14}
    subscriptions = {at_s: sum(each.subscriptions for each in samples if each.time_s == at_s) for at_s in (5.0, 6.0)}
    assert subscriptions == {5.0: 6, 6.0: 12}
    _, samples = sampled(faults={"crash_every_s": 2.0, "crash_s": 1.5})
    down = [each for each in samples if not each.running]
    assert down
    assert all(each.publications_in is None for each in down)
    assert all(each.publications_in >= 0 for each in samples if each.running)


def run(capfdbinary, *arguments):
    with pytest.raises(SystemExit) as leaving:
        main(["simulate", *map(str, arguments)])
    said = capfdbinary.readouterr()
    return leaving.value.code, said.out.decode(), said.err.decode()


def test_files_are_csv_or_parquet_by_suffix(capfdbinary, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    code, out, _ = run(capfdbinary, file, "--series", tmp_path / "load.csv", "--every", 0.5, "--json")
    assert code == 0
    table = pyarrow.csv.read_csv(tmp_path / "load.csv")
    assert sum(table["deliveries"].to_pylist()) == json.loads(out)["deliveries"]
    assert table["time_s"].to_pylist()[:4] == [0.5, 0.5, 0.5, 1.0]
    for prefix in ("table_", "load_"):
        assert any(name.startswith(prefix) for name in table.column_names)
    assert run(capfdbinary, file, "--series", tmp_path / "dir")[0] == 0
    table = pyarrow.parquet.read_table(tmp_path / "dir" / "small-seed-1.parquet")
    assert sum(table["deliveries"].to_pylist()) == json.loads(out)["deliveries"]
    assert [path.name for path in (tmp_path / "dir").iterdir()] == ["small-seed-1.parquet"]


def test_what_is_wrong_is_named_before_the_run(capfdbinary, tmp_path):
    file = tmp_path / "small.toml"
    file.write_text(SCENARIO)
    code, _, err = run(capfdbinary, file, "--series", tmp_path / "load.txt")
    assert code == 2
    assert "expected a file .parquet or .csv, or a directory, got '.txt'" in err
    code, _, err = run(capfdbinary, file, "--series", file / "load.csv")
    assert code == 2
    assert "expected a file that can be written" in err
    code, _, err = run(capfdbinary, file, "--series", tmp_path / "load.csv", "--every", 0)
    assert (code, "--every: expected a time above 0, got 0" in err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["small.toml"]
