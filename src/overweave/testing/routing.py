"""The conformance check of routing protocols: random scripts of clients, and an oracle that knows no network.

Whatever clients do, when the network has come to rest every publication must reach exactly the subscriptions that the naive
oracle names, once, and when everything is withdrawn all tables must be empty. It runs in two worlds: `ToyNetwork`, where
brokers are nothing but their protocol and which link moves next is up to the seed; and `CoreNetwork`, the simulator with
whole broker cores, where clients also come and go.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Protocol

import numpy as np

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.contract.effects import OpenLink, RetireLink, SetTimer
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Engine, Output

SYMBOLS = ("IBM", "YHOO", "MSFT")
MakeRouting = Callable[[str, Overlay, int], Engine]


def check_routing(make: MakeRouting, overlay: Overlay, seed: int, steps: int = 60) -> "ToyNetwork":
    """Raise an AssertionError unless the protocol delivers exactly what it should throughout a random script."""
    network = ToyNetwork(overlay, make, seed)
    _run(network, overlay, seed, steps)
    return network


def check_core(make: MakeRouting, overlay: Overlay, seed: int, steps: int = 60) -> "CoreNetwork":
    """Likewise for brokers with that protocol, among clients that come and go."""
    network = CoreNetwork(overlay, make, seed)
    _run(network, overlay, seed, steps)
    return network


class World(Protocol):
    """Where a script can run. Advertisements and subscriptions belong to a client of their own, named like them."""

    def say(self, broker: str, message: Control) -> None:
        """A client of ``broker`` says something."""

    def leave(self, broker: str, message: Control) -> None:
        """A client goes without a word; ``message`` is what it should have said."""

    def rest(self) -> None:
        """Go on until nothing moves."""

    def publish(self, broker: str, advertisement: str, publication: Publication) -> Counter[str]:
        """Publish, and see which subscriptions got it how often."""

    def sizes(self) -> dict[str, dict[str, int]]:
        """The tables of each broker."""


class ToyNetwork:
    """Routing protocols joined by queues that lose nothing and take their time."""

    def __init__(self, overlay: Overlay, make: MakeRouting, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self._engines = {id: make(id, overlay, 1) for id in overlay.ids}
        self.brokers = {id: engine.routing for id, engine in self._engines.items()}
        self._ingresses = {id: engine.ingress(1 << 10) for id, engine in self._engines.items()}
        self._queues: dict[tuple[str, str], deque[Control | Batch]] = {}
        for id, routing in self.brokers.items():
            for neighbour in overlay.neighbours(id):
                routing.add_neighbour(neighbour, LinkKind.PRIMARY)
                self._queues[id, neighbour] = deque()
        #: What has nowhere to go at present.
        self._held: list[tuple[str, Control | Batch, str | None]] = []
        self._deliveries: Counter[str] = Counter()
        self._sequence = 0
        #: How many publications arrived at a broker over a link, now and when a client spoke last.
        self.hops = 0
        self._hops_before = 0
        for id, neighbour in self._queues:
            self._queues[id, neighbour] += self.brokers[id].snapshot_for(neighbour)
            links = self._engines[id].links
            if links is not None:
                self._send(id, links.link_up(neighbour), None)
        self.rest()

    def say(self, broker: str, message: Control) -> None:
        """See `World.say`."""
        self._take(broker, message, None)

    def leave(self, broker: str, message: Control) -> None:
        """See `World.leave`: a protocol is told like of any withdrawal."""
        self._take(broker, message, None)

    def publish(self, broker: str, advertisement: str, publication: Publication) -> Counter[str]:
        """See `World.publish`."""
        self._deliveries.clear()
        self._hops_before = self.hops
        self._sequence += 1
        header = Header(publisher=_client_of(advertisement), sequence=self._sequence)
        self._take(broker, Rows((Publish(publication, header),)), None)
        self.rest()
        return self._deliveries

    def rest(self) -> None:
        """Let all queues run empty, in an order that the seed decides."""
        steps = 0
        while busy := [link for link, queue in self._queues.items() if queue]:
            steps += 1
            assert steps < 100_000, "the network does not come to rest"
            source, target = busy[int(self.random.integers(len(busy)))]
            self._take(target, self._queues[source, target].popleft(), source)
            held, self._held = self._held, []
            for broker, what, origin in held:
                self._go_on(broker, what, origin)

    def sizes(self) -> dict[str, dict[str, int]]:
        """See `World.sizes`."""
        return {id: routing.table_sizes() for id, routing in self.brokers.items()}

    def _take(self, broker: str, what: Control | Batch, origin: str | None) -> None:
        if isinstance(what, Control):
            self._go_on(broker, what, origin or _client_of(what.id))
            return
        self.hops += what.count if origin is not None else 0
        assert self.hops < 5_000 + self._hops_before, "publications run in circles"
        transit, fresh, duplicates = self._ingresses[broker].admit(what, origin)
        assert duplicates is None, f"{broker} gets a publication twice"
        if transit is not None:
            self._go_on(broker, transit, origin)
        for batch, _ in fresh:
            self._go_on(broker, batch, origin)

    def _go_on(self, broker: str, what: Control | Batch, origin: str | None) -> None:
        if isinstance(what, Control):
            self._send(broker, self.brokers[broker].on_control(what, str(origin)), origin)
            return
        for peer, batch in self.brokers[broker].route(what, origin):
            if peer is None:
                self._held.append((broker, batch, origin))
            elif peer in self.brokers:
                self._queues[broker, peer].append(batch)
            else:
                self._deliveries[peer.removeprefix("client of ")] += 1

    def _send(self, broker: str, outputs: Iterable[Output], origin: str | None) -> None:
        for output in outputs:
            if isinstance(output, OpenLink | RetireLink | SetTimer):
                continue
            neighbour, message = output
            if neighbour is None:
                self._held.append((broker, message, origin))
            else:
                self._queues[broker, neighbour].append(message)


class CoreNetwork:
    """Whole brokers in the simulator."""

    def __init__(self, overlay: Overlay, make: MakeRouting, seed: int) -> None:
        self._overlay = overlay
        self.simulated = SimulatedNetwork(overlay, make, seed)

    def say(self, broker: str, message: Control) -> None:
        """See `World.say`."""
        if isinstance(message, Advertise | Subscribe):
            self.simulated.add_client(message.id, broker)
        self.simulated.say(message.id, message)

    def leave(self, broker: str, message: Control) -> None:  # noqa: ARG002
        """See `World.leave`."""
        self.simulated.remove_client(message.id)

    def publish(self, broker: str, advertisement: str, publication: Publication) -> Counter[str]:  # noqa: ARG002
        """See `World.publish`."""
        self.simulated.deliveries.clear()
        self.simulated.publish(advertisement, publication)
        self.rest()
        return Counter({id: count for (_, _, id), count in self.simulated.deliveries.items()})

    def rest(self) -> None:
        """Let time pass until nothing is planned, and check all brokers."""
        self.simulated.scheduler.run()
        for id in self._overlay.ids:
            self.simulated.broker(id).validate()

    def sizes(self) -> dict[str, dict[str, int]]:
        """See `World.sizes`."""
        return {id: self.simulated.broker(id).statistics().tables for id in self._overlay.ids}


def _run(world: World, overlay: Overlay, seed: int, steps: int) -> None:
    script = _Script(world, overlay, seed)
    for _ in range(steps):
        script.step()
    script.withdraw_all()
    for id, sizes in world.sizes().items():
        assert not any(sizes.values()), f"{id} still has {sizes} after all was withdrawn"


class _Script:
    """Clients that advertise, subscribe, publish, withdraw and leave at random."""

    def __init__(self, world: World, overlay: Overlay, seed: int) -> None:
        self._world = world
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
        self._world.rest()

    def _advertise(self) -> None:
        broker, symbol = self._pick(self._ids), self._pick(SYMBOLS)
        id = self._new("a")
        filter = parse_filter(f"[class,eq,'STOCK'],[symbol,eq,'{symbol}'],[price,isPresent,0],[volume,>=,0]")
        self._advertisements[id] = (broker, filter, symbol)
        self._world.say(broker, Advertise(id, filter))

    def _unadvertise(self, id: str) -> None:
        broker, _, _ = self._advertisements.pop(id)
        self._withdraw(broker, Unadvertise(id))

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
        self._world.say(broker, Subscribe(id, self._subscriptions[id][1]))

    def _unsubscribe(self, id: str) -> None:
        broker, _ = self._subscriptions.pop(id)
        self._withdraw(broker, Unsubscribe(id))

    def _withdraw(self, broker: str, message: Control) -> None:
        if self._random.random() < 0.5:
            self._world.say(broker, message)
        else:
            self._world.leave(broker, message)

    def _publish(self) -> None:
        """Publish when all is quiet, and see who got it."""
        self._world.rest()
        advertisement = self._pick(list(self._advertisements))
        broker, _, symbol = self._advertisements[advertisement]
        price, volume = self._random.integers(0, 10, 2)
        publication = parse_publication(f"[class,'STOCK'],[symbol,'{symbol}'],[price,{price}],[volume,{volume}]")
        delivered = self._world.publish(broker, advertisement, publication)
        expected = Counter(id for id, (_, filter) in self._subscriptions.items() if matches(filter, publication))
        assert delivered == expected, f"{publication} from {broker}: {delivered} != {expected}"

    def _new(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def _pick(self, several: list[str] | tuple[str, ...]) -> str:
        return several[int(self._random.integers(len(several)))]

    def _shuffled(self, several: list[str]) -> list[str]:
        return [several[i] for i in self._random.permutation(len(several))]


def _client_of(id: str) -> str:
    return f"client of {id}"
