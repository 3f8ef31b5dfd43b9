"""``overweave bench control``: what advertisements and subscriptions cost filter-based routing, against comparing all with all.

A broker with four neighbours has 1,000 advertisements and up to 100,000 subscriptions, told to it by other brokers and by
clients. Of quotes most filters fix class and symbol; boxes have a class in common and differ by ranges alone. Sizes are such that
at most about a hundred subscriptions intersect an advertisement. The baseline asks `intersects` of each pair that routing has to
decide on, in the same run. Then a simulated network gets the clients of MINIMAL at its largest (workload ``boxes``): every
advertisement reaches all brokers, and all subscriptions are in force. Figures are times of the processor.
"""

import itertools
from collections.abc import Callable, Sequence
from time import process_time
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from overweave.bench.base import Progress, Row
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.scheduler import gc_frozen
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.relations import intersects
from overweave.language.syntax import parse_filter
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.routing.base import Routing

SUBSCRIPTIONS = (1_000, 10_000, 100_000)
ADVERTISEMENTS = 1_000
NEIGHBOURS = ("B2", "B3", "B4", "B5")
#: The number measured one by one; of the baseline only a few, because it is slow.
ROUNDS, BASELINE_ROUNDS = 100, 2
#: The largest number of clients in MINIMAL: a quarter of them publish.
BROKERS, PUBLISHERS, SUBSCRIBERS = 1_030, 1_000, 3_000
DOMAIN = 1_000.0
#: How much less time the indexes are to take at the largest size.
RATIO_MIN = {"Subscribe": 2.0, "Unadvertise": 20.0}


def run(progress: Progress, subscriptions: Sequence[int] = SUBSCRIPTIONS) -> list[Row]:
    """Measure a broker at each size, then load the network."""
    rows: list[Row] = []
    for (name, make), count in itertools.product({"quotes": _quotes, "boxes": _boxes}.items(), subscriptions):
        progress(f"{name}, {count:,} subscriptions")
        rows += _at_a_broker(f"{name}, {count:,} subscriptions", make(count), largest=count == max(SUBSCRIPTIONS))
    progress(f"{BROKERS:,} brokers: loading")
    return [*rows, *_network(BROKERS, PUBLISHERS, SUBSCRIBERS)]


class _Filters(NamedTuple):
    advertisements: list[Filter]
    subscriptions: list[Filter]


def _quotes(count: int) -> _Filters:
    """Advertisements of one symbol each, and subscriptions to one, with a threshold."""
    random = np.random.default_rng(1)
    thresholds = random.integers(0, 1_000, count).tolist()
    symbols = random.integers(0, ADVERTISEMENTS, count).tolist()
    return _Filters(
        [
            parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'S{symbol}'],[price,>=,0],[volume,>=,0]")
            for symbol in range(ADVERTISEMENTS)
        ],
        [
            parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'S{symbol}'],[volume,>,{threshold}]")
            for symbol, threshold in zip(symbols, thresholds, strict=True)
        ],
    )


def _boxes(count: int) -> _Filters:
    """Boxes whose sides are up to a thirty-second of the domain, so that about one in a thousand meets another one."""
    random, side = np.random.default_rng(2), DOMAIN / 32
    corners = random.uniform(0, DOMAIN - side, (ADVERTISEMENTS + count, 2))
    filters = _filters(np.stack([corners, corners + random.uniform(0, side, corners.shape)], axis=2))
    return _Filters(filters[:ADVERTISEMENTS], filters[ADVERTISEMENTS:])


def _filters(sides: NDArray[np.float64]) -> list[Filter]:
    return [
        parse_filter(f"[class,eq,'BOX'],[x,>=,{left}],[x,<=,{right}],[y,>=,{bottom}],[y,<=,{top}]")
        for (left, right), (bottom, top) in np.round(sides, 3).tolist()
    ]


def _at_a_broker(title: str, filters: _Filters, largest: bool) -> list[Row]:
    routing = _loaded(filters)
    advertisements, subscriptions = filters
    intersecting = [sum(intersects(each, wanted) for wanted in subscriptions) for each in advertisements[:BASELINE_ROUNDS]]
    wanted = subscriptions[:ROUNDS]
    again = [(id, filter, NEIGHBOURS[id % len(NEIGHBOURS)]) for id, filter in enumerate(advertisements[:ROUNDS])]
    for id, filter in enumerate(wanted):  # what comes once more is new to the tables, not to the caches
        routing.on_control(Subscribe(f"warm {id}", filter), "c2")
        routing.on_control(Unsubscribe(f"warm {id}"), "c2")
    subscribe_s = _each_s(routing, [(Subscribe(f"more {id}", filter), "c2") for id, filter in enumerate(wanted)])
    for id in range(len(wanted)):
        routing.on_control(Unsubscribe(f"more {id}"), "c2")
    unadvertise_s = _each_s(routing, [(Unadvertise(f"a{id}"), peer) for id, _, peer in again])
    advertise_s = _each_s(routing, [(Advertise(f"a{id}", filter), peer) for id, filter, peer in again])
    plain_subscribe_s = _seconds(lambda: [_plain_towards(advertisements, each) for each in wanted]) / len(wanted)
    plain_s = _seconds(lambda: [_plain_candidates(each, subscriptions) for each in advertisements[:BASELINE_ROUNDS]])
    plain_s /= BASELINE_ROUNDS
    ratio_min = RATIO_MIN if largest else {}
    return [
        Row(f"{title}: intersect an advertisement", "subscriptions", float(np.mean(intersecting))),
        Row(f"{title}: Subscribe", "ms", subscribe_s * 1e3, plain_subscribe_s * 1e3, ratio_min=ratio_min.get("Subscribe")),
        Row(f"{title}: Advertise", "ms", advertise_s * 1e3, plain_s * 1e3),
        Row(f"{title}: Unadvertise", "ms", unadvertise_s * 1e3, plain_s * 1e3, ratio_min=ratio_min.get("Unadvertise")),
    ]


def _loaded(filters: _Filters) -> Routing:
    """A broker that knows all of them, each neighbour its share of the advertisements and half of the subscriptions."""
    routing = PROTOCOLS["filter"].make("B1", make_overlay("star", brokers=len(NEIGHBOURS) + 1)).routing
    for neighbour in NEIGHBOURS:
        routing.add_neighbour(neighbour)
    peers = (*NEIGHBOURS, *["c1"] * len(NEIGHBOURS))
    for id, filter in enumerate(filters.advertisements):
        routing.on_control(Advertise(f"a{id}", filter), NEIGHBOURS[id % len(NEIGHBOURS)])
    for id, filter in enumerate(filters.subscriptions):
        routing.on_control(Subscribe(f"s{id}", filter), peers[id % len(peers)])
    return routing


def _plain_towards(advertisements: list[Filter], wanted: Filter) -> set[str]:
    """Where a subscription goes: for each neighbour, whether one of its advertisements intersects it."""
    shares = {neighbour: advertisements[place :: len(NEIGHBOURS)] for place, neighbour in enumerate(NEIGHBOURS)}
    return {neighbour for neighbour, share in shares.items() if any(intersects(each, wanted) for each in share)}


def _plain_candidates(advertisement: Filter, subscriptions: list[Filter]) -> list[Filter]:
    return [wanted for wanted in subscriptions if intersects(advertisement, wanted)]


def _each_s(routing: Routing, messages: list[tuple[Control, str]]) -> float:
    """What one of them takes; all that is sent because of it is made, too."""
    return _seconds(lambda: [list(routing.on_control(message, peer)) for message, peer in messages]) / len(messages)


def _seconds(work: Callable[[], object]) -> float:
    start = process_time()
    work()
    return process_time() - start


def _network(brokers: int, publishers: int, subscribers: int) -> list[Row]:
    overlay, random = make_overlay("balanced", brokers=brokers, degree=3), np.random.default_rng(1)
    sides = np.sort(random.uniform(0, DOMAIN, (publishers + subscribers, 2, 2)), axis=2)
    filters, homes = _filters(sides), random.choice(overlay.ids, publishers + subscribers).tolist()
    said: list[Control] = [Advertise(f"a{id}", filter) for id, filter in enumerate(filters[:publishers])]
    said += [Subscribe(f"s{id}", filter) for id, filter in enumerate(filters[publishers:])]
    title = f"{brokers:,} brokers, {publishers:,} boxes advertised"
    start = process_time()
    with gc_frozen():
        network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, on_delivery=lambda _: None)
        network.scheduler.run()
        for messages in (said[:publishers], said[publishers:]):
            for message, home in zip(messages, homes[: len(messages)], strict=True):
                network.add_client(message.id, home)
                network.say(message.id, message)
            homes = homes[len(messages) :]
            network.scheduler.run()
    taken_s = process_time() - start
    assert not network.unsettled(), "everything is in force when nothing is left to happen"
    told = sum(network.broker(id).statistics().control_out for id in overlay.ids)
    return [
        Row(f"{title}: have {subscribers:,} subscriptions in force", "s", taken_s),
        Row(f"{title}: control messages between brokers", "messages", float(told)),
    ]
