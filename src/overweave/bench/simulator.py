"""``overweave bench simulator``: hops per second of the simulator with real matching, against a bare heap.

120 brokers with 50 subscriptions each, on a balanced tree, under filter-based routing. A hop is a publication that arrives at a
broker or a client over a link; its cost has everything in it: queue, core, session, matching, acknowledgements. The baseline
is a heap whose actions do nothing but plan the next one, as many at a time as there are in the run; next to it stands a heap
whose actions also match one publication, each at another broker's index, which is the least that a hop of a lone publication
can do. Publications come alone, as from many publishers, or in batches, as from one that has much to say.
"""

import itertools
from collections.abc import Callable
from heapq import heappop, heappush
from time import perf_counter

import numpy as np

from overweave.bench.base import Progress, Row
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.scheduler import Action, gc_frozen
from overweave.language.messages import Advertise, Subscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter, parse_publication
from overweave.matching.index import Index
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

BROKERS = 120
SUBSCRIPTIONS_PER_BROKER = 50
SYMBOLS = 10
PUBLICATIONS = 960
BATCH = 32
TURNS = 5
#: The larger network that is only loaded.
LARGE_BROKERS, LARGE_SUBSCRIPTIONS, LARGE_SYMBOLS = 1_000, 22_500, 40


def run(progress: Progress) -> list[Row]:
    """Load networks, publish, and measure."""
    progress(f"{BROKERS} brokers: loading")
    start = perf_counter()
    network = loaded(BROKERS, BROKERS * SUBSCRIPTIONS_PER_BROKER, SYMBOLS)
    load_s = perf_counter() - start
    rows = [Row(f"{BROKERS} brokers: load {BROKERS * SUBSCRIPTIONS_PER_BROKER:,} subscriptions", "s", load_s)]
    for size, what in ((1, "alone"), (BATCH, f"in batches of {BATCH}")):
        progress(f"{BROKERS} brokers: publishing {what}")
        hop_s, bare_s = _turns(network, size)
        rows.append(Row(f"{BROKERS} brokers: a hop of a publication {what}", "µs", hop_s * 1e6, bare_s * 1e6))
    matched_s, bare_s = _matching_alone()
    rows.append(Row(f"{BROKERS} brokers: to match a lone publication and nothing else", "µs", matched_s * 1e6, bare_s * 1e6))
    progress(f"{LARGE_BROKERS:,} brokers: loading")
    start = perf_counter()
    loaded(LARGE_BROKERS, LARGE_SUBSCRIPTIONS, LARGE_SYMBOLS)
    rows.append(Row(f"{LARGE_BROKERS:,} brokers: load {LARGE_SUBSCRIPTIONS:,} subscriptions", "s", perf_counter() - start))
    return rows


def loaded(brokers: int, subscriptions: int, symbols: int) -> SimulatedNetwork:
    """A network in which every broker knows all it must; each broker has one client with its share of the subscriptions."""
    overlay = make_overlay("balanced", brokers=brokers, degree=3)
    network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make, on_delivery=lambda _: None)
    random = np.random.default_rng(1)
    for symbol in range(symbols):
        network.add_client(f"p{symbol}", overlay.ids[int(random.integers(brokers))])
        stock = parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'S{symbol}'],[price,>=,0],[volume,>=,0]")
        network.say(f"p{symbol}", Advertise(f"a{symbol}", stock))
    network.scheduler.run()
    for broker in overlay.ids:
        network.add_client(f"c{broker}", broker)
    for i in range(subscriptions):
        broker = overlay.ids[i % brokers]
        network.say(f"c{broker}", Subscribe(f"{broker}.{i}", _wanted(symbols, random)))
    network.scheduler.run()
    return network


def _turns(network: SimulatedNetwork, size: int) -> tuple[float, float]:
    """What a hop takes and what an action of a bare heap does, in turn, and the best of each: the machine's speed varies."""
    hops_s, bares_s = [], []
    for _ in range(TURNS):
        hop_s, pending = _hop_s(network, size)
        hops_s.append(hop_s)
        bares_s.append(_bare_s(pending))
    return min(hops_s), min(bares_s)


def _hop_s(network: SimulatedNetwork, size: int) -> tuple[float, int]:
    """What a hop takes, and how many actions were planned at a time; publications are made before the clock runs."""
    random = np.random.default_rng(2)
    symbols = [i % SYMBOLS for i in range(PUBLICATIONS // size)]
    batches = [[_quote(symbol, random) for _ in range(size)] for symbol in symbols]
    before, pending = _hops(network), 0
    with gc_frozen():
        start = perf_counter()
        for symbol, batch in zip(symbols, batches, strict=True):
            network.publish(f"p{symbol}", *batch)
            network.scheduler.run(network.scheduler.now_s + 0.001)
            pending = max(pending, network.scheduler.pending())
        network.scheduler.run()
        taken_s = perf_counter() - start
    return taken_s / (_hops(network) - before), pending


def _matching_alone() -> tuple[float, float]:
    """What it takes to match a publication at one index after the other, planned by a bare heap, and what that takes without."""
    random, indexes = np.random.default_rng(3), []
    for _ in range(2 * BROKERS):  # of brokers and of their clients
        index = Index()
        for i in range(SUBSCRIPTIONS_PER_BROKER):
            index.add(i, _wanted(SYMBOLS, random), f"link {i % 3}")
        indexes.append(index)
    quotes = [_quote(i % SYMBOLS, random) for i in range(PUBLICATIONS)]
    asked = itertools.cycle((index, quote) for quote in quotes for index in indexes)

    def match() -> None:
        index, quote = next(asked)
        index.links(quote)

    taken = [(_bare_s(len(indexes), work=match), _bare_s(len(indexes))) for _ in range(TURNS)]
    return min(with_work for with_work, _ in taken), min(bare for _, bare in taken)


def _wanted(symbols: int, random: np.random.Generator) -> Filter:
    return parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'S{random.integers(symbols)}'],[volume,>,{random.integers(1000)}]")


def _quote(symbol: int, random: np.random.Generator) -> Publication:
    price, volume = random.integers(100), random.integers(1000)
    return parse_publication(f"[class,'STOCK'],[symbol,'S{symbol}'],[price,{price}.5],[volume,{volume}]")


def _hops(network: SimulatedNetwork) -> int:
    statistics = [network.broker(id).statistics() for id in network.running()]
    return sum(counted.publications_in + counted.publications_to_clients for counted in statistics)


def _bare_s(pending: int, actions: int = 200_000, work: Callable[[], None] | None = None) -> float:
    """What an action takes on a heap whose actions plan another one, do some work if there is any, and nothing else."""
    heap: list[tuple[float, int, Action, object]] = []
    count = 0

    def plan(time_s: float) -> None:
        nonlocal count
        count += 1
        heappush(heap, (time_s, count, again, None))

    def again(_: object) -> None:
        if work is not None:
            work()
        if count < actions:
            plan(now_s + 1.0)

    for i in range(pending):
        plan(i / pending)
    start = perf_counter()
    while heap:
        now_s, _, action, argument = heappop(heap)
        action(argument)
    return (perf_counter() - start) / count
