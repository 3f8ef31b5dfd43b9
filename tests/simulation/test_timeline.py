"""The timeline of scenarios: joins, leaves and rate changes."""

import re
import tomllib
from pathlib import Path

import pytest

from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import read_scenario, scenario_of
from overweave.errors import InvalidInput

GUIDE = (Path(__file__).parents[2] / "docs/guides/scenarios.md").read_text()
DOCUMENT = {
    "duration_s": 10,
    "overlay": {"shape": "chain", "brokers": 3},
    "workload": {"publishers": 2, "subscriptions_per_publisher": 3, "rate_hz": 10},
}


def run(**tables):
    records, statements = [], []
    metrics = simulate(scenario_of(DOCUMENT | tables), on_record=records.append, on_statement=statements.append)
    return metrics, records, statements


def times_s(records, subscriber):
    """When the first and last delivery to a client was published, from the start of publishing."""
    found = [record.published_at_s - 10.0 for record in records if record.client == subscriber]
    return min(found), max(found)


def matching(records):
    return {record.client for record in records if record.client is not None}


def test_clients_join_at_a_time_or_over_a_period():
    _, base, _ = run()
    found, records, _ = run(join=[{"clients": ["P1.*"], "at_s": 4, "over_s": 3}, {"clients": ["P2.1"]}])
    assert found.deliveries < len([each for each in base if each.client is not None])
    for place in (1, 2, 3):
        client = f"P1.{place}"
        if client in matching(records):
            assert times_s(records, client)[0] >= 4 + place - 1
            assert times_s(base, client)[0] < 4


def test_a_publisher_that_joins_publishes_from_then_on():
    found, records, _ = run(join=[{"clients": ["P1"], "at_s": 5}])
    of = [record.published_at_s - 10.0 for record in records if record.publisher == "P1"]
    assert 5 <= min(of) < 5.5
    assert 140 <= found.publications <= 151


def test_clients_leave_and_return():
    leave, join = [{"clients": ["P1", "P2.*"], "at_s": 3}], [{"clients": ["P1"], "at_s": 6}]
    found, records, _ = run(leave=leave, join=join)
    of = [record.published_at_s - 10.0 for record in records if record.publisher == "P1"]
    assert not [at_s for at_s in of if 3 < at_s < 6]
    assert [at_s for at_s in of if at_s > 6]
    assert all(times_s(records, client)[1] <= 3 for client in matching(records) if client.startswith("P2."))
    assert 160 <= found.publications <= 171


@pytest.mark.parametrize("change", [{"factor": 3}, {"rate_hz": 30}])
def test_rates_change_at_a_time(change):
    found, records, _ = run(rate=[{"at_s": 5, "publishers": ["P1"], **change}])
    of = sorted({(each.sequence, each.published_at_s - 10.0) for each in records if each.publisher == "P1"})
    assert len([at_s for _, at_s in of if at_s < 5]) == pytest.approx(50, abs=1)
    assert len([at_s for _, at_s in of if at_s >= 5]) == pytest.approx(150, abs=2)
    assert found.publications == pytest.approx(300, abs=3)


def test_a_rate_may_fall_and_is_that_of_the_workload_times_the_factor():
    found, _, _ = run(rate=[{"at_s": 2, "factor": 0.5}, {"at_s": 6, "factor": 1}])
    assert found.publications == pytest.approx(2 * (20 + 20 + 40), abs=4)


def test_the_timeline_goes_with_faults():
    faults = {"client_crash_every_s": 0.3, "client_return": 0.5, "loss": 0.02, "crash_every_s": 3.0}
    tables = {"join": [{"clients": ["P1.*"], "at_s": 2}], "leave": [{"clients": ["P2*"], "at_s": 4, "over_s": 2}]}
    found, _, _ = run(**tables, faults=faults, session_expiry_s=3)
    assert found.faults.client_crashes > 5


@pytest.mark.parametrize(
    ("tables", "text"),
    [
        ({"join": [{"clients": ["P9"]}]}, "join[0].clients: expected ids of the workload, got 'P9', the nearest known one is"),
        ({"join": [{"clients": []}]}, "join[0].clients: expected at least one id or pattern"),
        ({"join": [{}]}, "join[0].clients: expected a value, which is missing"),
        ({"join": [{"clients": ["P1"], "at_s": 10}]}, "join[0].at_s: expected a time below duration_s, 10, got 10"),
        ({"join": [{"clients": ["P1"], "at_s": 5, "over_s": 6}]}, "join[0].over_s: expected a time that ends by duration_s"),
        ({"join": [{"clients": ["P1"]}, {"clients": ["P1"], "at_s": 2}]}, "join[1].clients: expected joins and leaves in turn"),
        ({"leave": [{"clients": ["P1"]}]}, "leave[0].at_s: expected a value, which is missing"),
        ({"leave": [{"client": ["P1"], "at_s": 1}]}, "leave[0].client: unknown key, the nearest known one is 'clients'"),
        ({"rate": [{"at_s": 1}]}, "rate[0].factor: expected either this or rate_hz, got none"),
        ({"rate": [{"at_s": 1, "factor": 2, "rate_hz": 2}]}, "rate[0].factor: expected either this or rate_hz, got both"),
        ({"rate": [{"at_s": 1, "factor": 0}]}, "rate[0].factor: expected a number above 0, got 0"),
        ({"rate": [{"at_s": 1, "factor": 2, "publishers": ["P1.1"]}]}, "rate[0].publishers: expected ids of the workload"),
        ({"rate": 3}, "rate: expected tables [[rate]], got 3"),
    ],
)
def test_what_is_wrong_is_named(tables, text):
    with pytest.raises(InvalidInput) as refused:
        scenario = scenario_of(DOCUMENT | tables)
        scenario.make_timeline(scenario.workload.ids())
    assert str(refused.value).startswith(text)


def test_errors_name_the_file(tmp_path):
    file = tmp_path / "scenario.toml"
    file.write_text(
        '[overlay]\nshape = "chain"\nbrokers = 2\n[workload]\npublishers = 1\nsubscriptions_per_publisher = 1\n'
        '[[join]]\nclients = ["Q"]\n'
    )
    with pytest.raises(InvalidInput) as refused:
        read_scenario(file)
    assert str(refused.value).startswith(f"{file}: join[0].clients: expected ids of the workload")


def test_the_example_of_the_guide_runs():
    (example,) = [each for each in re.findall(r"```toml\n(.*?)```", GUIDE, re.DOTALL) if "[[join]]" in each]
    document = tomllib.loads(example)
    assert {"join", "leave", "rate"} <= document.keys()
    found = simulate(scenario_of(document))
    assert found.publications > 100


def test_clients_move_without_losing_anything():
    base, _, _ = run()
    found, records, _ = run(move=[{"clients": ["P1", "P1.*"], "to": "B3", "at_s": 3, "over_s": 2}])
    assert (found.moves + found.moves_failed, found.deliveries) == (4, base.deliveries)
    assert {record.broker for record in records if record.client == "P1.1" and record.published_at_s > 17} <= {"B3"}


@pytest.mark.parametrize(("client", "part", "moved"), [("P1", "publishing", True), ("P1", "subscriptions", False)])
def test_a_part_of_a_client_moves(client, part, moved):
    rest = {"publishing": "subscriptions", "subscriptions": "publishing"}[part]
    base, _, _ = run()
    found, records, _ = run(move=[{"clients": [client], "to": "B3", "at_s": 3, rest: False}])
    assert (found.moves, found.deliveries) == (1, base.deliveries)
    first = {
        record.broker for record in records if record.publisher == client and record.hops == 0 and record.published_at_s > 17
    }
    assert (first == {"B3"}) is moved


def test_a_move_of_nothing():
    with pytest.raises(InvalidInput, match=r"move\[0\].subscriptions: expected true if publishing is false"):
        run(move=[{"clients": ["P1"], "to": "B3", "at_s": 3, "subscriptions": False, "publishing": False}])


def test_a_move_to_an_unknown_broker():
    document = DOCUMENT | {"move": [{"clients": ["P1"], "to": "B9", "at_s": 3}]}
    with pytest.raises(InvalidInput, match=r"move\[0\].to: unknown broker 'B9', the nearest known one is"):
        scenario_of(document).make_overlay()
