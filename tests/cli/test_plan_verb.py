"""``overweave plan``: what it says, and that what is impossible is named."""

import json
from types import SimpleNamespace

import planned
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from overweave.cli.plan_options import read_goals
from overweave.cli.plan_text import text_of
from overweave.errors import InvalidInput
from overweave.pipeline import plan_scale, session
from overweave.pipeline.plan_files import read_plan

CHAIN = '[network]\nshape = "chain"\nbrokers = 4\nport = 7400\n'


@pytest.fixture
def source(tmp_path):
    return planned.profile(tmp_path / "profile")


@pytest.fixture
def network(tmp_path):
    file = tmp_path / "network.toml"
    file.write_text(CHAIN)
    return file


@pytest.fixture(autouse=True)
def without_spark(monkeypatch, request):
    """Profiles need no Spark."""
    if "small_session" not in request.fixturenames:
        monkeypatch.setattr(session, "session", None)


def test_before_after_and_the_verdict(run, source, network, tmp_path):
    status, out, err = run("plan", source, "--network", network, "--out", tmp_path / "plan.json", "--json")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    # Seven clients at 100 bytes/s each: one broker of 1,000 is 0.7 full, and has a headroom of 0.2.
    assert (answer["before"]["brokers"], answer["after"]["brokers"], answer["brokers_min"]) == (4, 1, 1)
    assert answer["difference"]["brokers"] == -3
    assert answer["after"]["output_utilisation_max"] == pytest.approx(0.7)
    assert answer["clients_to_move"] == 6
    assert answer["verdict"] == "3 of 4 brokers can be removed; 6 of 8 clients move"
    assert answer["evidence"]["peak_over_mean"] == pytest.approx(1.5)
    assert answer["evidence"]["idle_units"] == 1
    # A chain: p1 at its end B1 reaches B3, p2 at B2 reaches B4, by way of all between.
    inputs = {row["broker"]: row["before"]["input_hz"] for row in answer["brokers"]}
    assert inputs == pytest.approx({"B1": 1, "B2": 2, "B3": 2, "B4": 1})
    assert read_plan(tmp_path / "plan.json").totals.brokers == 1
    status, out, _ = run("plan", source, "--network", network)
    assert (status, out.splitlines()[-1]) == (0, answer["verdict"])
    assert "message rate, deviation (1/s)" in out


def test_without_links_the_load_before_is_not_known(run, source):
    status, out, err = run("plan", source)
    assert (status, "--network names the links" in err) == (0, True)
    assert out.splitlines()[-1] == "1 of 4 brokers are enough; 6 of 8 clients move"


def test_narrow_questions(run, source, network, tmp_path):
    planned.brokers(tmp_path / "more", 1)
    status, _, err = run("plan", source, "--network", network, "--add", tmp_path / "more")
    assert (status, "broker 'B1': expected every id once" in err) == (2, True)
    planned.put(
        tmp_path / "large", broker=["B9"], output_bandwidth_bytes_per_s=[1e6], matching_delay_base_s=[1e-5],
        matching_delay_per_subscription_s=[1e-7],
    )  # fmt: skip
    without = [part for i in range(4) for part in ("--without", f"B{i + 1}")]
    status, out, _ = run("plan", source, "--network", network, "--add", tmp_path / "large", *without, "--json")
    assert (status, json.loads(out)["verdict"]) == (0, "4 of 4 brokers can be removed and 1 added; 8 of 8 clients move")


def test_savings_against_moves(run, source, network, tmp_path):
    status, out, _ = run("plan", source, "--network", network, "--json", "--out", tmp_path / "plan.json")
    points = json.loads(out)["frontier"]
    # Every broker has two clients; those of p1 and p2 have a publisher beside them.
    assert [(point["moves"], point["brokers"]) for point in points] == [(0, 4), (2, 3), (4, 2), (7, 1)]
    assert [(each.moves, each.brokers) for each in read_plan(tmp_path / "plan.json").frontier][1] == (2, 3)
    (tmp_path / "goals.toml").write_text("[goals]\nmoves_max = 5")
    status, out, _ = run("plan", source, "--network", network, "--goals", tmp_path / "goals.toml", "--json")
    answer = json.loads(out)
    assert (status, answer["after"]["brokers"], answer["after"]["moves"]) == (0, 2, 4)
    assert answer["frontier"] == points
    status, out, _ = run("plan", source, "--network", network, "--no-frontier", "--json")
    assert (status, "frontier" in json.loads(out)) == (0, False)
    status, _, err = run("plan", source, "--frontier")
    assert (status, "--frontier: today: links: expected a tree over the 4 brokers in use" in err) == (2, True)
    status, out, _ = run("plan", source, "--network", network)
    assert "moves  brokers  message rate, mean (1/s)" in out


def test_compare_and_explain(run, source, network, tmp_path):
    status, out, _ = run("plan", source, "--network", network, "--compare", "all", "--explain", "c0", "--json")
    answer = json.loads(out)
    assert status == 0
    assert {"cram-iou", "fbf", "manual"} <= answer["compared"].keys()
    assert answer["compared"]["manual"]["brokers"] == 4
    assert [each["chosen"] for each in answer["explained"]["places"]] == [True]
    status, out, _ = run("plan", source, "--network", network, "--explain", "p1")
    assert (status, "p1 at" in out, "no other broker of the plan has room for it" in out) == (0, True, True)
    # With a broker kept busy there are two places, and the sentence says what the other one would cost.
    (tmp_path / "goals.toml").write_text("[goals]\npins = {c0 = 'B1', c1 = 'B2'}")
    status, out, _ = run("plan", source, "--network", network, "--goals", tmp_path / "goals.toml", "--explain", "c2")
    assert (status, "added input (1/s)" in out, "c2 is at B" in out, "brokers would get" in out) == (0, True, True, True)
    status, out, _ = run("plan", source, "--network", network, "--explain", "B4", "--without", "B4")
    assert "broker B4 (1,000 bytes/s) is not used: the goals exclude it" in out


@pytest.mark.parametrize(
    ("goals", "text"),
    [
        ("[goals]\nmoves_max = 1", "goal moves_max: at most 1, to remove one of 4 brokers takes 2"),
        ("[goals]\ndelay_s_max = 1e-9", "goal delay_s_max: at most 1e-09 s"),
        ("[goals]\nexclude = ['B1']\npins = {c0 = 'B1'}", "goal pins: 'c0' is pinned to 'B1', which is excluded"),
        ("[goals]\npins = {c99 = 'B1'}", "goal pins: client or publisher 'c99' is not in the problem"),
        ("[goals]\nheadroom = 1.5", "goal headroom: expected a share from 0 to below 1, found 1.5"),
        ("[goals]\nmoves = 1", "goals.moves: unknown key"),
        ("[goals]\nmoves_max = -1", "goals.toml: goal moves_max: expected a whole number from 0 on, found -1"),
        ("[goals]\nmoves_max = 'few'", "goals.toml: goals.moves_max: expected an integer, got 'few'"),
    ],
)
def test_goals_that_cannot_be_met_are_named(run, source, network, tmp_path, goals, text):
    (tmp_path / "goals.toml").write_text(goals)
    status, out, err = run("plan", source, "--network", network, "--goals", tmp_path / "goals.toml")
    assert (status, out) == (2, "")
    assert text in err
    assert err.count("\n") == 1


def test_a_headroom_that_is_no_share_names_the_option():
    with pytest.raises(InvalidInput, match=r"^--headroom: expected a share from 0 to below 1, found 20$"):
        read_goals(SimpleNamespace(goals=None, headroom=20.0, without=None))


def test_goals_that_can_be_met_are(run, source, network, tmp_path):
    (tmp_path / "goals.toml").write_text("[goals]\nheadroom = 0.1\npins = {c3 = 'B4'}\nexclude = ['B1']")
    status, _, _ = run(
        "plan", source, "--network", network, "--goals", tmp_path / "goals.toml", "--out", tmp_path / "p.json", "--json"
    )
    plan = read_plan(tmp_path / "p.json")
    assert (status, plan.clients["c3"], "B1" in plan.brokers, plan.goals.headroom) == (0, "B4", False, 0.1)
    status, _, err = run("plan", source, "--network", network, "--goals", tmp_path / "goals.toml", "--headroom", 0.3)
    assert (status, "--headroom: expected 0.1" in err) == (2, True)


@pytest.mark.parametrize(
    ("changed", "arguments", "text"),
    [
        ({"bandwidth": 90.0}, [], "client 'c0': needs 100 bytes/s, the largest broker has 72"),
        ({"at": 5}, [], "client 'c4' is at broker 'B5', which is not in"),
        ({"pool": False}, [], "expected --network or --brokers"),
        ({}, ["--algorithm", "best"], "--algorithm: expected one of fbf, bin-packing"),
        ({}, ["--rule", "best"], "--rule: expected one of literal"),
        ({}, ["--compare", "fbf,best"], "--compare: expected one of fbf"),
        ({}, ["--explain", "c99"], "'c99': expected a client, a publisher or a broker"),
        ({}, ["--without", "B9"], "--without: broker 'B9' is not in the pool"),
        ({}, ["--headroom", "0.9", "--without", "B1"], "needs 100 bytes/s, the largest broker has 100"),
    ],
)
def test_what_is_impossible_is_named(run, tmp_path, changed, arguments, text):
    source = planned.profile(tmp_path / "profile", **changed)
    status, out, err = run("plan", source, *arguments)
    assert (status, out) == (2, "")
    assert text in err


def test_tables_by_their_earlier_names_are_planned_alike(run, tmp_path):
    source = planned.profile(tmp_path / "profile")
    expected = run("plan", source, "--json")
    for name, earlier in (("publisher_profiles", "publishers"), ("subscription_lifetimes", "subscriptions")):
        (source / name).rename(source / earlier)
    assert run("plan", source, "--json") == expected
    assert expected[0] == 0


def test_an_unknown_publisher_and_no_brokers_are_named(run, tmp_path):
    source = planned.profile(tmp_path / "profile")
    planned.put(source / "publisher_profiles", publisher=["p1"], publications=[64], rate_hz=[1.0], bytes_per_s=[100.0])
    status, _, err = run("plan", source)
    assert (status, "publisher 'p2': expected one that the profile knows" in err) == (2, True)
    planned.brokers(source / "brokers", 0)
    status, _, err = run("plan", source)
    assert (status, "brokers: expected at least one, found none" in err) == (2, True)
    status, _, err = run("plan", tmp_path / "nothing")
    assert (status, "expected a directory with the tables of a profile or a workload" in err) == (2, True)


def test_too_little_evidence_is_refused_with_the_numbers(run, tmp_path):
    source = planned.profile(tmp_path / "profile", sent=4)
    status, _, err = run("plan", source)
    assert (status, "filled to 10% on average, found 6.2% after 4 s" in err) == (2, True)
    status, out, _ = run("plan", source, "--force")
    assert (status, "insufficient, planned by --force" in out) == (0, True)


def test_the_same_input_and_seed_give_the_same_bytes(run, source, network, tmp_path):
    for name in ("a.json", "b.json"):
        run("plan", source, "--network", network, "--algorithm", "automatic", "--seed", 5, "--out", tmp_path / name)
    assert (tmp_path / "a.json").read_bytes() == (tmp_path / "b.json").read_bytes()


def test_subscriptions_that_were_withdrawn_meanwhile_are_not_planned(run, source, network):
    """The last traffic is of 1 s: who left before is gone, who left then ended with the run."""
    rows = pq.read_table(source / "subscription_lifetimes").to_pydict()
    planned.put(
        source / "subscription_lifetimes", **rows, withdrawn_at_s=pa.array([0.5, 1.5, None, 1.0, *[None] * 4], pa.float64())
    )
    answer = json.loads(run("plan", source, "--network", network, "--json").out)
    assert (answer["clients"], answer["evidence"]["subscriptions"]) == (7, 7)
    assert answer["after"]["output_utilisation_max"] == pytest.approx(0.6)


def test_a_workload_is_planned_and_replay_agrees(run, tmp_path, small_session):
    small = ("--publishers", 2, "--subscriptions", 30, "--publications", 400, "--brokers", 4)
    assert run("workload", "stock", "--out", tmp_path / "w", *small)[0] == 0
    arguments = ("--evaluate", tmp_path / "w" / "publications", "--out", tmp_path / "plan.json", "--json")
    status, out, err = run("plan", tmp_path / "w", *arguments)
    assert (status, "the load before is not known" in err) == (0, True)
    answer = json.loads(out)
    assert answer["evidence"]["fill_mean"] == pytest.approx(200 / 1280)
    evaluated = answer["evaluated"]
    assert evaluated["brokers"].keys() == {row["broker"] for row in answer["brokers"]}
    assert (evaluated["on"], evaluated["publications"]) == ("profiled", 400)
    for found in evaluated["brokers"].values():
        assert found["input_hz_replayed"] == pytest.approx(found["input_hz"], rel=0.01)
        assert found["input_hz_simulated"] == pytest.approx(found["input_hz"], rel=0.02)
        assert found["output_utilisation_replayed"] == pytest.approx(found["output_utilisation"], rel=0.02)
    assert read_plan(tmp_path / "plan.json").evaluation.input_deviation_simulated < 0.02
    text = text_of(answer)
    assert "evaluated on the profiled 400 of 400 publications: predicted input deviates by at most 0.00% from replay" in text
    assert "from the simulator; highest output" in text


@pytest.mark.usefixtures("small_session")
def test_large_profiles_are_planned_on_spark_to_the_same_plan(run, source, network, tmp_path, monkeypatch):
    files = tmp_path / "small.json", tmp_path / "large.json"
    assert run("plan", source, "--network", network, "--out", files[0]).status == 0
    monkeypatch.setattr(plan_scale, "ROWS_ON_DRIVER", 3)
    status, out, err = run("plan", source, "--network", network, "--out", files[1], "--compare", "bin-packing")
    assert (status, err) == (0, "")
    assert out.splitlines()[-1] == "3 of 4 brokers can be removed; 6 of 8 clients move"
    assert files[0].read_bytes() == files[1].read_bytes()
