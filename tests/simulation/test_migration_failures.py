"""Migrations that fail or meet other actions of the client and of operators: all of it moves, or all of it stays."""

import pytest

from overweave.broker import migration as broker_migration
from overweave.broker.client import migration
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.frames import MigrationBarrier
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.generations import stable_id
from overweave.language.messages import Advertise, Subscribe, Unadvertise
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.testing.fault_classes import TREES

ANY_X, ANY_Y = parse_filter("[x,>=,0]"), parse_filter("[y,>=,0]")
ADVERTISING = migration.MigrationPhase.ADVERTISING
MOMENTS_S = (0.0, 0.04, 0.08, 0.12, 0.16, 0.2, 0.3)


def simulated(protocol="filter"):
    """A publisher at B1, a subscriber at B3, and a client at B1 that does both."""
    heartbeat_s = 0.5 if protocol == "destination" else None
    config = BrokerConfig(SessionConfig(acknowledge_delay_s=0.005), heartbeat_s=heartbeat_s)
    network = SimulatedNetwork(
        make_overlay("chain", brokers=5), PROTOCOLS[protocol].make, costs=Costs(link_delay_s=0.01), config=config
    )
    for client, broker in (("p", "B1"), ("s", "B3"), ("c", "B1"), ("far", "B5")):
        network.add_client(client, broker)
    network.say("p", Advertise("p/a", ANY_X))
    network.say("s", Subscribe("s/1", ANY_X))
    network.say("c", Advertise("c/a", ANY_Y))
    network.say("c", Subscribe("c/1", ANY_X))
    network.say("far", Subscribe("far/1", ANY_Y))
    network.run_until_quiescent()
    run(network, 3.0)
    return network


def run(network, for_s):
    network.scheduler.run(network.scheduler.now_s + for_s)


def publish(network, client, attribute, first, last):
    for value in range(first, last):
        network.publish(client, parse_publication(f"[{attribute},{value}]"))
        run(network, 0.01)


def places(network, client):
    """The registrations of a client by broker, without generations."""
    core = network.client(client)
    return {peer: sorted(stable_id(each.id) for each in core.registered(peer)) for peer in core.peers()}


def delivered(network, subscription):
    return sorted(key[1] for key, count in network.deliveries.items() if key[-1] == subscription for _ in range(count))


# ---- all or nothing


def test_a_client_that_cannot_drain_stays_with_everything():
    network = simulated()
    network.crash("B5", for_s=60.0)
    network.publish("c", parse_publication("[y,0]"))
    order = network.client_processes.migrate("c", "B3")
    publish(network, "p", "x", 0, 100)
    run(network, 30.0)
    assert network.migrations[order.token] == "no progress within 10 s while draining"
    assert places(network, "c") == {"B1": ["c/1", "c/a"]}
    publish(network, "p", "x", 100, 200)
    run(network, 60.0)
    assert delivered(network, "c/1") == list(range(200))
    assert delivered(network, "far/1") == [0]


def test_a_client_whose_advertisement_does_not_come_in_force_stays_with_everything():
    """A broker between is down that has to know it, wherever the client is: publications wait, the migration does not."""
    network = simulated()
    order = network.client_processes.migrate("c", "B3")
    while network.client("c")._migrations._current is None or network.client("c")._migrations._current.phase is not ADVERTISING:
        run(network, 0.001)
    run(network, 0.035)  # so that B1 knows, and the client does not
    network.crash("B2", for_s=60.0)
    publish(network, "p", "x", 0, 100)
    publish(network, "c", "y", 0, 3)
    run(network, 30.0)
    error = "no progress within 10 s while advertising; publishing is paused until its advertisements are in force at B1"
    assert network.migrations[order.token] == error
    assert places(network, "c") == {"B1": ["c/1", "c/a"], "B3": []}
    again = network.client_processes.migrate("c", "B3")
    run(network, 1.0)
    assert network.migrations[again.token] == "publishing is paused until its advertisements are in force at B1"
    run(network, 60.0)
    assert places(network, "c") == {"B1": ["c/1", "c/a"]}
    assert delivered(network, "c/1") == list(range(100))
    assert delivered(network, "far/1") == [0, 1, 2]
    later = network.client_processes.migrate("c", "B3")
    run(network, 5.0)
    assert network.migrations[later.token] is None
    assert places(network, "c") == {"B3": ["c/1", "c/a"]}


@pytest.mark.parametrize("moment_s", MOMENTS_S)
@pytest.mark.parametrize("protocol", ["filter", "simple", "destination"])
def test_a_new_broker_that_restarts_gets_all_or_nothing(protocol, moment_s):
    network = simulated(protocol)
    order = network.client_processes.migrate("c", "B3")
    publish(network, "p", "x", 0, round(100 * moment_s))
    network.crash("B3", for_s=0.5)
    publish(network, "p", "x", round(100 * moment_s), 200)
    publish(network, "c", "y", 0, 3)
    run(network, 60.0)
    place = "B1" if network.migrations[order.token] else "B3"
    assert places(network, "c") == {place: ["c/1", "c/a"]}
    assert delivered(network, "c/1") == list(range(200))
    assert delivered(network, "far/1") == [0, 1, 2]


def test_a_new_broker_that_restarts_while_the_publisher_drains_gets_nothing():
    """The subscriptions may not have been in force there for a while, and the barrier has arrived."""
    network = simulated()
    network.crash("B5", for_s=8.0)
    network.publish("c", parse_publication("[y,0]"))
    order = network.client_processes.migrate("c", "B3")
    run(network, 1.0)
    assert network.client("c")._migrations._current.phase is migration.MigrationPhase.DRAINING
    network.crash("B3", for_s=0.5)
    publish(network, "p", "x", 0, 100)
    run(network, 30.0)
    assert network.migrations[order.token] == "B3 has restarted"
    assert places(network, "c") == {"B1": ["c/1", "c/a"]}
    assert delivered(network, "c/1") == list(range(100))
    assert delivered(network, "far/1") == [0]


# ---- deadlines


def test_restarts_of_the_new_broker_do_not_extend_the_deadline():
    network = simulated()
    network.broker("B3")._neighbour_handlers[MigrationBarrier] = lambda *_: None  # the stream never ends
    order = network.client_processes.migrate("s", "B5")
    for _ in range(3):
        run(network, 42.0)
        network.crash("B5", for_s=0.5)
    assert network.migrations[order.token] == "no progress within 120 s while subscribing"
    run(network, 5.0)
    assert places(network, "s") == {"B3": ["s/1"]}


def test_a_client_ends_a_migration_before_its_broker_gives_up_the_order():
    late_s = migration.Migrations.REPEAT_S
    assert sum(deadline_s + late_s for deadline_s in migration._DEADLINES_S.values()) < broker_migration._RESULT_S


# ---- other actions in the middle


def leave_nothing(network):
    """Have all clients leave; nothing may be left of them."""
    for client in list(network._table.clients):
        network.remove_client(client)
    run(network, 60.0)
    for id in network.running():
        assert not any(network.broker(id).statistics().tables.values()), f"{id} has {network.broker(id).statistics().tables}"
        assert not network.journal(id)
        assert not network.broker(id).migrations()


@pytest.mark.parametrize("protocol", [*TREES, "destination"])
@pytest.mark.parametrize("action", ["leave", "unadvertise", "advertise"])
def test_actions_of_a_publisher_in_the_middle(protocol, action):
    for moment_s in MOMENTS_S:
        network = simulated(protocol)
        order = network.client_processes.migrate("p", "B5")
        publish(network, "p", "x", 0, round(100 * moment_s))
        if action == "leave":
            network.remove_client("p")
        elif action == "unadvertise":
            network.say("p", Unadvertise("p/a"))
        else:
            network.say("p", Advertise("p/b", ANY_Y))
        run(network, 30.0)
        if action == "advertise":
            assert network.migrations[order.token] is None
            assert places(network, "p") == {"B5": ["p/a", "p/b"]}
            publish(network, "p", "y", 0, 3)
            run(network, 5.0)
            assert len(delivered(network, "far/1")) == 3
            assert len(delivered(network, "s/1")) == round(100 * moment_s)
        assert set(network.deliveries.values()) <= {1}
        leave_nothing(network)


@pytest.mark.parametrize("protocol", ["filter", "simple", "destination"])
def test_two_brokers_order_one_client(protocol):
    """The first order that arrives is carried out; the other broker gets the reason."""
    texts = set()
    for moment_s in (0.0, 0.01, 0.05, 0.1, 0.15, 0.3):
        network = simulated(protocol)
        network.say("s", Subscribe("s/2", ANY_X))
        network.run_until_quiescent()
        network.client_processes.migrate("s", "B5", subscriptions=("s/2",), publishing=False)
        run(network, 5.0)
        assert places(network, "s") == {"B3": ["s/1"], "B5": ["s/2"]}
        first = network.client_processes.migrate("s", "B1", source="B3")
        run(network, moment_s)
        second = network.client_processes.migrate("s", "B2", source="B5")
        publish(network, "p", "x", 0, 100)
        run(network, 30.0)
        assert network.migrations[first.token] is None
        texts.add(network.migrations[second.token])
        moved = {"B1": ["s/1"], ("B5" if network.migrations[second.token] else "B2"): ["s/2"]}
        assert places(network, "s") == moved
        assert delivered(network, "s/1") == delivered(network, "s/2") == list(range(100))
        leave_nothing(network)
    assert texts == {None, "another migration is in progress, to B1"}
