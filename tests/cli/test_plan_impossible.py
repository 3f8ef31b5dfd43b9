"""What is impossible ends with status 2 and one line that names it: goals against each other, a plan of another network."""

import json

import planned
import pytest

from overweave.pipeline import session

CHAIN = '[network]\nshape = "chain"\nbrokers = 4\nport = 7400\n'
STAR = '[network]\nshape = "star"\nbrokers = 4\nport = 7400\n'
SCENARIO = """\
[overlay]
shape = "chain"
brokers = 4
[workload]
publishers = 1
subscriptions_per_publisher = 1
[costs]
output_bandwidth_bytes_per_s = 1_000
matching_delay_base_s = 1e-5
matching_delay_per_subscription_s = 1e-7
"""


@pytest.fixture(autouse=True)
def without_spark(monkeypatch):
    monkeypatch.setattr(session, "session", None)


@pytest.fixture
def network(tmp_path):
    file = tmp_path / "network.toml"
    file.write_text(CHAIN)
    return file


@pytest.mark.parametrize(
    ("goals", "text"),
    [
        ("brokers_max = 1\npins = {c0 = 'B1', c1 = 'B2'}", "goal brokers_max: at most 1, but pins need 2: B1, B2"),
        ("brokers_max = 0", "goal brokers_max: expected a whole number from 1 on, found 0"),
        ("moves_max = -1", "goal moves_max: expected a whole number from 0 on, found -1"),
        ("moves_max = 1\npins = {c0 = 'B2', c1 = 'B1'}", "goal moves_max: at most 1, but pins alone move 2: c0, c1"),
        ("moves_max = 2\nexclude = ['B1']", "goal moves_max: at most 2, but exclude alone move 3: c0, c4, p1"),
        ("pins = {c0 = 'B1'}\nexclude = ['B1']", "goal pins: 'c0' is pinned to 'B1', which is excluded"),
    ],
)
def test_goals_that_contradict_each_other(run, tmp_path, network, goals, text):
    source = planned.profile(tmp_path / "profile")
    (tmp_path / "goals.toml").write_text(f"[goals]\n{goals}")
    status, out, err = run("plan", source, "--network", network, "--goals", tmp_path / "goals.toml")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert text in err


def test_a_client_larger_than_any_broker(run, tmp_path, network):
    status, _, err = run("plan", planned.profile(tmp_path / "profile", bandwidth=90.0), "--network", network)
    assert (status, err.count("\n")) == (2, 1)
    assert "client 'c0': needs 100 bytes/s, the largest broker has 72" in err


def test_no_brokers(run, tmp_path):
    source = planned.profile(tmp_path / "profile")
    planned.brokers(source / "brokers", 0)
    status, _, err = run("plan", source)
    assert (status, "brokers: expected at least one, found none" in err) == (2, True)


def test_an_unknown_publisher(run, tmp_path):
    source = planned.profile(tmp_path / "profile")
    planned.put(source / "publisher_profiles", publisher=["p1"], publications=[64], rate_hz=[1.0], bytes_per_s=[100.0])
    status, _, err = run("plan", source)
    assert (status, "profiles: publisher 'p2': expected one that the profile knows" in err) == (2, True)


def test_no_broker_can_join_others(run, tmp_path):
    """Clients fill brokers to the brim: the one for which there is no room is named."""
    source = planned.profile(tmp_path / "profile", clients=9, bandwidth=250.0)
    status, _, err = run("plan", source, "--headroom", 0)
    assert (status, err.count("\n")) == (2, 1)
    assert "broker 'B" in err
    assert "no broker" in err


def made(run, tmp_path, *arguments):
    plan = tmp_path / "plan.json"
    assert run("plan", planned.profile(tmp_path / "profile"), *arguments, "--out", plan).status == 0
    return plan


@pytest.mark.parametrize(
    ("other", "text"),
    [
        (STAR, "link B2-B3 is not in it; link B3-B4 is not in it; link B1-B3 is new, and 1 more differences"),
        (CHAIN.replace("4\n", "5\n", 1), "broker 'B5' is new; link B4-B5 is new"),
        (CHAIN.replace("4\n", "3\n", 1), "broker 'B4' is not in it; link B3-B4 is not in it"),
    ],
)
def test_a_plan_for_another_network(run, tmp_path, network, other, text):
    plan = made(run, tmp_path, "--network", network)
    assert run("report", plan, "--network", network, "--out", tmp_path / "page.html").status == 0
    (tmp_path / "other.toml").write_text(other)
    status, out, err = run("report", plan, "--network", tmp_path / "other.toml", "--out", tmp_path / "other.html")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert f"{plan}: plan: made for another network than {tmp_path / 'other.toml'}: {text}" in err
    assert not (tmp_path / "other.html").exists()


def test_brokers_that_carry_less_are_another_network(run, tmp_path, network):
    plan = made(run, tmp_path, "--network", network)
    planned.brokers(tmp_path / "less", bandwidth=900.0)
    status, _, err = run("report", plan, "--network", network, "--brokers", tmp_path / "less")
    assert (status, "broker 'B1': output_bandwidth_bytes_per_s was 1000 and is 900" in err) == (2, True)
    assert run("report", plan, "--brokers", tmp_path / "profile" / "brokers").status == 0


def test_a_scenario_says_what_brokers_can_carry(run, tmp_path):
    """The costs of a scenario are those of its brokers; another bandwidth is another network."""
    (tmp_path / "scenario.toml").write_text(SCENARIO)
    source = planned.profile(tmp_path / "profile", pool=False)
    plan = tmp_path / "plan.json"
    status, out, _ = run("plan", source, "--network", tmp_path / "scenario.toml", "--out", plan, "--json")
    assert (status, json.loads(out)["after"]["output_utilisation_max"]) == (0, pytest.approx(0.7))
    assert run("report", plan, "--network", tmp_path / "scenario.toml").status == 0
    (tmp_path / "scenario.toml").write_text(SCENARIO.replace("1_000", "2_000"))
    status, _, err = run("report", plan, "--network", tmp_path / "scenario.toml")
    assert (status, "output_bandwidth_bytes_per_s was 1000 and is 2000" in err) == (2, True)


def test_brokers_that_were_added_need_not_be_there(run, tmp_path, network):
    planned.put(
        tmp_path / "large", broker=["B9"], output_bandwidth_bytes_per_s=[1e6], matching_delay_base_s=[1e-5],
        matching_delay_per_subscription_s=[1e-7],
    )  # fmt: skip
    plan = made(run, tmp_path, "--network", network, "--add", tmp_path / "large")
    assert run("report", plan, "--network", network).status == 0
    damaged = plan.read_text().replace('"fingerprint": "', '"fingerprint": "x')
    plan.write_text(damaged)
    status, _, err = run("report", plan, "--network", network)
    assert (status, "clients or publishers are not those that its fingerprint counts" in err) == (2, True)


@pytest.mark.parametrize(("out", "found"), [("", "a directory"), ("/dev/null", "a device")])
def test_a_plan_does_not_take_the_place_of_what_is_no_file(run, tmp_path, out, found):
    status, _, err = run("plan", "nowhere", "--out", out or tmp_path)
    assert status == 2
    assert err == f"overweave: --out: {out or tmp_path}: expected a file, found {found}\n"
