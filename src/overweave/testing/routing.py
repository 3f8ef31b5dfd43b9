"""The conformance check of routing protocols: random scripts of clients, and an oracle that knows no network.

Whatever clients do, when the network has come to rest every publication must reach exactly the subscriptions that the naive
oracle names, once, and when everything is withdrawn all tables must be empty. It runs in two worlds. In a `ToyNetwork` brokers
are nothing but their engines: the seed decides which link moves next, and links fail where the protocol has link events. In a
`CoreNetwork`, the simulator with whole broker cores, clients also come and go.
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
from overweave.routing.base import Engine, Output
from overweave.routing.clusters import cluster_components

SYMBOLS = ("IBM", "YHOO", "MSFT")
#: More ticks than any hold time.
_HOLD_TICKS = 30
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
    """A network for a script. Advertisements and subscriptions belong to a client of their own, named like them."""

    def say(self, broker: str, message: Control) -> None:
        """Send a control message of a client of ``broker``."""

    def leave(self, broker: str, message: Control) -> None:
        """Remove a client without a message; ``message`` is the withdrawal that it owes."""

    def disturb(self) -> None:
        """Fail or restore a link, if the protocol has link events, such that the overlay stays connected."""

    def rest(self) -> None:
        """Run until nothing moves."""

    def end(self) -> None:
        """Run until all hold times are over."""

    def publish(self, broker: str, advertisement: str, publication: Publication) -> Counter[str]:
        """Publish, and count the deliveries by subscription."""

    def sizes(self) -> dict[str, dict[str, int]]:
        """The tables of each broker."""


class ToyNetwork:
    """Routing protocols joined by queues that lose nothing and take their time; odd seeds have ticks."""

    def __init__(self, overlay: Overlay, make: MakeRouting, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self._overlay = overlay
        self._engines = {id: make(id, overlay, 1) for id in overlay.ids}
        self.brokers = {id: engine.routing for id, engine in self._engines.items()}
        self._ingresses = {id: engine.ingress(1 << 10) for id, engine in self._engines.items()}
        self._has_ticks = seed % 2 == 1
        self._queues: dict[tuple[str, str], deque[Control | Batch]] = {}
        for id, routing in self.brokers.items():
            for neighbour in overlay.neighbours(id):
                routing.add_neighbour(neighbour, overlay.link(id, neighbour).kind)
                self._queues[id, neighbour] = deque()
        #: The ends of failed links.
        self._failed: list[tuple[str, str]] = []
        #: Messages without a next hop; False: they are not for local clients.
        self._deferred: list[tuple[str, Control | Batch, str | None, bool]] = []
        self._deliveries: Counter[str] = Counter()
        self._sequence = 0
        #: The number of publications that arrived at a broker over a link, now and before the last one.
        self.hops = 0
        self._hops_before = 0
        if self._has_ticks:
            self._tick()
        for id, neighbour in self._queues:
            self._queues[id, neighbour] += self.brokers[id].snapshot_for(neighbour)
            self._link_up(id, neighbour)
        self.rest()

    def say(self, broker: str, message: Control) -> None:
        """See `World.say`."""
        self._arrive(broker, message, None)

    def leave(self, broker: str, message: Control) -> None:
        """See `World.leave`: to a protocol it is a withdrawal."""
        self._arrive(broker, message, None)

    def disturb(self) -> None:
        """See `World.disturb`; messages in the queues of a failed link are routed again, as a broker does."""
        if self._failed:
            for id, neighbour in (ends := self._failed.pop(), ends[::-1]):
                self._queues[id, neighbour] += self.brokers[id].snapshot_for(neighbour)
                self._link_up(id, neighbour)
            return
        links = [link.ends for link in self._overlay.links if self._has_detour(link.ends)]
        if not links or any(engine.links is None for engine in self._engines.values()):
            return
        ends = links[int(self.random.integers(len(links)))]
        self._failed.append(ends)
        reclaimed = [(id, neighbour, self._queues[id, neighbour]) for id, neighbour in (ends, ends[::-1])]
        for id, neighbour, _ in reclaimed:
            self._queues[id, neighbour] = deque()
            events = self._engines[id].links
            assert events is not None
            self._send(id, events.link_down(neighbour), None)
        for id, neighbour, queue in reclaimed:
            for what in queue:
                if not isinstance(what, Control) or what.header.destinations:
                    self._forward(id, what, neighbour)

    def publish(self, broker: str, advertisement: str, publication: Publication) -> Counter[str]:
        """See `World.publish`."""
        self._deliveries.clear()
        self._hops_before = self.hops
        self._sequence += 1
        header = Header(publisher=_client_of(advertisement), sequence=self._sequence)
        self._arrive(broker, Rows((Publish(publication, header),)), None)
        self.rest()
        return self._deliveries

    def rest(self) -> None:
        """Empty all queues, in an order that the seed decides."""
        self._drain()
        if self._has_ticks:
            self._tick()
            self._drain()

    def end(self) -> None:
        """See `World.end`."""
        while self._failed:
            self.disturb()
            self.rest()
        for _ in range(_HOLD_TICKS if self._has_ticks else 0):
            self.rest()

    def sizes(self) -> dict[str, dict[str, int]]:
        """See `World.sizes`."""
        return {id: routing.table_sizes() for id, routing in self.brokers.items()}

    def _drain(self) -> None:
        steps = 0
        while busy := [link for link, queue in self._queues.items() if queue]:
            steps += 1
            assert steps < 100_000, "the network does not come to rest"
            source, target = busy[int(self.random.integers(len(busy)))]
            self._arrive(target, self._queues[source, target].popleft(), source)
            self._redirect(target)
            deferred, self._deferred = self._deferred, []
            for broker, what, origin, local in deferred:
                self._forward(broker, what, origin, local)

    def _tick(self) -> None:
        for id, engine in self._engines.items():
            tick = engine.links.tick if engine.links is not None else engine.ticks
            if tick is not None:
                self._send(id, tick(), None)

    def _link_up(self, broker: str, neighbour: str) -> None:
        events = self._engines[broker].links
        if events is not None:
            self._send(broker, events.link_up(neighbour), None)

    def _redirect(self, broker: str) -> None:
        """Send copies of publications in the broker's queues to their new destinations."""
        redirector = self._engines[broker].redirect
        redirect = None if redirector is None else redirector.redirects()
        if redirect is None:
            return
        queued = [what for (id, _), queue in self._queues.items() if id == broker for what in queue]
        batches = [what for what in queued if not isinstance(what, Control) and what.has_destinations()]
        for copy in [copy for batch in batches for copy in redirect(batch, None)]:
            self._forward(broker, copy, None, local=False)

    def _has_detour(self, ends: tuple[str, str]) -> bool:
        """Whether all clusters stay connected without a link."""
        without = self._overlay.without_link(*ends)
        return without.is_connected() and cluster_components(without) == cluster_components(self._overlay)

    def _arrive(self, broker: str, what: Control | Batch, origin: str | None) -> None:
        if isinstance(what, Control):
            self._forward(broker, what, origin or _client_of(what.id))
            return
        self.hops += what.count if origin is not None else 0
        assert self.hops < 5_000 + self._hops_before, "publications run in circles"
        transit, fresh, duplicates = self._ingresses[broker].admit(what, origin)
        # While paths change, and with hold times, a broker may get a publication twice, but local clients do not.
        assert duplicates is None or self._failed or self._has_ticks, f"{broker} gets a publication twice"
        if transit is not None:
            self._forward(broker, transit, origin)
        for batch, local in fresh:
            self._forward(broker, batch, origin, local)

    def _forward(self, broker: str, what: Control | Batch, origin: str | None, local: bool = True) -> None:
        if isinstance(what, Control):
            self._send(broker, self.brokers[broker].on_control(what, str(origin)), origin)
            return
        for peer, batch in self.brokers[broker].route(what, origin):
            if peer is None:
                self._deferred.append((broker, batch, origin, local))
            elif peer in self.brokers:
                self._put(broker, peer, batch)
            elif local:
                self._deliveries[peer.removeprefix("client of ")] += 1

    def _send(self, broker: str, outputs: Iterable[Output], origin: str | None) -> None:
        for output in outputs:
            if isinstance(output, OpenLink | RetireLink | SetTimer):
                continue
            neighbour, message = output
            if neighbour is None:
                self._deferred.append((broker, message, origin, True))
            else:
                self._put(broker, neighbour, message)

    def _put(self, broker: str, neighbour: str, what: Control | Batch) -> None:
        assert (broker, neighbour) not in self._failed, f"{broker} sends to {neighbour} over a failed link"
        assert (neighbour, broker) not in self._failed, f"{broker} sends to {neighbour} over a failed link"
        self._queues[broker, neighbour].append(what)


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

    def disturb(self) -> None:
        """See `World.disturb`: failures of whole brokers are tests of the simulator."""

    def end(self) -> None:
        """See `World.end`."""
        self.rest()

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
    world.end()
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
        if self._random.random() < 0.1:
            self._world.disturb()
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
