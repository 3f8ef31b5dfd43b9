"""What is in flight on a link that is closed is not taken for delivered."""

import pytest

from overweave.contract.config import BrokerConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS


@pytest.mark.parametrize("protocol", ["filter", "simple", "filter-general"])
@pytest.mark.parametrize("opens_again", [True, False])
def test_what_was_in_flight_goes_another_way_or_is_given_up_late_and_counted(protocol, opens_again):
    network = SimulatedNetwork(
        make_overlay("chain", brokers=3),
        PROTOCOLS[protocol].make,
        costs=Costs(link_delay_s=0.1),
        config=BrokerConfig(undeliverable_timeout_s=3.0),
    )
    network.add_client("p", "B1")
    network.add_client("s", "B3")
    network.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    network.say("s", Subscribe("s", parse_filter("[x,>,0]")))
    network.run_until_quiescent()
    network.publish("p", parse_publication("[x,1]"), parse_publication("[x,2]"))
    network.scheduler.run(network.scheduler.now_s + 0.25)  # on their way from B2 to B3
    network.close_link(("B2", "B3"))
    network.scheduler.run(network.scheduler.now_s + 1.0)
    assert network.client("p").unsettled()
    if opens_again:
        network.open_link(("B2", "B3"))
    network.run_until_quiescent()
    delivered = {sequence for _, sequence, _ in network.deliveries}
    assert delivered == ({0, 1} if opens_again else set())
    assert network.broker("B2").statistics().undeliverable == (0 if opens_again else 2)
