"""A broker that is paused, as by SIGSTOP, loses nothing that its clients publish, and judges nobody for its own absence."""

from collections import Counter

import numpy as np
import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

IDS = ("B1", "B2", "B3", "B4")
RING = Overlay(IDS, [("B1", "B2"), ("B2", "B3"), ("B3", "B4"), ("B4", "B1")])
GRAPH = make_overlay("random-graph", brokers=8, degree=4, seed=5)
CHAIN = make_overlay("chain", brokers=4)
#: Faults that never strike, but for which frames are sent again and neighbours heard.
WATCHFUL = Faults(broker_pause_every_s=1e9)


def run(protocol, overlay, seed, loss=0.0):
    """One broker without subscribers is paused again and again, each time for as long as the seed says."""
    random = np.random.default_rng(seed)
    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, seed, Faults(loss=loss, broker_pause_every_s=1e9, until_s=60.0))
    victim, *others = random.permutation(overlay.ids).tolist()
    network.add_client("p", victim if seed % 2 else others[0])
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    wanted = {}
    for number in range(5):
        id = f"s{number}"
        wanted[id] = parse_filter(f"[x,>=,{random.integers(6)}]")
        network.add_client(id, others[int(random.integers(len(others)))])
        network.say(id, Subscribe(id, wanted[id]))
    network.scheduler.run(8.0)
    expected, count = Counter(), 0
    for _ in range(3):
        pause_s = float(random.choice([0.7, 1.6, 2.2, 4.0, 12.0]))
        network.scheduler.at(network.scheduler.now_s + 0.3, lambda _, pause_s=pause_s: network.pause(victim, pause_s))
        end_s = network.scheduler.now_s + pause_s + 6.0
        while network.scheduler.now_s < end_s:
            network.scheduler.run(network.scheduler.now_s + 0.4 * random.random())
            publication = parse_publication(f"[x,{random.integers(6)}]")
            network.publish("p", publication)
            expected.update(("p", count, id) for id, filter in wanted.items() if matches(filter, publication))
            count += 1
    network.run_until_quiescent()
    network.scheduler.run(network.scheduler.now_s + 2.0)
    missing, extra = expected - network.deliveries, network.deliveries - expected
    assert (missing, extra) == (Counter(), Counter()), f"seed {seed}: missing {missing}, too many {extra}"


CASES = [("filter", CHAIN), ("filter-general", RING), ("filter-general", GRAPH)]
CASES += [(protocol, overlay) for protocol in ("destination", "merc") for overlay in (RING, GRAPH)]


@pytest.mark.parametrize(("protocol", "overlay"), CASES, ids=[f"{protocol}-{len(overlay)}" for protocol, overlay in CASES])
def test_nothing_is_lost_to_subscribers_elsewhere(protocol, overlay):
    for seed in range(16):
        run(protocol, overlay, seed, loss=0.05 if seed % 4 == 3 else 0.0)


@pytest.mark.parametrize("protocol", ["filter", "destination"])
def test_a_paused_broker_cuts_off_no_client_for_its_own_absence(protocol):
    config = BrokerConfig(SessionConfig(retransmit_s=0.3), stall_timeout_s=0.5, slow_consumer_timeout_s=5.0, heartbeat_s=0.5)
    network = SimulatedNetwork(CHAIN, PROTOCOLS[protocol].make, faults=WATCHFUL, costs=Costs(link_delay_s=0.01), config=config)
    network.add_client("p", "B1")
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.add_client("s", "B1")
    network.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
    network.scheduler.run(3.0)
    network.publish("p", parse_publication("[x,1]"))
    network.scheduler.run(3.025)  # the subscriber has it, and has not acknowledged it
    network.pause("B1", 20.0)
    network.scheduler.run(30.0)
    assert not network.refusals
    assert network.deliveries == {("p", 0, "s"): 1}
