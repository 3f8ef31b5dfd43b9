"""What brokers can carry, in files of networks and of scenarios."""

import pytest

from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import scenario_of
from overweave.drivers.tcp.network_file import network_of
from overweave.errors import InvalidInput
from overweave.overlay.parts import Broker

OWN = {
    "output_bandwidth_bytes_per_s": 23_000,
    "matching_delay_base_s": 0.002,
    "matching_delay_per_subscription_s": 1e-6,
    "capacity_hz": 50.0,
}
SHAPE = {"shape": "chain", "brokers": 3, "port": 7400}
LISTED = [{"id": "B1", "listen": "tcp://127.0.0.1:7401"}, {"id": "B2", "listen": "tcp://127.0.0.1:7402", **OWN}]


@pytest.mark.parametrize(
    "document",
    [
        {"network": SHAPE, "broker": [{"id": "B2", **OWN}]},
        {"network": {}, "broker": LISTED, "link": [{"between": ["B1", "B2"]}]},
    ],
)
def test_brokers_of_networks_have_capacities(document):
    overlay = network_of(document).overlay
    assert overlay.broker("B2") == Broker("B2", **OWN)
    assert overlay.broker("B1") == Broker("B1")


@pytest.mark.parametrize("name", OWN)
def test_what_cannot_be_is_refused_by_its_field(name):
    with pytest.raises(InvalidInput, match=rf"^broker\[0\]\.{name}: expected "):
        network_of({"network": SHAPE, "broker": [{"id": "B2", name: -1.0}]})
    with pytest.raises(InvalidInput, match=rf"^broker\[0\]\.{name}: expected "):
        scenario({"id": "B2", name: -1.0}).make_overlay()


def scenario(*brokers, **more):
    workload = {"publishers": 2, "subscriptions_per_publisher": 4, "rate_hz": 5}
    return scenario_of(
        {"duration_s": 4, "overlay": {"shape": "chain", "brokers": 3}, "workload": workload, "broker": list(brokers), **more}
    )


def test_brokers_of_scenarios_cost_what_they_are_said_to():
    made = scenario({"id": "B2", **OWN})
    assert made.make_overlay().broker("B2") == Broker("B2", **OWN)
    fast, slow = (simulate(each).delay_s.mean for each in (scenario(), made))
    assert slow > fast + 0.001
    with pytest.raises(InvalidInput, match=r"broker\[0\]\.id: .*'B7'"):
        scenario({"id": "B7"}).make_overlay()
    with pytest.raises(InvalidInput, match=r"broker\[1\]\.id: expected every id once"):
        scenario({"id": "B1"}, {"id": "B1"}).make_overlay()
    with pytest.raises(InvalidInput, match="bandwith"):
        scenario({"id": "B1", "output_bandwith_bytes_per_s": 1})
