"""Every protocol on every shape it supports, and protocols broken on purpose, which must be caught."""

import random

import pytest

from overweave.errors import InvalidInput
from overweave.language.messages import Subscribe
from overweave.language.relations import covers
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS, forwarded
from overweave.routing.base import Engine
from overweave.routing.filter import FilterBased
from overweave.routing.filter_general import FilterBasedGeneral
from overweave.routing.forwarded import ForwardedSubscriptions
from overweave.routing.identity import PeerToPeer
from overweave.routing.summaries import Covering
from overweave.testing.routing import check_core, check_routing

TREES = {
    "one": make_overlay("chain", brokers=1),
    "chain": make_overlay("chain", brokers=5),
    "star": make_overlay("star", brokers=6),
    "balanced": make_overlay("balanced", brokers=10, degree=3),
    "level-limited": make_overlay("level-limited", width=2, brokers=9),
    "peer": make_overlay("peer", clusters=3, edge_brokers_per_cluster=2),
    "random-tree": make_overlay("random-tree", brokers=12, degree_max=4, seed=3),
}
GRAPHS = {
    "random-graph": make_overlay("random-graph", brokers=9, degree=4, seed=5),
    "transit-stub": make_overlay("transit-stub", clusters=3, brokers_per_cluster=3, degree=4, seed=7),
}
CASES = [
    (protocol, shape, overlay)
    for protocol, entry in PROTOCOLS.items()
    for shape, overlay in (TREES if entry.acyclic else TREES | GRAPHS).items()
]


@pytest.mark.parametrize(("protocol", "shape", "overlay"), CASES, ids=[f"{p}-{s}" for p, s, _ in CASES])
def test_protocol_conforms(protocol, shape, overlay):
    for seed in range(8):
        check_routing(PROTOCOLS[protocol].make, overlay, seed)


@pytest.mark.parametrize(("protocol", "shape", "overlay"), CASES, ids=[f"{p}-{s}" for p, s, _ in CASES])
def test_protocol_conforms_in_whole_brokers(protocol, shape, overlay):
    for seed in range(2):
        check_core(PROTOCOLS[protocol].make, overlay, seed)


def test_flooding_costs_a_hop_per_link_and_filtering_less():
    hops = {
        name: check_routing(PROTOCOLS[name].make, TREES["balanced"], 11, 120).hops
        for name in ("flooding", "filter", "simple", "identity")
    }
    assert hops["filter"] == hops["simple"] < hops["identity"] < hops["flooding"]


class NoSuccessors(ForwardedSubscriptions):
    """Does not forward what a withdrawn subscription covered."""

    def withdraw(self, id):
        _, was_forwarded = super().withdraw(id)
        return [], was_forwarded


class Echo(FilterBased):
    """Sends publications back where they came from."""

    def route(self, batch, origin):
        return super().route(batch, None)


class DeafToLateAdvertisements(FilterBased):
    """Does not pull known subscriptions towards a new advertisement."""

    def _advertise(self, message, peer):
        return [send for send in super()._advertise(message, peer) if send[1] is message]


class KeepsDuplicates(FilterBasedGeneral):
    """Moves a tree to whoever speaks last."""

    def _advertise(self, message, peer):
        if message.id in self._trees and peer in self._neighbours:
            self._trees[message.id].parent = peer
        return super()._advertise(message, peer)


def with_forwarded(forwarded):
    def make(_broker, _overlay, _incarnation):
        routing = FilterBased()
        add = routing.add_neighbour
        routing.add_neighbour = lambda neighbour, kind=None: (add(neighbour), routing._forwarded.update({neighbour: forwarded()}))
        return Engine(routing)

    return make


@pytest.mark.parametrize(
    ("make", "overlay"),
    [
        (with_forwarded(NoSuccessors), TREES["balanced"]),
        (lambda *_: Engine(Echo()), TREES["chain"]),
        (lambda *_: Engine(DeafToLateAdvertisements()), TREES["chain"]),
        (lambda *_: KeepsDuplicates().engine(), GRAPHS["random-graph"]),
    ],
    ids=["no successors", "echo", "deaf", "keeps duplicates"],
)
def test_a_broken_protocol_is_caught(make, overlay):
    with pytest.raises((AssertionError, InvalidInput)):
        for seed in range(30):
            check_routing(make, overlay, seed)


def test_covering_withholds_and_tells_before_it_withdraws():
    wide, narrow = parse_filter("[x,>,1]"), parse_filter("[x,>,5]")
    offers = ForwardedSubscriptions()
    assert offers.offer("wide", wide)
    assert not offers.offer("narrow", narrow)
    assert offers.withdraw("wide") == ([("narrow", narrow)], True)
    assert offers.forwarded() == [("narrow", narrow)]


def test_table_sizes_count_forwarded_filters():
    routing = PeerToPeer("B1", Covering)
    routing.add_neighbour("B2")
    for id, text in {"wide": "[x,>,1]", "narrow": "[x,>,5]"}.items():
        routing.on_control(Subscribe(id, parse_filter(text)), "c")
    assert routing.table_sizes() == {"subscriptions": 2, "forwarded": 1}


def test_covering_among_many_finds_what_trying_all_finds():
    import numpy as np

    random = np.random.default_rng(1)
    offers, known = ForwardedSubscriptions(), {}
    for i in range(400):
        low, width = random.integers(0, 50, 2)
        filter = parse_filter(f"[class,eq,'{'AB'[i % 2]}'],[x,>=,{low}],[x,<=,{low + width}],[y,<,{random.integers(0, 9)}]")
        expected = not any(covers(other, filter) for other in known.values())
        assert offers.offer(f"s{i}", filter) == expected
        if expected:
            known[f"s{i}"] = filter
    assert dict(offers.forwarded()) == known


def test_withdrawals_keep_every_subscription_covered():
    dice = random.Random(2)
    offers, filters, known = ForwardedSubscriptions(), {}, {}
    for number in range(3_000):
        if filters and dice.random() < 0.48:
            id = dice.choice(sorted(filters))
            uncovered, was_forwarded = offers.withdraw(id)
            assert was_forwarded == (id in known)
            del filters[id]
            known.pop(id, None)
            assert known.keys().isdisjoint(each for each, _ in uncovered)
            known.update(uncovered)
        else:
            low = dice.randrange(6)
            filters[f"s{number}"] = filter = parse_filter(f"[x,>,{low}],[x,<,{low + dice.randrange(2, 8)}]")
            if offers.offer(f"s{number}", filter):
                known[f"s{number}"] = filter
        offers.validate()
        assert dict(offers.forwarded()) == known
        assert all(filters[id] == filter for id, filter in known.items())
        assert all(any(covers(wide, filter) for wide in known.values()) for filter in filters.values())
        assert len(offers) == len(filters)


def test_subscriptions_with_equal_filters_are_withdrawn_at_the_same_cost_however_many_they_are(monkeypatch):
    compared = []
    monkeypatch.setattr(forwarded, "covers", lambda wide, narrow: compared.append(wide) or covers(wide, narrow))
    costs = []
    for several in (5, 50):
        offers = ForwardedSubscriptions()
        for number in range(20 * several):
            offers.offer(f"s{number}", parse_filter(f"[kind,eq,'K{number % 20}'],[n,>=,0]"))
        compared.clear()
        for number in range(20 * several):
            uncovered, was_forwarded = offers.withdraw(f"s{number}")
            # Each first one is replaced by the last one of its kind, which goes last.
            assert [id for id, _ in uncovered] == ([f"s{number + 20 * (several - 1)}"] if number < 20 else [])
            assert was_forwarded == (number < 20 or number >= 20 * (several - 1))
        costs.append(len(compared) / several)
    assert costs[1] <= costs[0]
