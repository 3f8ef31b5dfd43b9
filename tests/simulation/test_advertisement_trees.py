"""Filter-based routing on overlays with cycles: publications, and the withdrawal of the advertisement whose tree they take."""

import pytest

from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unadvertise
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.routing import PROTOCOLS

IDS = ["B0", "B1", "B2", "B3"]
RING = Overlay(IDS, [("B0", "B1"), ("B1", "B3"), ("B0", "B2"), ("B2", "B3")])


@pytest.mark.parametrize("protocol", ["filter-general", "destination", "merc"])
@pytest.mark.parametrize(("publisher", "waits_s"), [("p1", 0.0), ("p2", 0.03)])
def test_a_withdrawal_overtakes_no_publication(protocol, publisher, waits_s):
    """B1 is slow, and the withdrawal may come round by B2, while some are on their way. It is not the other publisher's."""
    costs, slow = Costs(matching_delay_base_s=0.001), Costs(matching_delay_base_s=0.003)
    network = SimulatedNetwork(RING, PROTOCOLS[protocol].make, costs=costs, own_costs={"B1": slow})
    for client in ("p1", "p2"):
        network.add_client(client, "B0")
        network.say(client, Advertise(f"a{client}", parse_filter("[x,>=,0]")))
        network.scheduler.run(network.scheduler.now_s + 1)
    network.add_client("s", "B3")
    network.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
    network.scheduler.run(5)
    for x in range(20):
        network.publish(publisher, parse_publication(f"[x,{x}]"))
    network.scheduler.run(5 + waits_s)
    network.say("p1", Unadvertise("ap1"))
    network.run_until_quiescent()
    assert dict(network.deliveries) == {(publisher, x, "s"): 1 for x in range(20)}
    assert not network.refusals
    network.remove_client("p1")
    network.remove_client("p2")
    network.remove_client("s")
    network.scheduler.run(network.scheduler.now_s + 5)
    assert not any(any(network.broker(id).statistics().tables.values()) for id in IDS)


@pytest.mark.parametrize("protocol", ["filter", "filter-general", "destination", "merc"])
def test_a_batch_over_several_advertisements_arrives_in_order(protocol):
    got = []
    network = SimulatedNetwork(
        Overlay(["B0", "B1"], [("B0", "B1")]),
        PROTOCOLS[protocol].make,
        on_delivery=lambda parts: got.extend(number for _, batch in parts for _, _, number in batch.identities()),
    )
    network.add_client("p", "B0")
    for kind in "ab":
        network.say("p", Advertise(kind, parse_filter(f"[class,eq,'{kind}']")))
    network.scheduler.run(1)
    network.add_client("s", "B1")
    network.say("s", Subscribe("s", parse_filter("[class,isPresent,'']")))
    network.scheduler.run(2)
    network.publish("p", *[parse_publication(f"[class,'{kind}']") for kind in "abab"])
    network.scheduler.run(3)
    assert got == [0, 1, 2, 3]


def test_nobody_publishes_under_the_advertisement_of_another():
    network = SimulatedNetwork(RING, PROTOCOLS["filter-general"].make)
    for client in ("p", "q"):
        network.add_client(client, "B0")
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.scheduler.run(1)
    for client in ("p", "q"):
        network.publish(client, parse_publication("[x,1]"))
    network.scheduler.run(2)
    assert [(refusal.peer, refusal.code) for refusal in network.refusals] == [("q", "not-advertised")]
