"""The profiler marks what clients received, whatever their subscriptions and however batches come."""

import random

import numpy as np
import pytest

from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.broker.modules import profiler as of_profiler
from overweave.broker.modules import rings as of_rings
from overweave.broker.modules.profiler import Profiler
from overweave.contract.modules import ControlApplied, Routed
from overweave.language.headers import Header, Priority
from overweave.language.messages import Publish, Subscribe, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter
from overweave.matching.index import Index


class View:
    """A broker with some registrations."""

    def __init__(self, registrations=()):
        self._registrations = dict(registrations)

    def registrations(self):
        return self._registrations


def filter_of(dice):
    low = dice.randrange(0, 90, 6)  # several have the same
    return parse_filter(f"[x,>,{low}],[x,<,{low + 20}]")


def bits_of(vector):
    return {at for at in range(len(vector) * 8) if vector[at // 8] >> at % 8 & 1}


def check_marks(profiler, got, bits):
    """Within the windows of publishers, rings have what subscriptions got; outside, nothing else. How many were compared."""
    found = profiler.profiles()
    subscriptions, publishers, vectors = list(found.subscriptions), list(found.publishers), list(found.vectors)
    marked = {
        (subscriptions[s], publishers[p]): (bits_of(vectors[v]), end)
        for s, p, v, end in zip(found.of_subscription, found.of_publisher, found.of_vector, found.ends, strict=True)
    }
    assert marked.keys() <= got.keys()
    newest, compared = {}, 0
    for (_, publisher), numbers in got.items():
        newest[publisher] = max(newest.get(publisher, -1), *numbers)
    for key, numbers in got.items():
        first, end = newest[key[1]] - bits + 1, max(numbers)
        vector, ring_end = marked.get(key, (set(), -1))
        assert vector <= {n % bits for n in numbers if ring_end - bits < n <= ring_end}
        if end >= first:
            assert ring_end == end
            assert {n for n in range(first, end + 1) if n % bits in vector} == {n for n in numbers if n >= first}
            compared += len(numbers)
    return found, compared


def test_marks_are_those_of_a_dumb_recomputation():
    dice = random.Random(4)
    first = filter_of(dice)
    profiler = Profiler("B1", "p", 128, View({("subscription", "c0/0"): ("c0", first), ("advertisement", "a"): ("p0", first)}))
    filters = {"c0": {"c0/0": first}}
    got, sent, ids = {}, {}, 1
    numbers, compared = dict.fromkeys(("p0", "p1", "far"), 0), 0
    for turn in range(400):
        client = dice.choice(("c0", "c1", "c2", "c3"))
        held = filters.setdefault(client, {})
        action = dice.random()
        if action < 0.1 or (action < 0.15 and held):
            id = dice.choice(sorted(held)) if action >= 0.1 else f"{client}/{ids}"
            held[id] = filter_of(dice)
            ids += 1
            profiler.on_control(ControlApplied(Subscribe(id, held[id]), client, True))
        elif action < 0.22 and held:
            id = dice.choice(sorted(held))
            del held[id]
            profiler.on_control(ControlApplied(Unsubscribe(id), client, True))
        else:
            runs = [dice.choice(sorted(numbers)) for _ in range(dice.choice((1, 1, 1, 2)))]
            publishes = []
            for publisher in runs:
                for _ in range(dice.choice((1, 20))):
                    publishes.append(
                        Publish(Publication({"x": dice.randrange(110)}), Header(publisher, numbers[publisher], 1.0 + len(got)))
                    )
                    numbers[publisher] += dice.choice((1, 1, 1, 7))
            batch = RawRows(encode_rows(publishes), len(publishes))
            hopped, to = batch.next_hop(), []
            for name, of in filters.items():
                rows = [i for i, each in enumerate(publishes) if any(matches(f, each.publication) for f in of.values())]
                if rows:
                    to.append((name, hopped.take(np.array(rows))))
                for row in rows:
                    for id, filter in of.items():
                        if matches(filter, publishes[row].publication):
                            header = publishes[row].header
                            got.setdefault((id, header.publisher), []).append(header.sequence)
            peer = "B2" if "far" in runs else runs[0]
            if peer != "B2":
                for each in publishes:
                    sent.setdefault(each.header.publisher, []).append(each)
            profiler.on_routed(Routed(batch, peer, [("B2", hopped), *to], batch), ("B2",))
        if turn % 20 == 19:
            compared += check_marks(profiler, got, 128)[1]
    assert compared > 1_000
    found, _ = check_marks(profiler, got, 128)
    in_force = {each.subscription: each.client for each in found.in_force}
    assert in_force == {id: client for client, of in filters.items() for id in of}
    assert {each.publisher for each in profiler.windows()} == {"p0", "p1"}
    for each in profiler.windows():
        of = sent[each.publisher]
        numbers = [publish.header.sequence for publish in of]
        assert (each.first_sequence, each.last_sequence, each.publications) == (numbers[0], numbers[-1], len(numbers))
        assert bits_of(each.vector) == {n % 128 for n in numbers if n > numbers[-1] - 128}
        assert each.bytes == sum(RawRows(encode_rows([publish]), 1).size_bytes() for publish in of)
        assert each.first_at_s == of[0].header.published_at_s


def test_rows_that_have_left_the_window_are_not_matched(monkeypatch):
    filters = {f"c/{low}": parse_filter(f"[x,>,{low}]") for low in (0, 1)}
    profiler = Profiler("B1", "p", 64, View({("subscription", id): ("c", each) for id, each in filters.items()}))
    matched, slots = [], Index.slots
    monkeypatch.setattr(Index, "slots", lambda index, view: matched.append(len(view.starts)) or slots(index, view))
    got = {(id, "p"): [] for id in filters}
    for first in range(0, 1_000, 10):
        publishes = [Publish(Publication({"x": 2 if n < 900 else 1}), Header("p", n)) for n in range(first, first + 10)]
        batch = RawRows(encode_rows(publishes), 10)
        profiler.on_routed(Routed(batch, "p", [("c", batch.next_hop())], batch), ())
        for n in range(first, first + 10):
            got["c/0", "p"].append(n)
            if n < 900:
                got["c/1", "p"].append(n)
    check_marks(profiler, got, 64)
    assert matched == [64]


def test_a_batch_that_straddles_a_limit_is_marked_up_to_it():
    profiler = Profiler("B1", "p", 64, View([(("subscription", "c/1"), ("c", parse_filter("[x,>,0]")))]))
    profiler.limit({"p": 11})
    for first in (0, 8, 16):
        publishes = [Publish(Publication({"x": 1}), Header("p", first + i)) for i in range(8)]
        batch = RawRows(encode_rows(publishes), 8)
        profiler.on_routed(Routed(batch, "p", [("c", batch.next_hop())], batch), ())
    found = profiler.profiles()
    assert [bits_of(vector) for vector in found.vectors] == [set(range(12))]
    (window,) = profiler.windows()
    assert (window.last_sequence, window.publications) == (11, 12)


def test_control_of_modules_is_not_profiled():
    profiler = Profiler("B1", "p", 64, View())
    profiler.on_control(ControlApplied(Subscribe("s", filter_of(random.Random(1))), "B1/report", True))
    publish = Publish(Publication({"x": 1}), Header("B1/report", 0, priority=Priority.CONTROL))
    batch = RawRows(encode_rows([publish]), 1)
    profiler.on_routed(Routed(batch, "B1/report", [], batch), ())
    assert profiler.profiles().in_force == []
    assert profiler.windows() == []


def test_a_broker_without_room_says_so(monkeypatch):
    monkeypatch.setattr(of_rings, "VECTORS_BYTES_MAX", 16)
    profiler = Profiler("B1", "p", 64, View({("subscription", f"c/{i}"): ("c", parse_filter("[x,>,0]")) for i in range(4)}))
    for start in (0, 3):  # a pair counts once
        batch = RawRows(encode_rows([Publish(Publication({"x": 1}), Header("p", start + i)) for i in range(3)]), 3)
        profiler.on_routed(Routed(batch, "p", [("c", batch.next_hop())], batch), ())
    found = profiler.profiles()
    assert (len(found.ends), found.dropped) == (2, 2)


def test_the_limit_counts_bytes_and_pairs_beyond_it_take_none(monkeypatch):
    monkeypatch.setattr(of_rings, "VECTORS_BYTES_MAX", 1 << 16)
    for bits, room in ((1_280, 409), (1 << 16, 8)):
        profiler = Profiler("B1", "p", bits, View({("subscription", "c/0"): ("c", parse_filter("[x,>,0]"))}))
        publishers = [f"p{number}" for number in range(2_000)]
        for publisher in publishers:
            batch = RawRows(encode_rows([Publish(Publication({"x": 1}), Header(publisher, 0))]), 1)
            profiler.on_routed(Routed(batch, publisher, [("c", batch.next_hop())], batch), ())
        found = profiler.profiles()
        assert (len(found.ends), len(profiler.windows()), profiler.count) == (room, room, room)
        assert profiler._rings._words.nbytes <= max(1 << 16, 16 * bits // 8)
        assert sum(len(rings) for rings in profiler._received.values()) == room
        # Those of the subscription, and those of the publishers.
        assert found.dropped == pytest.approx(2 * (2_000 - room), rel=0.01)


def test_rings_of_subscriptions_withdrawn_long_ago_are_used_again(monkeypatch):
    monkeypatch.setattr(of_profiler, "_WITHDRAWN_MAX", 3)
    profiler = Profiler("B1", "p", 64, View())
    for number in range(20):
        profiler.on_control(ControlApplied(Subscribe(f"c/{number}", parse_filter("[x,>,0]")), "c", True))
        batch = RawRows(encode_rows([Publish(Publication({"x": 1}), Header("p", number))]), 1)
        profiler.on_routed(Routed(batch, "p", [("c", batch.next_hop())], batch), ())
        profiler.on_control(ControlApplied(Unsubscribe(f"c/{number}"), "c", True))
    assert profiler.count == 3
    assert sorted(profiler.profiles().ends) == [17, 18, 19]
