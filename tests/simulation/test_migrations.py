"""Clients that move between brokers; `overweave.testing.migrations` runs more seeds."""

import itertools
from collections import Counter

import msgspec
import pytest

from overweave.broker.backlogs import Backlogs
from overweave.broker.client import migration
from overweave.broker.session.inbound import Inbound
from overweave.broker.settlement import RoutingSettlement
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.testing.fault_classes import TREES
from overweave.testing.migration_pauses import pauses_s
from overweave.testing.migrations import FAULTS, GRAPHS, KINDS, run_seed, runs
from overweave.testing.seeds.reach import Reach

DELAYED = Costs(link_delay_s=0.01)
#: Classes of faults under which brokers may be silent for longer than ``link_timeout_s``.
SILENT = ("partitions", "broker-pauses", "outages", "crashes", "clocks", "journals", "all", "everything")


@pytest.mark.parametrize("faults", FAULTS)
@pytest.mark.parametrize("protocol", [*TREES, *GRAPHS])
def test_nothing_is_lost_or_doubled(protocol, faults):
    seed = [*TREES, *GRAPHS].index(protocol) * 31 + list(FAULTS).index(faults)
    # A run without publications shows nothing: all publishers have crashed before the traffic began. Then another seed counts.
    outcomes = (run_seed(seed + more, protocol, KINDS[seed % len(KINDS)], faults) for more in (0, 1000, 2000))
    outcome = next(each for each in outcomes if each.publications or each.failures)
    assert outcome.failures == []
    assert outcome.orders > 1
    assert outcome.moved > 1 or faults in ("clients", "all")
    assert outcome.publications > 100
    assert outcome.due > 20
    assert outcome.excused == 0 or (protocol in GRAPHS and faults in SILENT) or faults == "stalls"


def test_a_snapshot_that_overtakes_the_link_state_of_a_restarted_broker_waits_for_it():
    """Else the broker awaits another one for ever, and subscriptions at it are never in force."""
    assert run_seed(26, "destination", "subscriber", "clocks").failures == []


def test_buffered_publications_are_lost_only_if_the_client_unsubscribes_before_it_reads():
    outcome = run_seed(356, "covering", "subscriber", "stalls")
    assert (outcome.failures, outcome.excused > 0) == ([], True)


def is_caught_up_at_once(current):
    """Without a barrier; a client that does not advertise does not even wait for its new subscriptions, as the drain does."""
    if not current.source.of_kind(Advertise):
        current.order = msgspec.structs.replace(current.order, publishing=False)
    return current.target.session.established


def test_without_the_barrier_publications_are_lost(monkeypatch):
    monkeypatch.setattr(migration, "is_caught_up", is_caught_up_at_once)
    failures = [failure for seed in range(12) for failure in run_seed(seed, "filter", "subscriber", "none").failures]
    assert any("lost" in failure for failure in failures)


def test_a_wait_beyond_its_deadline_is_a_failure(monkeypatch):
    assert run_seed(0, "filter", "both", "outages").failures == []
    monkeypatch.setattr(migration, "_DEADLINES_S", dict.fromkeys(migration._DEADLINES_S, float("inf")))
    failures = run_seed(0, "filter", "both", "outages").failures
    assert any("draining for 3" in failure and "expected at most 10 s" in failure for failure in failures)


def test_an_order_without_a_result_is_a_failure(monkeypatch):
    monkeypatch.setattr(migration, "_send_result", lambda *_: None)
    assert any("has no result" in failure for failure in run_seed(0, "filter", "both", "none").failures)


def test_withdrawals_during_migrations_concern_all_generations(monkeypatch):
    def withdraw_at_one_broker(self, message, effects):
        kind = Advertise if isinstance(message, Unadvertise) else Subscribe
        found = [(each, old) for each in self._attachments for old in each.generations_of(message.id, kind)]
        found[0][0].withdraw(found[0][1], effects)

    monkeypatch.setattr(migration.Migrations, "withdraw", withdraw_at_one_broker)
    failures = [failure for seed in range(3) for failure in run_seed(seed, "filter", "both", "none").failures]
    assert any(", expected [" in failure for failure in failures)


@pytest.mark.parametrize("protocol", GRAPHS)
def test_losses_at_a_silent_broker_are_excused(protocol, monkeypatch):
    outcome = run_seed(2, protocol, "both", "broker-pauses")
    assert (outcome.failures, 0 < outcome.excused < outcome.due / 5) == ([], True)
    monkeypatch.setattr(Reach, "excuses", lambda *_: False)
    failures = run_seed(2, protocol, "both", "broker-pauses").failures
    assert len(failures) == outcome.excused
    assert all("is lost at" in failure for failure in failures)


def test_the_runs_of_the_command_meet_every_protocol_kind_and_class_of_faults():
    planned = list(runs(500))
    assert Counter(each.kind for each in planned if each.protocol in TREES) == dict.fromkeys(KINDS, 500)
    assert Counter(each.protocol for each in planned if each.protocol in GRAPHS) == dict.fromkeys(GRAPHS, 200)
    met = {(each.protocol, each.kind, each.faults) for each in planned}
    assert met == set(itertools.product([*TREES, *GRAPHS], KINDS, FAULTS))
    (repeated,) = runs(1, 82, ["both"], ["merc"], ["stalls"])
    assert repeated == (82, "merc", "both", "stalls")


def move_from_a_slow_broker():
    """The number of publications that arrive when a subscriber leaves an overloaded broker."""
    network = made("destination", own_costs={"B3": Costs(matching_delay_base_s=0.02)})
    publish(network, 0, 150)
    network.client_processes.migrate("s", "B2")
    publish(network, 150, 200)
    network.run_until_quiescent()
    return len(network.deliveries)


def test_without_the_sweep_publications_are_lost(monkeypatch):
    assert move_from_a_slow_broker() == 200 + 195
    monkeypatch.setattr(RoutingSettlement, "add", lambda *_: None)
    assert move_from_a_slow_broker() < 200 + 195


def move_while_a_publisher_is_away(protocol):
    """How often each subscriber gets a publication whose broker crashed after one of them had it, and that is sent again late."""
    config = BrokerConfig(SessionConfig(acknowledge_delay_s=0.005), heartbeat_s=0.5)
    network = SimulatedNetwork(make_overlay("chain", brokers=3), PROTOCOLS[protocol].make, config=config, costs=DELAYED)
    for client, broker in (("p", "B2"), ("s", "B1"), ("other", "B3")):
        network.add_client(client, broker)
    network.say("p", Advertise("p/a", parse_filter("[x,>=,0]")))
    for client in ("s", "other"):
        network.say(client, Subscribe(f"{client}/1", parse_filter("[x,>=,0]")))
    network.run_until_quiescent()
    network.cut_link(("B1", "B2"), 0.3)
    network.publish("p", parse_publication("[x,1]"))
    network.scheduler.run(network.scheduler.now_s + 0.1)
    network.crash("B2", 0.5)
    network.scheduler.run(network.scheduler.now_s + 0.501)
    network.cut_link(("p", "B2"), 6.0)
    order = network.client_processes.migrate("s", "B3")
    network.scheduler.run(network.scheduler.now_s + 30.0)
    assert network.migrations[order.token] is None
    return {key[-1]: count for key, count in network.deliveries.items()}


@pytest.mark.parametrize("protocol", ["filter", "simple", "destination"])
def test_a_publication_is_sent_again_to_a_restarted_broker(protocol, monkeypatch):
    assert move_while_a_publisher_is_away(protocol) == {"s/1": 1, "other/1": 1}
    monkeypatch.setattr(Backlogs, "complete", True)
    assert move_while_a_publisher_is_away(protocol) == {"other/1": 1}


@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_the_backlog_of_a_crashed_publisher_ends_with_its_session(protocol):
    """A migration waits no longer than the session of a publisher that does not return."""
    network = made(protocol)
    network.client_processes.crash("p", None)
    network.crash("B1", 0.5)
    network.scheduler.run(network.scheduler.now_s + 0.6)
    order = network.client_processes.migrate("s", "B5")
    network.scheduler.run(network.scheduler.now_s + 60.0)
    assert network.migrations[order.token] is None


@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_a_publisher_cannot_announce_a_backlog_and_keep_it(protocol, monkeypatch):
    """Its hello has a next sequence number that it never reaches."""
    network = made(protocol, config=BrokerConfig(CONFIG.session, heartbeat_s=0.5))
    hello, liar = Inbound.hello, network.client("p")._attachments["B1"].session.inbound
    monkeypatch.setattr(Inbound, "hello", lambda self, number: hello(self, 2**64 - 1 if self is liar else number))
    network.crash("B1", 0.5)
    network.scheduler.run(network.scheduler.now_s + 5.0)
    assert not network.broker("B1")._context.backlogs.complete
    order = network.client_processes.migrate("s", "B1")
    network.scheduler.run(network.scheduler.now_s + 60.0)
    assert network.migrations[order.token] is None


def test_without_a_drain_publications_are_lost(monkeypatch):
    settled = migration.is_settled
    monkeypatch.setattr(migration, "is_settled", lambda barrier: True)
    failures = [failure for seed in range(12) for failure in run_seed(seed, "filter", "publisher", "none").failures]
    assert any("lost" in failure for failure in failures)
    assert settled(None) is False


# ---- single migrations


CONFIG = BrokerConfig(SessionConfig(acknowledge_delay_s=0.005))  # as live brokers have it


def made(protocol="filter", brokers=5, delay_s=0.01, own_costs=None, config=CONFIG):
    overlay, costs = make_overlay("chain", brokers=brokers), Costs(link_delay_s=delay_s)
    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, costs=costs, config=config, own_costs=own_costs)
    network.add_client("p", "B1")
    network.add_client("s", "B3")
    network.say("p", Advertise("p/a", parse_filter("[x,>=,0]")))
    network.say("s", Subscribe("s/1", parse_filter("[x,>=,0]")))
    network.say("s", Subscribe("s/2", parse_filter("[x,>=,5]")))
    network.run_until_quiescent()
    return network


def publish(network, first, last):
    for x in range(first, last):
        network.publish("p", parse_publication(f"[x,{x}]"))
        network.scheduler.run(network.scheduler.now_s + 0.01)


def settle(network):
    network.run_until_quiescent()
    network.scheduler.run(network.scheduler.now_s + 5)


def test_one_subscription_moves_alone_and_the_client_stays_attached_to_both():
    network = made()
    order = network.client_processes.migrate("s", "B5", subscriptions=("s/2",), publishing=False)
    publish(network, 0, 100)
    settle(network)
    assert network.migrations[order.token] is None
    assert {peer: [each.filter for each in network.client("s").registered(peer)] for peer in network.client("s").peers()} == {
        "B3": [parse_filter("[x,>=,0]")],
        "B5": [parse_filter("[x,>=,5]")],
    }
    assert len(network.deliveries) == 100 + 95
    assert set(network.deliveries.values()) == {1}
    assert network.broker("B3").registration_count("subscription") == network.broker("B5").registration_count("subscription") == 1


def test_an_order_for_a_subscription_at_another_broker_says_where_it_is():
    network = made()
    network.client_processes.migrate("s", "B5", subscriptions=("s/2",), publishing=False)
    settle(network)
    for source, chosen, error in (
        ("B3", ("s/2",), "the client has no subscription 's/2' at B3, but at B5"),
        ("B5", ("s/1", "s/2"), "the client has no subscription 's/1' at B5, but at B3"),
        ("B5", ("s/3",), "the client has no subscription 's/3'"),
    ):
        order = network.client_processes.migrate("s", "B1", subscriptions=chosen, publishing=False, source=source)
        settle(network)
        assert network.migrations[order.token] == error
    assert {peer: len(network.client("s").registered(peer)) for peer in network.client("s").peers()} == {"B3": 1, "B5": 1}


def test_a_second_order_is_rejected_while_one_is_in_progress():
    network = made()
    first = network.client_processes.migrate("s", "B5")
    second = network.client_processes.migrate("s", "B1")
    settle(network)
    assert network.migrations[first.token] is None
    assert "moving already" in network.migrations[second.token]


@pytest.mark.parametrize(
    ("client", "to", "text"),
    [("s", "B3", "is at B3 already"), ("nobody", "B5", "not a client of B3"), ("B2", "B5", "not a client")],
)
def test_orders_that_make_no_sense(client, to, text):
    network = made()
    order = network.client_processes.migrate(client, to, source="B3")
    settle(network)
    assert text in network.migrations[order.token]


def test_filter_general_is_rejected():
    network = made("filter-general")
    order = network.client_processes.migrate("s", "B5")
    settle(network)
    assert "cannot move under filter-general" in network.migrations[order.token]
    assert network.client("s").peers() == ["B3"]


@pytest.mark.parametrize("moment", [1, 3, 5, 7, 9, 12, 20])
def test_unsubscribing_in_the_middle(moment):
    network = made()
    network.client_processes.migrate("s", "B5")
    for _ in range(moment):
        network.scheduler.run(network.scheduler.now_s + 0.01)
    network.say("s", Unsubscribe("s/1"))
    network.say("s", Unsubscribe("s/2"))
    settle(network)
    assert not network.client("s").is_migrating
    assert [network.broker(id).statistics().tables["subscriptions"] for id in network.running()] == [0] * 5
    assert not any(key[0] == "subscription" for id in network.running() for key in network.journal(id))


@pytest.mark.parametrize("moment", [1, 3, 5, 7, 9, 12, 20])
def test_leaving_in_the_middle(moment):
    network = made()
    network.client_processes.migrate("s", "B5")
    for _ in range(moment):
        network.scheduler.run(network.scheduler.now_s + 0.01)
    network.remove_client("s")
    network.scheduler.run(network.scheduler.now_s + 5)
    assert [network.broker(id).statistics().tables["subscriptions"] for id in network.running()] == [0] * 5
    assert not any(network.broker(id).migrations() for id in network.running())


def test_a_client_whose_broker_buffers_for_it_does_not_move():
    """Otherwise more publications could be behind at its old broker than its memory of duplicates reaches."""
    network = made(config=BrokerConfig(SessionConfig(acknowledge_delay_s=0.005), stall_timeout_s=0.1))
    network.nodes["s"].pause_reading()
    publish(network, 0, 50)
    network.scheduler.run(network.scheduler.now_s + 2.0)
    slow = network.client_processes.migrate("s", "B5")
    network.scheduler.run(network.scheduler.now_s + 1.0)
    assert "'s' is a slow consumer" in network.migrations[slow.token]
    network.nodes["s"].resume_reading()
    network.scheduler.run(network.scheduler.now_s + 1.0)
    later = network.client_processes.migrate("s", "B5")
    settle(network)
    assert network.migrations[later.token] is None
    assert set(network.deliveries.values()) == {1}
    assert len(network.deliveries) == 50 + 45


def test_a_broker_that_cannot_be_reached_is_given_up():
    network = made()
    network.crash("B5")
    order = network.client_processes.migrate("s", "B5")
    publish(network, 0, 100)
    network.scheduler.run(network.scheduler.now_s + 40)
    assert "no progress within 30 s while attaching" in network.migrations[order.token]
    assert network.client("s").peers() == ["B3"]
    assert len(network.deliveries) == 100 + 95


def test_the_pause_of_a_publisher_is_short():
    """At 10 hops of 20 ms: a round trip to drain, and one until the advertisement is in force."""
    pauses = pauses_s(hops=10, delay_s=0.02, migrations=20)
    assert sorted(pauses)[18] <= 1.0
    assert min(pauses) > 0.1  # it is no empty claim
