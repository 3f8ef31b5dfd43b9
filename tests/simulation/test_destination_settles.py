"""Destination-based routing where ways cross: brokers wait for each other's rows, and nobody waits for ever."""

import pytest

from overweave.contract.config import BrokerConfig
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


@pytest.mark.parametrize("heartbeat_s", [None, 0.5])
def test_all_that_brokers_say_when_they_start_is_settled(heartbeat_s):
    """Each row may wait behind others in the same stream: without word of what is settled ahead of those, round a circle."""
    overlay = make_overlay("random-graph", brokers=30, degree=6, seed=1)
    network = SimulatedNetwork(overlay, PROTOCOLS["destination"].make, config=BrokerConfig(heartbeat_s=heartbeat_s))
    network.kernel.run(2.0)
    assert not any(network.broker(id).statistics().unsettled for id in overlay.ids)
