"""``overweave bench simulator``: events per second of the simulator with real matching, against a bare heap.

120 brokers with 50 subscriptions each, on a balanced tree, under filter-based routing. The baseline is a heap that does nothing
but put in and take out as many entries, so the ratio says what cores, sessions and matching leave of the speed of
simulation. A hop is a publication that arrives at a broker over a link.
"""

import heapq
from time import perf_counter

import numpy as np

from overweave.bench.base import Progress, Row
from overweave.drivers.sim.kernel import nothing_dies
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS

BROKERS = 120
SUBSCRIPTIONS_PER_BROKER = 50
SYMBOLS = 10
PUBLICATIONS = 600


def run(progress: Progress) -> list[Row]:
    """Load the network, publish, and measure."""
    progress(f"{BROKERS} brokers: loading")
    start = perf_counter()
    network = _loaded()
    load_s = perf_counter() - start
    progress(f"{BROKERS} brokers: publishing")
    events_before, hops_before = network.kernel.count, _hops(network)
    start = perf_counter()
    with nothing_dies():
        _publish(network)
    taken_s = perf_counter() - start
    events, hops = network.kernel.count - events_before, _hops(network) - hops_before
    progress("the bare heap")
    return [
        Row(f"{BROKERS} brokers: load {BROKERS * SUBSCRIPTIONS_PER_BROKER:,} subscriptions", "s", load_s),
        Row("an event", "µs", taken_s / events * 1e6, _bare_heap_s(events) / events * 1e6),
        Row("a hop of a publication, all its events", "µs", taken_s / hops * 1e6),
    ]


def _loaded() -> SimulatedNetwork:
    overlay = make_overlay("balanced", brokers=BROKERS, degree=3)
    network = SimulatedNetwork(overlay, PROTOCOLS["filter"].make)
    random = np.random.default_rng(1)
    for symbol in range(SYMBOLS):
        network.add_client(f"p{symbol}", overlay.ids[int(random.integers(BROKERS))])
        stock = parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'S{symbol}'],[price,>=,0],[volume,>=,0]")
        network.say(f"p{symbol}", Advertise(f"a{symbol}", stock))
    network.settle()
    for broker in overlay.ids:
        network.add_client(f"c{broker}", broker)
        for i in range(SUBSCRIPTIONS_PER_BROKER):
            text = f"[class,eq,'STOCK'],[symbol,eq,'S{random.integers(SYMBOLS)}'],[volume,>,{random.integers(1000)}]"
            network.say(f"c{broker}", Subscribe(f"{broker}.{i}", parse_filter(text)))
    network.settle()
    network.kernel.run(network.kernel.now_s + 1.0)
    return network


def _publish(network: SimulatedNetwork) -> None:
    random = np.random.default_rng(2)
    for i in range(PUBLICATIONS):
        symbol = i % SYMBOLS
        text = f"[class,'STOCK'],[symbol,'S{symbol}'],[price,{random.integers(100)}.5],[volume,{random.integers(1000)}]"
        network.publish(f"p{symbol}", parse_publication(text))
        network.kernel.run(network.kernel.now_s + 0.001)
    network.settle()


def _hops(network: SimulatedNetwork) -> int:
    return sum(network.broker(id).statistics().publications_in for id in network.running())


def _bare_heap_s(events: int) -> float:
    heap: list[tuple[float, int, None]] = [(float(i), i, None) for i in range(1000)]
    start = perf_counter()
    for i in range(events):
        time_s, _, _ = heapq.heappop(heap)
        heapq.heappush(heap, (time_s + 1000.0, i, None))
    return perf_counter() - start
