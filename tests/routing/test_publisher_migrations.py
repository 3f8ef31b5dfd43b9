"""Publishers that move: tables are those of a network that was built with the publishers in their last places.

THESIS 4.1.4 and 5.1.3: a broker advertises the next generation, and only brokers on the path between the two change their tables.
"""

import numpy as np
import pytest

from overweave.broker.control_plane import _key as state_key
from overweave.language.generations import at_generation, stable_id
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.paths import path_between
from overweave.overlay.shapes import make_overlay
from overweave.routing.base import Engine
from overweave.routing.filter import FilterBased
from overweave.testing.toy_network import ToyNetwork

SYMBOLS = ("IBM", "YHOO", "MSFT")
OVERLAYS = {
    "chain": make_overlay("chain", brokers=6),
    "star": make_overlay("star", brokers=5),
    "balanced": make_overlay("balanced", brokers=10, degree=3),
    "random-tree": make_overlay("random-tree", brokers=14, degree_max=4, seed=3),
}


class Recorded(ToyNetwork):
    """Knows which brokers have exchanged control messages."""

    def __init__(self, overlay, routing, seed):
        self.exchanged = set()
        super().__init__(overlay, lambda *_: Engine(routing()), seed)

    def _put(self, broker, neighbour, what):
        if isinstance(what, Control):
            self.exchanged |= {broker, neighbour}
        super()._put(broker, neighbour, what)


class Script:
    """Publishers and subscribers at random brokers; publishers move."""

    def __init__(self, overlay, routing, seed, covering):
        self.overlay, self.routing, self.covering = overlay, routing, covering
        self.random = np.random.default_rng(seed)
        self.network = Recorded(overlay, routing, seed)
        #: The broker and the generation of each advertisement, and the generations that are not withdrawn at earlier brokers.
        self.publishers, self.earlier, self.subscriptions = {}, [], {}
        for number in range(4):
            self.publishers[f"a{number}"] = (self.any_broker(), 0)
            self.say(self.publishers[f"a{number}"][0], Advertise(f"a{number}", self.advertised(f"a{number}")))
        for number in range(12):
            self.subscribe(f"s{number}")
        self.rest()

    def any_broker(self):
        return self.overlay.ids[int(self.random.integers(len(self.overlay)))]

    def say(self, broker, message):
        self.network.say(broker, message)

    def rest(self):
        self.network.rest()
        for routing in self.network.brokers.values():
            routing.validate()

    def advertised(self, id):
        return parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'{SYMBOLS[int(id[1:]) % 3]}'],[x,isPresent,0]")

    def subscribe(self, id):
        symbol = SYMBOLS[int(self.random.integers(3))]
        x = f"[x,>=,{self.random.integers(9)}]" if self.covering else f"[x,eq,{id[1:]}]"
        self.subscriptions[id] = (self.any_broker(), parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'{symbol}'],{x}"))
        self.say(self.subscriptions[id][0], Subscribe(id, self.subscriptions[id][1]))

    def advertise_again(self, id):
        """The next generation at another broker."""
        old, generation = self.publishers[id]
        new = self.any_broker()
        self.publishers[id] = (new, generation + 1)
        self.earlier.append((old, at_generation(id, generation)))
        self.say(new, Advertise(at_generation(id, generation + 1), self.advertised(id)))
        return old, new

    def withdraw_earlier(self):
        broker, id = self.earlier.pop(int(self.random.integers(len(self.earlier))))
        self.say(broker, Unadvertise(id))

    def publish_all(self):
        for id, (broker, _) in self.publishers.items():
            text = f"[class,'STOCK'],[symbol,'{SYMBOLS[int(id[1:]) % 3]}'],[x,{self.random.integers(12)}]"
            publication = parse_publication(text)
            expected = {s: 1 for s, (_, filter) in self.subscriptions.items() if matches(filter, publication)}
            assert self.network.publish(broker, id, publication) == expected

    def tables(self):
        return {id: tables_of(routing) for id, routing in self.network.brokers.items()}

    def fresh_tables(self):
        fresh = Recorded(self.overlay, self.routing, 0)
        for id, (broker, _) in self.publishers.items():
            fresh.say(broker, Advertise(id, self.advertised(id)))
        for id, (broker, filter) in self.subscriptions.items():
            fresh.say(broker, Subscribe(id, filter))
        fresh.rest()
        return {id: tables_of(routing) for id, routing in fresh.brokers.items()}

    def withdraw_all(self, rest):
        last = [(broker, Unadvertise(at_generation(id, generation))) for id, (broker, generation) in self.publishers.items()]
        last += [(broker, Unsubscribe(id)) for id, (broker, _) in self.subscriptions.items()]
        last += [(broker, Unadvertise(id)) for broker, id in self.earlier]
        for number in self.random.permutation(len(last)):
            self.say(*last[number])
            if rest:
                self.rest()
        self.rest()
        assert not any(any(sizes.values()) for sizes in self.network.sizes().values()), self.network.sizes()


def tables_of(routing):
    """Advertisements and subscriptions with their last hops, and what is forwarded; without generations."""
    return (
        {stable: (entry.filter, entry.peer) for stable, entry in routing._advertisements.items()},
        {id: (filter, peer) for id, filter, peer in routing._subscriptions.items()},
        {neighbour: dict(forwarded.forwarded()) for neighbour, forwarded in routing._forwarded.items()},
    )


def check_moves(overlay, seed, routing=FilterBased, covering=False, moves=12):
    """Moves one after the other."""
    script = Script(overlay, routing, seed, covering)
    for number in range(moves):
        before = script.tables()
        script.network.exchanged.clear()
        old, new = script.advertise_again(f"a{script.random.integers(4)}")
        script.rest()
        script.withdraw_earlier()
        script.rest()
        path = set(path_between(overlay, old, new))
        assert script.network.exchanged <= path, f"move {number} from {old} to {new}"
        tables = script.tables()
        assert {id for id, table in tables.items() if table != before[id]} <= path
        if not covering:
            assert tables == script.fresh_tables()
        script.publish_all()
        if number % 3 == 0:
            script.subscribe(f"s{12 + number}")
            script.rest()
    script.withdraw_all(rest=seed % 2 == 0)


def check_overlapping_moves(overlay, seed, routing=FilterBased):
    """Moves that begin before earlier ones have ended, and withdrawals that chase them."""
    script = Script(overlay, routing, seed, covering=False)
    for _ in range(4):
        for _ in range(int(script.random.integers(2, 6))):
            script.advertise_again(f"a{script.random.integers(2)}")
            script.network.step(int(script.random.integers(6)))
            if script.earlier and script.random.random() < 0.6:
                script.withdraw_earlier()
                script.network.step(int(script.random.integers(6)))
        script.rest()
        while script.earlier:
            script.withdraw_earlier()
        script.rest()
        assert script.tables() == script.fresh_tables()
        script.publish_all()
    for _ in range(3):
        script.advertise_again("a0")
    script.withdraw_all(rest=False)


@pytest.mark.parametrize("covering", [False, True], ids=["distinct", "covering"])
@pytest.mark.parametrize("shape", OVERLAYS)
def test_tables_are_those_of_a_network_built_with_the_last_places(shape, covering):
    for seed in range(6):
        check_moves(OVERLAYS[shape], seed, covering=covering)


@pytest.mark.parametrize("shape", OVERLAYS)
def test_withdrawals_may_chase_moves(shape):
    for seed in range(25):
        check_overlapping_moves(OVERLAYS[shape], seed)


class ForwardsToAll(FilterBased):
    """Floods later generations."""

    def _replace(self, stable, known, entry, message):
        sends = super()._replace(stable, known, entry, message)
        told = {neighbour for neighbour, sent in sends if sent is message}
        return [*((neighbour, message) for neighbour in self._forwarded if neighbour not in {entry.peer, *told}), *sends]


class IgnoresGenerations(FilterBased):
    """Takes a later generation for a known advertisement."""

    def _advertise(self, message, peer):
        return [] if stable_id(message.id) in self._advertisements else super()._advertise(message, peer)


class WithdrawsAnyGeneration(FilterBased):
    """Removes an advertisement at the withdrawal of an earlier generation."""

    def _unadvertise(self, message, peer):
        return super()._unadvertise(Unadvertise(at_generation(message.id, 1 << 20)), peer)


class KeepsOldOffers(FilterBased):
    """Withdraws nothing from the old last hop."""

    def _replace(self, stable, known, entry, message):
        return [send for send in super()._replace(stable, known, entry, message) if not isinstance(send[1], Unsubscribe)]


class AnswersNothing(FilterBased):
    """Leaves a neighbour with a lower generation alone."""

    def _advertise(self, message, peer):
        return [send for send in super()._advertise(message, peer) if not isinstance(send[1], Advertise) or send[0] != peer]


@pytest.mark.parametrize(
    ("check", "routing"),
    [
        (check_moves, ForwardsToAll),
        (check_moves, IgnoresGenerations),
        (check_moves, KeepsOldOffers),
        (check_overlapping_moves, WithdrawsAnyGeneration),
        (check_overlapping_moves, AnswersNothing),
    ],
)
def test_a_broken_protocol_is_caught(check, routing):
    with pytest.raises(AssertionError):
        for seed in range(40):
            check(OVERLAYS["random-tree"], seed, routing)


def test_a_restarted_last_hop_may_announce_an_earlier_generation():
    routing, filter = FilterBased(), parse_filter("[x,>,1]")
    for neighbour in ("B2", "B3"):
        routing.add_neighbour(neighbour)
    routing.on_control(Advertise(at_generation("a", 2), filter), "B2")
    assert routing.on_control(Advertise(at_generation("a", 1), filter), "B3") == [
        ("B3", Advertise(at_generation("a", 2), filter))
    ]
    assert routing.on_control(Advertise(at_generation("a", 1), filter), "c") == []
    # The last hop is the source of the entry: its withdrawal of the earlier generation must find it.
    assert routing.on_control(Advertise(at_generation("a", 1), filter), "B2") == []
    assert list(routing.learned_from("B2")) == [Advertise(at_generation("a", 1), filter)]
    assert routing.on_control(Unadvertise("a"), "B2") == []
    withdrawal = Unadvertise(at_generation("a", 1))
    assert routing.on_control(withdrawal, "B2") == [("B3", withdrawal)]
    assert not any(routing.table_sizes().values())


def test_a_later_generation_with_another_filter_is_for_all_brokers():
    routing, narrow, wide = FilterBased(), parse_filter("[x,>,5],[x,<,7]"), parse_filter("[x,>,1]")
    for neighbour in ("B2", "B3", "B4"):
        routing.add_neighbour(neighbour)
    routing.on_control(Advertise("a", narrow), "B2")
    routing.on_control(Subscribe("s", parse_filter("[x,eq,2]")), "c")
    later = Advertise(at_generation("a", 1), wide)
    sends = routing.on_control(later, "B3")
    assert {to for to, message in sends if message is later} == {"B2", "B4"}
    assert ("B3", Subscribe("s", parse_filter("[x,eq,2]"))) in sends
    routing.validate()


def test_what_a_restarted_neighbour_announces_is_not_stale_in_any_generation():
    first, later = Advertise("a", parse_filter("[x,>,1]")), Advertise(at_generation("a", 2), parse_filter("[x,>,1]"))
    assert state_key(first) == state_key(later) == state_key(Unadvertise(later.id))
    assert state_key(Subscribe("a", first.filter)) != state_key(Subscribe(later.id, first.filter))
