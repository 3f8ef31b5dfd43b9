"""What is acknowledged is in force: publications sent after `subscribe` and `advertise` have settled reach the subscriber."""

import os
from collections import Counter

import numpy as np
import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

RING = Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B2", "B3"), ("B3", "B4"), ("B4", "B1")])
OVERLAYS = {"chain-3": make_overlay("chain", brokers=3), "chain-5": make_overlay("chain", brokers=5), "ring": RING}
EVER = 1e9
FAULTS = {
    "none": Faults(),
    "loss": Faults(loss=0.2, duplication=0.1, until_s=EVER),
    "reordering": Faults(reordering=0.2, until_s=EVER),
    "cuts": Faults(cut_every_s=1.0, cut_s=0.5, until_s=EVER),
    "crashes": Faults(crash_every_s=2.0, crash_s=0.5, until_s=EVER),
    "all": Faults(loss=0.1, duplication=0.1, reordering=0.1, cut_every_s=2.0, crash_every_s=3.0, crash_s=0.5, until_s=EVER),
}
#: More of them: OVERWEAVE_IN_FORCE_ROUNDS=10000, over all cases together.
ROUNDS = int(os.environ.get("OVERWEAVE_IN_FORCE_ROUNDS", "600"))


def rounds(protocol, overlay, faults, seed, count):
    """Publishers and subscribers at random brokers that say something, wait, and publish; what was missing or too much."""
    random = np.random.default_rng(seed)
    config = BrokerConfig(SessionConfig(retransmit_s=0.3 if faults.lose_frames else None), heartbeat_s=0.5)
    network = SimulatedNetwork(
        overlay, PROTOCOLS[protocol].make, seed, faults, Costs(link_delay_s=0.05 * random.random()), config=config
    )
    expected, present, sequences = Counter(), {}, Counter()
    for id in overlay.ids:
        network.add_client(f"p {id}", id)
        network.add_client(f"s {id}", id)
    for number in range(count):
        publisher, subscriber = (f"{role} {overlay.ids[int(random.integers(len(overlay)))]}" for role in "ps")
        text = f"[class,eq,'C'],[x,{random.choice(['>', '<', '>='])},{random.integers(10)}]"
        said = [
            (publisher, Advertise(f"a{number}", parse_filter("[class,eq,'C'],[x,isPresent,0]"))),
            (subscriber, Subscribe(f"s{number}", parse_filter(text))),
        ]
        random.shuffle(said)
        for client, message in said:
            network.say(client, message)
            network.scheduler.run(network.scheduler.now_s + 0.05 * random.random())
        end_s = network.scheduler.now_s + 600
        while any(network.client(client).unsettled() for client in (publisher, subscriber)):
            assert network.scheduler.now_s < end_s, f"seed {seed}, round {number}: {said} is not settled"
            network.scheduler.run(network.scheduler.now_s + 0.01)
        present[f"s{number}"] = (subscriber, parse_filter(text))
        for _ in range(5):
            publication = parse_publication(f"[class,'C'],[x,{random.integers(10)}]")
            network.publish(publisher, publication)
            for id, (_, filter) in present.items():
                expected[publisher, sequences[publisher], id] += matches(filter, publication)
            sequences[publisher] += 1
        while network.client(publisher).unsettled():
            assert network.scheduler.now_s < end_s, f"seed {seed}, round {number}: publications are not settled"
            network.scheduler.run(network.scheduler.now_s + 0.05)
        network.say(publisher, Unadvertise(f"a{number}"))
        if len(present) > 4:
            id = str(random.choice(list(present)))
            network.say(present.pop(id)[0], Unsubscribe(id))
    found = network.deliveries
    return {key: count - found[key] for key, count in expected.items() if found[key] < count}, [
        key for key, count in found.items() if count > 1 or key not in expected
    ]


@pytest.mark.parametrize("kind", FAULTS)
@pytest.mark.parametrize(
    ("protocol", "shape"),
    [("filter", "chain-3"), ("filter", "chain-5"), ("filter-general", "chain-5"), ("filter-general", "ring")]
    + [("destination", "ring"), ("merc", "ring")]
    + [(protocol, "chain-5") for protocol in ("simple", "covering", "identity-advertised")],
)
def test_nothing_is_lost_after_subscribe_and_advertise_have_returned(protocol, shape, kind):
    for seed in range(max(ROUNDS // 540, 1)):
        lost, wrong = rounds(protocol, OVERLAYS[shape], FAULTS[kind], seed, 10)
        assert (lost, wrong) == ({}, []), f"seed {seed}"


def test_what_waits_without_faults_waits_no_longer_than_there_and_back():
    """A subscription takes one way there and one back on a chain of five, whatever was in flight before."""
    network = SimulatedNetwork(OVERLAYS["chain-5"], PROTOCOLS["filter"].make, costs=Costs(link_delay_s=0.01))
    network.add_client("p", "B1")
    network.add_client("s", "B5")
    network.say("p", Advertise("a", parse_filter("[x,isPresent,0]")))
    network.run_until_quiescent()
    network.say("s", Subscribe("s", parse_filter("[x,>,5]")))
    begin_s = network.scheduler.now_s
    while network.client("s").unsettled():
        network.scheduler.run(network.scheduler.now_s + 0.001)
    assert network.scheduler.now_s - begin_s == pytest.approx(0.10, abs=0.01)


CLUSTERS = [Broker("U1", cluster="U"), Broker("UV", cluster="U", other_clusters=("V",)), Broker("V1", cluster="V")]


@pytest.mark.parametrize(
    ("protocol", "overlay"),
    [("destination", make_overlay("chain", brokers=7)), ("merc", Overlay(CLUSTERS, [("U1", "UV"), ("UV", "V1")]))],
)
def test_a_subscription_at_a_broker_that_has_just_restarted_is_in_force_once_it_has_settled(protocol, overlay):
    costs, config = Costs(link_delay_s=0.05), BrokerConfig(heartbeat_s=0.5)
    network = SimulatedNetwork(overlay, PROTOCOLS[protocol].make, costs=costs, config=config)
    near, far = overlay.ids[0], overlay.ids[-1]
    network.add_client("p", near)
    network.add_client("s", far)
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.run_until_quiescent()
    network.scheduler.run(network.scheduler.now_s + 3.0)
    network.crash(far, 0.1)
    network.scheduler.run(network.scheduler.now_s + 0.1)
    network.say("s", Subscribe("s/1", parse_filter("[x,>=,0]")))
    end_s = network.scheduler.now_s + 5.0
    while network.unsettled() and network.scheduler.now_s < end_s:
        network.scheduler.run(network.scheduler.now_s + 0.001)
    assert not network.unsettled()
    network.publish("p", Publication({"x": 1}))
    network.run_until_quiescent()
    assert network.deliveries == {("p", 0, "s/1"): 1}
