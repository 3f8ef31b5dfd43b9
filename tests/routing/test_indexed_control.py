"""Filter-based routing with its indexes says what it said when every advertisement was compared with every subscription."""

import random

import pytest

from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.relations import intersects
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing.base import Engine
from overweave.routing.filter import Advertisement, FilterBased
from overweave.routing.filter_general import FilterBasedGeneral
from overweave.testing.routing import check_routing

NEIGHBOURS = ("B2", "B3", "B4")
PEERS = (*NEIGHBOURS, "c1", "c2")


class FilterBasedByProduct(FilterBased):
    """Compares everything with everything."""

    def _advertise(self, message, peer):
        if message.id in self._advertisements:
            return []
        self._advertisements[message.id] = Advertisement(message.id, message.filter, peer, 0)
        sends = [(neighbour, message) for neighbour in self._forwarded if neighbour != peer]
        if peer in self._forwarded:
            for id, filter, of in self._subscriptions.items():
                if of != peer and intersects(message.filter, filter) and self._forwarded[peer].offer(id, filter):
                    sends.append((peer, Subscribe(id, filter)))
        return sends

    def _unadvertise(self, message, peer):
        if message.id not in self._advertisements or self._advertisements[message.id].peer != peer:
            return []
        del self._advertisements[message.id]
        sends = [(neighbour, message) for neighbour in self._forwarded if neighbour != peer]
        if peer in self._forwarded:
            forwarded = self._forwarded[peer]
            for id in [
                id for id, filter, _ in self._subscriptions.items() if id in forwarded and peer not in self._towards(filter)
            ]:
                sends += self._withdraw_forwarded(peer, id)
        return sends

    def _subscribe(self, message, peer):
        if not self._subscriptions.add(message.id, message.filter, peer):
            return []
        return [
            (neighbour, message)
            for neighbour in self._towards(message.filter)
            if neighbour != peer and self._forwarded[neighbour].offer(message.id, message.filter)
        ]

    def _unsubscribe(self, message, peer):
        if self._subscriptions.remove(message.id, peer) is None:
            return []
        return [send for neighbour in self._forwarded for send in self._withdraw_forwarded(neighbour, message.id)]

    def _towards(self, filter):
        called_for = {of for _, advertised, of, _ in self._advertisements.values() if intersects(advertised, filter)}
        return [neighbour for neighbour in self._forwarded if neighbour in called_for]


def some_filter(dice, boxes):
    parts = [f"[class,eq,'{dice.choice(('STOCK', 'BOX'))}']"]
    if not boxes and dice.random() < 0.7:
        parts.append(f"[symbol,{dice.choice(('eq', 'eq', 'neq', 'str-prefix'))},'{dice.choice('abc')}']")
    for attribute in "xy":
        if boxes or dice.random() < 0.5:
            low = dice.randrange(20)
            parts.append(f"[{attribute},>=,{low}],[{attribute},<=,{low + dice.randrange(1 + 8 * boxes)}]")
    return parse_filter(",".join(parts))


def script(seed, steps, boxes):
    """What peers say, sometimes twice, and sometimes what they have no right to say; and neighbours that go and come."""
    dice, ids = random.Random(seed), 0
    for _ in range(steps):
        chance, peer = dice.random(), dice.choice(PEERS)
        if chance < 0.25:
            yield Advertise(f"a{ids}", some_filter(dice, boxes)), peer
        elif chance < 0.65:
            yield Subscribe(f"s{ids}", some_filter(dice, boxes)), peer
        elif chance < 0.8:
            yield Unadvertise(f"a{dice.randrange(ids + 1)}"), peer
        elif chance < 0.98:
            yield Unsubscribe(f"s{dice.randrange(ids + 1)}"), peer
        else:
            yield None, dice.choice(NEIGHBOURS)
        ids += dice.random() < 0.9


@pytest.mark.parametrize("boxes", [False, True], ids=["stock", "boxes"])
@pytest.mark.parametrize("seed", range(6))
def test_indexes_change_nothing_on_the_wire(seed, boxes):
    ours, plain = FilterBased(), FilterBasedByProduct()
    for neighbour in NEIGHBOURS:
        ours.add_neighbour(neighbour)
        plain.add_neighbour(neighbour)
    said = 0
    for message, peer in script(seed, 700, boxes):
        if message is None:
            assert list(ours.remove_neighbour(peer)) == list(plain.remove_neighbour(peer))
            ours.add_neighbour(peer)
            plain.add_neighbour(peer)
            continue
        sends = list(ours.on_control(message, peer))
        ours.validate()
        assert sends == list(plain.on_control(message, peer)), f"{message} of {peer}"
        said += len(sends)
        assert ours.table_sizes() == plain.table_sizes()
    assert said > 300
    for neighbour in NEIGHBOURS:
        assert list(ours.snapshot_for(neighbour)) == list(plain.snapshot_for(neighbour))
        assert list(ours.learned_from(neighbour)) == list(plain.learned_from(neighbour))


def test_indexes_change_nothing_in_a_network():
    overlay = make_overlay("balanced", brokers=10, degree=3)
    for seed in range(3):
        traces = []
        for routing in (FilterBased, FilterBasedByProduct):
            trace = []

            class Traced(routing):
                def on_control(self, message, peer, trace=trace):
                    sends = list(super().on_control(message, peer))
                    trace.append((message, peer, sends))
                    return sends

            check_routing(lambda *_, traced=Traced: Engine(traced()), overlay, seed, steps=120)
            traces.append(trace)
        assert traces[0] == traces[1]


def test_trees_are_looked_up_by_the_paths_they_have():
    overlay, brokers = make_overlay("random-graph", brokers=9, degree=4, seed=5), []

    class Checked(FilterBasedGeneral):
        def on_control(self, message, peer):
            sends = list(super().on_control(message, peer))
            self.validate()
            return sends

    def make(broker, _overlay, _incarnation):
        brokers.append(Checked(broker))
        return brokers[-1].engine()

    check_routing(make, overlay, seed=1, steps=120)
    assert not any(len(broker._routed) or len(broker._subscriptions.local_index) for broker in brokers)
