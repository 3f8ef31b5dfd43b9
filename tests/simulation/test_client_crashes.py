"""Clients that crash and return or not, and sessions that expire: nothing acknowledged to live clients is lost."""

import pytest

from overweave.broker.client import ClientCore
from overweave.drivers.sim.checkers import DeliveryOracle
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.tcp.settings import BrokerSettings
from overweave.errors import InvalidInput, OverweaveError
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

ANY = parse_filter("[x,isPresent,0]")
CRASHES = {"client_crash_every_s": 0.4, "client_crash_s": 1.0, "client_return": 0.7}


def scenario(seed=1, faults=None, **change):
    return scenario_of(
        {
            "seed": seed,
            "duration_s": 10,
            "overlay": {"shape": "balanced", "brokers": 7, "degree": 3},
            "workload": {"publishers": 3, "subscriptions_per_publisher": 8, "rate_hz": 5},
            "faults": CRASHES | (faults or {}),
            "session_expiry_s": 5,
        }
        | change
    )


@pytest.mark.parametrize("protocol", ["filter", "simple", "covering", "destination"])
@pytest.mark.parametrize("seed", range(1, 4))
def test_nothing_acknowledged_to_live_clients_is_lost(protocol, seed):
    found = simulate(scenario(seed, routing={"protocol": protocol}))
    assert found.faults.client_crashes > found.faults.client_returns > 5
    assert found.publications > 50


@pytest.mark.parametrize("seed", range(1, 4))
def test_client_crashes_among_other_faults(seed):
    others = {"loss": 0.02, "duplication": 0.02, "reordering": 0.05, "crash_every_s": 3, "cut_every_s": 2}
    found = simulate(scenario(seed, others))
    assert found.faults.client_crashes > 5
    assert found.faults.crashes > 0


def test_the_same_seed_gives_the_same_run():
    assert simulate(scenario(5)) == simulate(scenario(5))


def test_a_loss_of_live_clients_is_noticed(monkeypatch):
    """Losses of live clients are found while others crash."""
    deliver, count = ClientCore._deliver, [0]

    def lossy(self, batch, effects):
        count[0] += 1
        if count[0] % 7:
            deliver(self, batch, effects)

    monkeypatch.setattr(ClientCore, "_deliver", lossy)
    with pytest.raises(OverweaveError, match=r"deliveries are wrong: .* missing"):
        simulate(scenario())


def network(expiry_s=5.0, faults=None):
    made = SimulatedNetwork(make_overlay("chain", brokers=2), PROTOCOLS["filter"].make, faults=faults, session_expiry_s=expiry_s)
    for client, broker in (("p", "B1"), ("s", "B2")):
        made.add_client(client, broker)
    made.say("p", Advertise("a", ANY))
    made.scheduler.run(0.5)
    made.say("s", Subscribe("s", ANY))
    made.scheduler.run(1.0)
    return made


def test_a_client_that_stays_away_is_forgotten():
    made = network()
    made.client_processes.crash("s")
    made.publish("p", Publication({"x": 1}))
    made.scheduler.run(5.9)
    assert made.broker("B2").clients() == ["s"]
    assert made.client("p").unsettled() == 1
    made.scheduler.run(6.5)
    assert made.broker("B2").clients() == []
    assert made.journal("B2") == {}
    assert made.client("p").unsettled() == 0


def test_a_returned_client_is_a_new_process():
    made = network()
    made.publish("p", Publication({"x": 1}))
    made.scheduler.run(1.5)
    made.client_processes.crash("s", 1.0)
    made.publish("p", Publication({"x": 2}))
    made.scheduler.run(3.0)
    assert made.client_processes.life("s") == 2
    assert made.broker("B2").registration_count("subscription") == 0
    made.say("s", Subscribe("s@2", ANY))
    made.scheduler.run(4.0)
    made.publish("p", Publication({"x": 3}))
    made.scheduler.run(20.0)
    assert dict(made.deliveries) == {("p", 0, "s"): 1, ("p", 2, "s@2"): 1}
    # The timer of the first disconnection does not end the second session.
    assert made.broker("B2").registration_count("subscription") == 1


def test_the_journal_of_a_restarted_broker_expires_too():
    made = network()
    made.crash("B2", 2.0)
    made.client_processes.crash("s")
    made.scheduler.run(7.0)
    assert made.broker("B2").clients() == ["s"]
    made.scheduler.run(8.5)
    assert made.broker("B2").clients() == []


def test_a_cut_longer_than_the_expiry_begins_a_new_session():
    made = network()
    made.cut_link(("s", "B2"), 8.0)
    made.scheduler.run(7.0)
    assert made.broker("B2").clients() == []
    made.publish("p", Publication({"x": 1}))
    made.scheduler.run(10.0)
    made.publish("p", Publication({"x": 2}))
    made.scheduler.run(12.0)
    assert dict(made.deliveries) == {("p", 1, "s"): 1}


@pytest.mark.parametrize("seed", range(1, 4))
def test_cuts_longer_than_the_expiry_lose_nothing_else(seed):
    cuts = {"client_return": 1.0, "client_crash_every_s": 5, "cut_every_s": 1.0, "cut_s": 3.0}
    found = simulate(scenario(seed, cuts, session_expiry_s=1.0))
    assert found.faults.cuts > 3


def test_the_default_expiry_is_that_of_live_brokers():
    default = next(field for field in BrokerSettings.__struct_fields__ if field == "session_expiry_s")
    live = BrokerSettings(id="B1", listen="tcp://127.0.0.1:1", overlay=make_overlay("chain", brokers=1), urls={})
    assert scenario_of(
        {"overlay": {"shape": "chain", "brokers": 1}, "workload": {"publishers": 1, "subscriptions_per_publisher": 0}}
    ).session_expiry_s == getattr(live, default)


def test_faults_of_clients_are_checked():
    with pytest.raises(InvalidInput, match=r"^faults\.client_return: expected a chance from 0 to 1, got 1\.5"):
        Faults(client_return=1.5)
    with pytest.raises(InvalidInput, match=r"^faults\.client_crash_every_s: expected a time above 0"):
        Faults(client_crash_every_s=0)
    with pytest.raises(InvalidInput, match=r"^session_expiry_s: expected a time above 0"):
        scenario(session_expiry_s=0)


def test_the_oracle_knows_what_is_optional():
    oracle = DeliveryOracle([("s", ANY)])
    for sequence in range(3):
        oracle.published("p", sequence, Publication({"x": 1}))
    oracle.delivered("p", 0, "s")
    oracle.excuse("p", 1, settled=2)
    assert oracle.faults() == ["subscription 's': 1 missing"]
    oracle.delivered("p", 1, "s")
    assert oracle.faults() == []
    oracle.delivered("p", 2, "s")
    assert oracle.faults() == []
    oracle.delivered("p", 2, "s")
    assert oracle.faults() == ["subscription 's': 1 too many"]


def test_the_oracle_expects_of_a_later_subscription_what_comes_after_it():
    oracle = DeliveryOracle()
    oracle.published("p", 0, Publication({"x": 1}))
    oracle.subscribe("late", ANY)
    oracle.published("p", 1, Publication({"x": 1}))
    oracle.in_force("late")
    oracle.published("p", 2, Publication({"x": 1}))
    oracle.delivered("p", 1, "late")
    assert oracle.faults() == ["subscription 'late': 1 missing"]
    oracle.delivered("p", 2, "late")
    assert oracle.faults() == []
    oracle.delivered("p", 1, "late")
    assert oracle.faults() == ["subscription 'late': 1 too many"]
    oracle.close("late")
    oracle.published("p", 3, Publication({"x": 1}))
    assert oracle.faults() == ["subscription 'late': 1 too many"]


def test_a_crashed_publisher_may_lose_what_was_in_flight():
    """Half of the publications are in flight on the slow connection to the broker when their publisher crashes."""
    slow = {"costs": {"link_delay_s": 0.3}, "overlay": {"shape": "chain", "brokers": 1}}
    found = simulate(scenario(1, {"client_crash_every_s": 0.5, "client_return": 1.0}, **slow))
    assert found.faults.client_crashes > 20
    assert found.deliveries > 50
