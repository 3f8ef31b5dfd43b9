"""The conformance check of routing protocols: random scripts of clients, and an oracle that knows no network.

Whatever clients do, when the network has come to rest every publication must reach exactly the subscriptions that the naive
oracle names, once, and when everything is withdrawn all tables must be empty. It runs in two worlds. In a `ToyNetwork` brokers
are nothing but their engines: the seed decides which link moves next, and links fail where the protocol has link events. In a
`CoreNetwork`, the simulator with whole broker cores, clients also come and go.
"""

from collections import Counter
from typing import Protocol

import numpy as np

from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter, parse_publication
from overweave.overlay.graph import Overlay
from overweave.testing.toy_network import MakeRouting, ToyNetwork

SYMBOLS = ("IBM", "YHOO", "MSFT")


def check_routing(make: MakeRouting, overlay: Overlay, seed: int, steps: int = 60) -> ToyNetwork:
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
