"""The conformance check of routing protocols, on a network that loses nothing but takes its time.

Brokers are nothing but their routing protocol, links are queues, and which of them moves next is up to the seed. Whatever
clients do, when the network has come to rest every publication must reach exactly the subscriptions that the naive oracle
names, once, and when everything is withdrawn all tables must be empty.
"""

from collections import Counter, deque
from collections.abc import Callable

import numpy as np

from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.routing.base import Origin, Routing

SYMBOLS = ("IBM", "YHOO", "MSFT")


class ToyNetwork:
    """Routing protocols joined by queues."""

    def __init__(self, overlay: Overlay, make: Callable[[str, Overlay], Routing], seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.brokers = {id: make(id, overlay) for id in overlay.ids}
        self._queues: dict[tuple[str, str], deque[Control | Publish]] = {}
        for id, routing in self.brokers.items():
            for neighbour in overlay.neighbours(id):
                routing.add_neighbour(neighbour)
                self._queues[id, neighbour] = deque()
        #: Who got what: (publisher, sequence, subscription).
        self.deliveries: Counter[tuple[str, int, str]] = Counter()
        #: How many publications arrived at a broker over a link, now and when a client spoke last.
        self.hops = 0
        self._hops_before = 0

    def say(self, broker: str, message: Control | Publish) -> None:
        """A client of ``broker`` says something."""
        self._hops_before = self.hops
        self._take(broker, message, None)

    def rest(self) -> None:
        """Let all queues run empty, in an order that the seed decides."""
        steps = 0
        while busy := [link for link, queue in self._queues.items() if queue]:
            steps += 1
            assert steps < 100_000, "the network does not come to rest"
            source, target = busy[int(self.random.integers(len(busy)))]
            self._take(target, self._queues[source, target].popleft(), source)

    def _take(self, broker: str, message: Control | Publish, origin: Origin) -> None:
        routing = self.brokers[broker]
        if not isinstance(message, Publish):
            for neighbour, sent in routing.handle(message, origin):
                self._queues[broker, neighbour].append(sent)
            return
        self.hops += origin is not None
        assert self.hops < 5_000 + self._hops_before, "publications run in circles"
        route = routing.route(message, origin)
        for neighbour in route.neighbours:
            self._queues[broker, neighbour].append(route.publish)
        for subscription in route.subscriptions:
            self.deliveries[message.header.publisher, message.header.sequence, subscription] += 1


def check_routing(make: Callable[[str, Overlay], Routing], overlay: Overlay, seed: int, steps: int = 60) -> ToyNetwork:
    """Raise an AssertionError unless the protocol delivers exactly what it should throughout a random script."""
    network = ToyNetwork(overlay, make, seed)
    script = _Script(network, overlay, seed)
    for _ in range(steps):
        script.step()
    script.withdraw_all()
    for id, routing in network.brokers.items():
        assert not any(routing.sizes().values()), f"{id} still has {routing.sizes()} after all was withdrawn"
    return network


class _Script:
    """Clients that advertise, subscribe, publish and withdraw at random."""

    def __init__(self, network: ToyNetwork, overlay: Overlay, seed: int) -> None:
        self._network = network
        self._ids = overlay.ids
        self._random = np.random.default_rng(seed + 1)
        self._advertisements: dict[str, tuple[str, Filter, str]] = {}
        self._subscriptions: dict[str, tuple[str, Filter]] = {}
        self._count = 0

    def step(self) -> None:
        chance = self._random.random()
        if chance < 0.15 or not self._advertisements:
            self._advertise()
        elif chance < 0.5:
            self._subscribe()
        elif chance < 0.6 and self._subscriptions:
            self._unsubscribe(self._pick(list(self._subscriptions)))
        elif chance < 0.65:
            self._unadvertise(self._pick(list(self._advertisements)))
        else:
            self._publish()

    def withdraw_all(self) -> None:
        for id in self._shuffled(list(self._subscriptions)):
            self._unsubscribe(id)
        for id in self._shuffled(list(self._advertisements)):
            self._unadvertise(id)
        self._network.rest()

    def _advertise(self) -> None:
        broker, symbol = self._pick(self._ids), self._pick(SYMBOLS)
        id = self._new("a")
        filter = parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'{symbol}'],[price,isPresent,0],[volume,>=,0]")
        self._advertisements[id] = (broker, filter, symbol)
        self._network.say(broker, Advertise(id, filter))

    def _unadvertise(self, id: str) -> None:
        broker, _, _ = self._advertisements.pop(id)
        self._network.say(broker, Unadvertise(id))

    def _subscribe(self) -> None:
        broker, id = self._pick(self._ids), self._new("s")
        parts = ["[class,eq,'STOCK']"]
        if self._random.random() < 0.7:
            parts.append(f"[symbol,eq,'{self._pick(SYMBOLS)}']")
        parts += [
            f"[{attribute},{self._pick(('>', '<', '>=', '<='))},{self._random.integers(0, 10)}]"
            for attribute in ("price", "volume")
            if self._random.random() < 0.6
        ]
        self._subscriptions[id] = (broker, parse_filter(",".join(parts)))
        self._network.say(broker, Subscribe(id, self._subscriptions[id][1]))

    def _unsubscribe(self, id: str) -> None:
        broker, _ = self._subscriptions.pop(id)
        self._network.say(broker, Unsubscribe(id))

    def _publish(self) -> None:
        """Publish when all is quiet, and see who got it."""
        self._network.rest()
        broker, _, symbol = self._advertisements[self._pick(list(self._advertisements))]
        price, volume = self._random.integers(0, 10, 2)
        publication = parse_publication(f"[class,'STOCK'],[symbol,'{symbol}'],[price,{price}],[volume,{volume}]")
        self._count += 1
        self._network.deliveries.clear()
        self._network.say(broker, Publish(publication, Header(publisher="p", sequence=self._count)))
        self._network.rest()
        expected = Counter(
            ("p", self._count, id) for id, (_, filter) in self._subscriptions.items() if matches(filter, publication)
        )
        assert self._network.deliveries == expected, f"{publication} from {broker}: {self._network.deliveries} != {expected}"

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _pick(self, several: list[str] | tuple[str, ...]) -> str:
        return several[int(self._random.integers(len(several)))]

    def _shuffled(self, several: list[str]) -> list[str]:
        return [several[i] for i in self._random.permutation(len(several))]
