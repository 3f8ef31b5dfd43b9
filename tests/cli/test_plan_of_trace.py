"""A network is run, its trace profiled, and what ``overweave profile`` wrote is planned and evaluated."""

import itertools
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overweave.drivers.sim.scenario import read_scenario
from overweave.drivers.sim.workload import make_workload

SCENARIO = """\
seed = 3
duration_s = 70
[overlay]
shape = "balanced"
brokers = 7
degree = 2
[workload]
publishers = 4
subscriptions_per_publisher = 10
rate_hz = 1.0
[costs]
output_bandwidth_bytes_per_s = 2_500
matching_delay_base_s = 1e-5
matching_delay_per_subscription_s = 1e-7
[[broker]]
id = "B2"
output_bandwidth_bytes_per_s = 3_000
"""


def test_what_profile_wrote_is_planned_and_is_what_the_trace_says(run, tmp_path, small_session):
    file = tmp_path / "scenario.toml"
    file.write_text(SCENARIO)
    assert run("simulate", file, "--trace", tmp_path / "traces").status == 0
    assert run("profile", tmp_path / "traces", "--out", tmp_path / "profile", "--bits", 64).status == 0
    scenario = read_scenario(file)
    workload = make_workload(scenario, scenario.make_overlay())
    rows = [
        (each.id, number, str(quote))
        for each in workload.publishers
        for number, quote in enumerate(itertools.islice(each.publications(), int(scenario.duration_s * each.rate_hz)))
    ]
    columns = dict(zip(("publisher", "sequence", "publication"), map(list, zip(*rows, strict=True)), strict=True))
    pq.write_table(pa.table(columns), tmp_path / "publications.parquet")
    status, out, err = run(
        "plan", tmp_path / "profile", "--network", file, "--evaluate", tmp_path / "publications.parquet",
        "--evaluate-by", "replay,simulator", "--json",
    )  # fmt: skip
    assert (status, err) == (0, "")
    answer = json.loads(out)
    # The network as it is, predicted from profiles, is what its brokers really carried of the last 64 publications.
    folder = next((tmp_path / "traces").glob("run=*"))
    trace = pa.concat_tables(pq.ParquetFile(part).read() for part in folder.glob("*.parquet"))
    arrivals = {(row["publisher"], row["sequence"], row["broker"]) for row in trace.to_pylist()}
    measured = Counter(broker for _, sequence, broker in arrivals if sequence >= 70 - 64)
    before = {row["broker"]: row["before"]["input_hz"] for row in answer["brokers"] if row["before"]}
    assert before == pytest.approx({id: count / 64 for id, count in measured.items()}, rel=0.01)
    # And the plan is what the same publications do on it.
    assert 1 < answer["after"]["brokers"] < 7
    assert answer["after"]["output_utilisation_max"] <= 0.8
    evaluated = answer["evaluated"]
    # On the profiled ones: the last 64 of every publisher.
    assert (evaluated["on"], evaluated["publications"], evaluated["publications_given"]) == ("profiled", 4 * 64, len(rows))
    assert evaluated["input_deviation_replayed"] <= 0.01
    assert evaluated["input_deviation_simulated"] <= 0.02
    assert evaluated["output_utilisation_max"] <= 0.81
