"""The broker's part of migrations, message by message."""

import pytest

from overweave.contract.config import BrokerConfig
from overweave.contract.frames import BarrierRequest, MigrationBarrier
from overweave.contract.stimuli import PeerDisconnected
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


def barriers(network, requests, every_s):
    """The number of barriers that the neighbour gets when a client requests one again and again."""
    network.add_client("c", "B1")
    network.scheduler.run(1.0)
    handlers, counted = network.broker("B2")._neighbour_handlers, []
    on_barrier = handlers[MigrationBarrier]
    handlers[MigrationBarrier] = lambda peer, barrier: (counted.append(barrier), on_barrier(peer, barrier))
    attachment = network.client("c")._attachments["B1"]
    for number in range(requests):
        effects = []
        attachment.session.outbound.send_control(BarrierRequest(f"t{number}", "B3"), effects)
        network.nodes["c"].run(effects)
        network.scheduler.run(network.scheduler.now_s + every_s)
    network.scheduler.run(network.scheduler.now_s + 1.0)
    assert all(isinstance(each, MigrationBarrier) and each.client == "c" for each in counted)
    return len(counted)


def chain():
    return SimulatedNetwork(make_overlay("chain", brokers=3), PROTOCOLS["filter"].make)


def test_a_client_cannot_flood_the_network_with_barriers():
    assert barriers(chain(), 100, 0.01) <= 11
    assert barriers(chain(), 5, 0.2) == 5


def test_barriers_do_not_pile_up_for_a_neighbour_without_a_connection():
    network = chain()
    network.add_client("c", "B1")
    network.scheduler.run(1.0)
    core = network.broker("B1")
    core.handle(PeerDisconnected("B2"), 1.0)
    for number in range(9):
        effects = []
        network.client("c")._attachments["B1"].session.outbound.send_control(BarrierRequest("t", "B3"), effects)
        network.nodes["c"].run(effects)
        network.scheduler.run(1.2 + 0.2 * number)
    assert core.unsettled_outbound_rows("B2") == 0


def test_many_clients_cannot_flood_the_network_with_barriers():
    network, counted, names = chain(), [], [f"c{number}" for number in range(150)]
    for name in names:
        network.add_client(name, "B1")
    network.scheduler.run(1.0)
    network.broker("B2")._neighbour_handlers[MigrationBarrier] = lambda peer, barrier: counted.append(barrier)
    for seconds in (0.0, 0.5, 1.5):
        network.scheduler.run(2.0 + seconds)
        for name in names:
            effects = []
            network.client(name)._attachments["B1"].session.outbound.send_control(BarrierRequest("t", "B3"), effects)
            network.nodes[name].run(effects)
    network.scheduler.run(4.0)
    assert len(counted) == 200


@pytest.mark.parametrize("protocol", ["destination", "filter-general"])
def test_no_barrier_is_passed_on_where_the_overlay_may_have_cycles(protocol):
    """One of them would travel for ever, and multiply at every broker with three links."""
    ring, config = make_overlay("chain", brokers=4).with_link(("B1", "B4")), BrokerConfig(heartbeat_s=0.5)
    network = SimulatedNetwork(ring, PROTOCOLS[protocol].make, config=config)
    assert barriers(network, 1, 1.0) == 0
    assert [(each.peer, each.code) for each in network.refusals] == [("c", "bad-frame")]
