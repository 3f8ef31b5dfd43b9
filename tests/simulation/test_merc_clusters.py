"""MERC between clusters: whichever copy of a publication comes first, and whoever restarts, it reaches all who want it."""

import itertools

import pytest

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

WATCHFUL = BrokerConfig(SessionConfig(retransmit_s=0.2), heartbeat_s=0.1, link_timeout_s=2.0)
#: P in one cluster, S in another, and an edge broker between them.
PAIR = Overlay(
    [Broker("P", cluster="X"), Broker("E", cluster="X", other_clusters=("Y",)), Broker("S", cluster="Y")],
    [("P", "E"), ("E", "S")],
)


def merc(overlay, config=None, delay_s=0.001, **options):
    return SimulatedNetwork(overlay, PROTOCOLS["merc"].make, config=config, costs=Costs(link_delay_s=delay_s), **options)


@pytest.mark.parametrize("between", range(5))
def test_a_copy_that_comes_on_a_longer_way_through_clusters_does_not_stand_for_the_other(between):
    """X: P … E1 and P - E3; Z: E3 - E2; Y: E2 - E1 - S. Who comes first to E1 depends on how many brokers are in between."""
    inner = [f"M{number}" for number in range(between)]
    brokers = [
        *(Broker(id, cluster="X") for id in ("P", *inner)),
        Broker("E1", cluster="X", other_clusters=("Y",)),
        Broker("E2", cluster="Y", other_clusters=("Z",)),
        Broker("E3", cluster="X", other_clusters=("Z",)),
        Broker("S", cluster="Y"),
    ]
    way = ["P", *inner, "E1"]
    links = [*itertools.pairwise(way), ("P", "E3"), ("E3", "E2"), ("E2", "E1"), ("E1", "S")]
    network = merc(Overlay(brokers, links))
    for client, broker, kind in (("p", "P", "P"), ("q", "E2", "Q")):
        network.add_client(client, broker)
        network.say(client, Advertise(f"a{client}", parse_filter(f"[class,eq,'{kind}']")))
    network.scheduler.run(2)
    # The first of them is why E2 hears of what it would not be told else.
    wanted = {"c": ("P", "[class,isPresent,'']"), "z": ("E2", "[class,eq,'P']"), "s": ("S", "[class,eq,'P']")}
    for id, (broker, filter) in wanted.items():
        network.add_client(id, broker)
        network.say(id, Subscribe(id, parse_filter(filter)))
    network.scheduler.run(5)
    for _ in range(10):
        network.publish("p", parse_publication("[class,'P']"))
        network.scheduler.run(network.scheduler.now_s + 1)
    assert set(network.deliveries) == {("p", number, id) for number in range(10) for id in wanted}
    # Brokers send it to each client once, though it comes to edge brokers on several ways.
    assert sum(network.broker(id).statistics().publications_to_clients for id in network.running()) == 30


@pytest.mark.parametrize(("delay_s", "down_s"), [(0.001, 0.05), (0.02, 0.05), (0.001, 1.0)])
@pytest.mark.parametrize("broker", ["E", "S"])
def test_a_broker_that_restarts_at_once_loses_nothing_of_another_cluster(broker, delay_s, down_s):
    network = merc(PAIR, WATCHFUL, delay_s)
    network.add_client("p", "P")
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.scheduler.run(2)
    network.add_client("s", "S")
    network.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
    network.scheduler.run(5)
    network.crash(broker, down_s)
    for number in range(600):
        network.scheduler.run(5 + number * 0.001)
        network.publish("p", parse_publication(f"[x,{number}]"))
    network.run_until_quiescent(60)
    assert dict(network.deliveries) == {("p", number, "s"): 1 for number in range(600)}


def test_what_is_held_for_another_cluster_overtakes_nothing():
    """B0 is in both clusters, its publishers saturate the link to B1, and a broker of the other cluster restarts."""
    brokers = [
        Broker("B0", cluster="X", other_clusters=("Y",)),
        Broker("B1", cluster="Y"),
        *(Broker(id, cluster="X") for id in ("B2", "B3")),
    ]
    config = BrokerConfig(SessionConfig(window=8, acknowledge_every=1, retransmit_s=0.2), heartbeat_s=0.1, link_timeout_s=0.35)
    got = []
    network = merc(
        Overlay(brokers, [("B0", "B1"), ("B0", "B2"), ("B2", "B3")]),
        config,
        on_delivery=lambda parts: got.extend(identity for _, batch in parts for identity in batch.identities()),
    )
    for publisher in "pqrstu":
        network.add_client(publisher, "B0")
        network.say(publisher, Advertise(f"a{publisher}", parse_filter("[x,>=,0]")))
    network.scheduler.run(1)
    network.add_client("z", "B1")
    network.say("z", Subscribe("s", parse_filter("[x,>=,0]")))
    network.scheduler.run(3)
    network.crash("B3", 0.1)
    for number in range(6000):
        network.scheduler.run(3 + number * 0.00005)
        network.publish("pqrstu"[number % 6], parse_publication(f"[x,{number}]"))
    network.run_until_quiescent(60)
    assert {publisher: [number for of, _, number in got if of == publisher] for publisher in "pqrstu"} == {
        publisher: list(range(1000)) for publisher in "pqrstu"
    }


@pytest.mark.parametrize("seed", [6, 8, 9, 30, 32])
def test_a_cluster_that_is_joined_by_links_of_another_is_served(seed):
    """A link between two edge brokers of the same clusters is in the first of these only."""
    overlay = make_overlay(
        "transit-stub", clusters=4, brokers_per_cluster=2, degree=2.5, seed=seed, joined_pairs=4, edge_brokers_per_pair=2
    )
    for cluster in overlay.clusters:
        one, other = overlay.members(cluster)[:2]
        network = merc(overlay)
        network.add_client("p", one)
        network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
        network.scheduler.run(3)
        network.add_client("s", other)
        network.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
        network.scheduler.run(6)
        network.publish("p", parse_publication("[x,1]"))
        network.scheduler.run(10)
        assert network.deliveries == {("p", 0, "s"): 1}, (cluster, one, other)


@pytest.mark.parametrize("delay_s", [0.001, 0.02])
def test_nothing_is_lost_where_another_way_leads_round_a_circle_of_clusters(delay_s):
    clusters = {"P": "X", "S": "Z", "M": "Y", "XY": "XY", "YZ": "YZ", "XZ": "XZ"}
    brokers = [Broker(id, cluster=names[0], other_clusters=tuple(names[1:])) for id, names in clusters.items()]
    links = [("P", "XY"), ("XY", "M"), ("M", "YZ"), ("YZ", "S"), ("P", "XZ"), ("XZ", "S")]
    config = BrokerConfig(SessionConfig(retransmit_s=0.2), heartbeat_s=0.1, link_timeout_s=0.35, undeliverable_timeout_s=5)
    network = merc(Overlay(brokers, links), config, delay_s)
    network.add_client("p", "P")
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.scheduler.run(2)
    network.add_client("s", "S")
    network.say("s", Subscribe("s", parse_filter("[x,>=,0]")))
    for number in range(1000):
        network.scheduler.run(4 + number * 0.004)
        if number == 100:
            network.crash("XZ", 2.0)
        network.publish("p", parse_publication(f"[x,{number}]"))
    network.scheduler.run(30)
    assert network.unsettled() == 0
    assert network.deliveries == {("p", number, "s"): 1 for number in range(1000)}


@pytest.mark.parametrize("between", [1, 4])
@pytest.mark.parametrize("delay_s", [0.001, 0.02])
def test_what_an_edge_broker_has_passed_over_comes_again_when_it_leads_there(between, delay_s):
    """X: P … M and P - E1; Y: M - S - E2; Z: E2 - E1. E1 gets all for t, and passes s over until M has lost its way to S."""
    inner = [f"N{number}" for number in range(between)]
    clusters = {**dict.fromkeys(("P", *inner), "X"), "M": "XY", "S": "Y", "E2": "YZ", "E1": "XZ"}
    brokers = [Broker(id, cluster=names[0], other_clusters=tuple(names[1:])) for id, names in clusters.items()]
    links = [*itertools.pairwise(["P", *inner, "M"]), ("M", "S"), ("S", "E2"), ("E2", "E1"), ("E1", "P")]
    config = BrokerConfig(SessionConfig(retransmit_s=0.2), heartbeat_s=0.1, link_timeout_s=0.35, undeliverable_timeout_s=20)
    network = merc(Overlay(brokers, links), config, delay_s)
    network.add_client("p", "P")
    network.say("p", Advertise("a", parse_filter("[x,>=,0]")))
    network.scheduler.run(2)
    for client, broker in (("s", "S"), ("t", "E2")):
        network.add_client(client, broker)
        network.say(client, Subscribe(client, parse_filter("[x,>=,0]")))
    network.scheduler.run(5)
    network.cut_link(("M", "S"))
    for number in range(500):
        network.scheduler.run(5 + number * 0.002)
        network.publish("p", parse_publication(f"[x,{number}]"))
    network.scheduler.run(40)
    assert network.deliveries == {("p", number, client): 1 for number in range(500) for client in "st"}
