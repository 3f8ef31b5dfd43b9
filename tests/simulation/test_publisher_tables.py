"""Publishers that move by the real primitive: tables as in a network built with their last places, changes on the path only.

THESIS 4.1.4 and 5.1.3. `tests/routing/test_publisher_migrations.py` has more overlays, with advertisements made by hand.
"""

import numpy as np
import pytest

from overweave.broker.client.migration import Migrations
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.generations import stable_id
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.paths import path_between
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

OVERLAYS = {
    "chain": make_overlay("chain", brokers=6),
    "balanced": make_overlay("balanced", brokers=10, degree=3),
    "random-tree": make_overlay("random-tree", brokers=12, degree_max=4, seed=3),
}
PUBLISHERS, SUBSCRIBERS = ("p0", "p1"), tuple(f"s{number}" for number in range(8))


def built(overlay, places):
    """A network with all clients at their places; no filter covers another one."""
    network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, costs=Costs(link_delay_s=0.01))
    for client, broker in places.items():
        network.add_client(client, broker)
    for number, publisher in enumerate(PUBLISHERS):
        network.say(publisher, Advertise(f"{publisher}/a", parse_filter(f"[kind,eq,'{number}'],[x,>=,0]")))
    for number, subscriber in enumerate(SUBSCRIBERS):
        network.say(subscriber, Subscribe(f"{subscriber}/s", parse_filter(f"[kind,eq,'{number % 2}'],[x,eq,{number}]")))
    network.run_until_quiescent()
    return network


def tables(network):
    """Advertisements and subscriptions with their last hops, and what is forwarded to neighbours; without generations."""
    found = {}
    for id in network.running():
        routing = network.broker(id).routing._only  # the tables of the only epoch
        found[id] = (
            {stable: (entry.filter, entry.peer) for stable, entry in routing._advertisements.items()},
            {stable_id(id): (filter, peer) for id, filter, peer in routing._subscriptions.items()},
            {neighbour: dict(forwarded.forwarded()) for neighbour, forwarded in routing._forwarded.items()},
        )
    return found


def control(network):
    """The control that each broker has exchanged."""
    counts = {id: network.broker(id).statistics() for id in network.running()}
    return {id: (each.control_in, each.control_out) for id, each in counts.items()}


def check_moves(overlay, seed, moves=8):
    random = np.random.default_rng(seed)
    places = {client: str(random.choice(overlay.ids)) for client in (*PUBLISHERS, *SUBSCRIBERS)}
    network, published = built(overlay, places), 0
    for number in range(moves):
        publisher = PUBLISHERS[number % 2]
        old, new = places[publisher], str(random.choice([id for id in overlay.ids if id != places[publisher]]))
        before, control_before = tables(network), control(network)
        order = network.client_processes.migrate(publisher, new)
        for _ in range(100):  # under traffic
            published += 1
            network.publish(publisher, Publication({"kind": str(number % 2), "x": 2 * (published % 4) + number % 2}))
            network.scheduler.run(network.scheduler.now_s + 0.01)
        network.run_until_quiescent()
        network.scheduler.run(network.scheduler.now_s + 1.0)
        assert network.migrations[order.token] is None
        places[publisher] = new
        path, after = set(path_between(overlay, old, new)), tables(network)
        assert {id for id, table in after.items() if table != before[id]} <= path
        assert {id for id, counts in control(network).items() if counts != control_before[id]} <= path
        assert after == tables(built(overlay, places))
    assert len(network.deliveries) == published
    assert set(network.deliveries.values()) == {1}


@pytest.mark.parametrize("shape", OVERLAYS)
def test_tables_after_moves_are_those_of_a_network_built_with_the_last_places(shape):
    for seed in range(3):
        check_moves(OVERLAYS[shape], seed)


def test_a_move_that_withdraws_before_it_advertises_is_caught(monkeypatch):
    """Then all brokers forget the advertisement and learn it again."""
    advertise = Migrations._advertise

    def withdraw_first(self, current, held, at, effects):
        for old in held:
            current.source.withdraw(old, effects)
        advertise(self, current, held, at, effects)

    monkeypatch.setattr(Migrations, "_advertise", withdraw_first)
    with pytest.raises(AssertionError):
        for seed in range(3):
            check_moves(OVERLAYS["random-tree"], seed)
