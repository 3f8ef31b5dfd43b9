"""The toy network of the conformance check: engines of a routing protocol, joined by queues."""

from collections import Counter, deque
from collections.abc import Callable, Iterable

import numpy as np

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.contract.effects import OpenLink, RetireLink, SetTimer
from overweave.language.generations import stable_id
from overweave.language.headers import Header
from overweave.language.messages import Control, Publish
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.routing.base import Engine, Output
from overweave.routing.clusters import cluster_components
from overweave.routing.ingress import fresh_rows

#: More ticks than any hold time.
_HOLD_TICKS = 30
MakeRouting = Callable[[str, Overlay, int], Engine]


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
        header = Header(publisher=client_of(advertisement), sequence=self._sequence)
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

    def step(self, steps: int) -> None:
        """Move at most ``steps`` messages, in an order that the seed decides."""
        for _ in range(steps):
            busy = [link for link, queue in self._queues.items() if queue]
            if not busy:
                return
            source, target = busy[int(self.random.integers(len(busy)))]
            self._arrive(target, self._queues[source, target].popleft(), source)
            self._redirect(target)
            deferred, self._deferred = self._deferred, []
            for broker, what, origin, local in deferred:
                self._forward(broker, what, origin, local)

    def _drain(self) -> None:
        steps = 0
        while any(self._queues.values()):
            steps += 1
            assert steps < 100_000, "the network does not come to rest"
            self.step(1)

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
            self._forward(broker, what, origin or client_of(what.id))
            return
        self.hops += what.count if origin is not None else 0
        assert self.hops < 5_000 + self._hops_before, "publications run in circles"
        admitted = self._ingresses[broker].admit(what, origin)
        # While paths change, and with hold times, a broker may get a publication twice, but local clients do not.
        assert isinstance(admitted, Batch) or admitted.duplicates is None or self._failed or self._has_ticks, (
            f"{broker} gets a publication twice"
        )
        if not isinstance(admitted, Batch) and admitted.transit is not None:
            self._forward(broker, admitted.transit, origin)
        for batch, local in fresh_rows(admitted):
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


def client_of(id: str) -> str:
    """The client of an advertisement or a subscription, of any generation."""
    return f"client of {stable_id(id)}"
