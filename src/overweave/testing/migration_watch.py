"""The deadlines and results of simulated migrations: the time of each phase at the client, and orders without a result."""

from collections.abc import Iterator
from typing import NamedTuple

from overweave.broker.client.migration import _DEADLINES_S, Migrations
from overweave.broker.client.migration_state import MigrationPhase
from overweave.contract.stimuli import MigrateClient
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.nodes import Node

#: How late a phase may end. A client looks at its deadlines at each stimulus, at the latest when its timer fires: it may read
#: nothing meanwhile, in a pause. `PhaseWatch` looks at each step of a run.
LATE_S = Migrations.REPEAT_S + 0.2


class _Wait(NamedTuple):
    client: str
    token: str
    phase: MigrationPhase
    since_s: float


class PhaseWatch:
    """Measures how long each phase of each migration takes; `observe` is called after each step of the simulation."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._waits: dict[str, _Wait] = {}
        self._late: list[str] = []
        #: The longest time in each phase.
        self.longest_s: dict[str, float] = {}

    def observe(self) -> None:
        """See in which phase each client is."""
        now_s, clients = self._network.scheduler.now_s, self._network.clients()
        for client in clients:
            current = self._network.client(client)._migrations._current
            before = self._waits.get(client)
            if current is not None and before is not None and before[1:3] == (current.order.token, current.phase):
                continue
            self._end(client, now_s)
            if current is not None:
                self._waits[client] = _Wait(client, current.order.token, current.phase, now_s)
        for client in self._waits.keys() - set(clients):
            self._end(client, now_s)

    def failures(self) -> Iterator[str]:
        """The waits beyond a deadline, those that last included."""
        for client in list(self._waits):
            self._end(client, self._network.scheduler.now_s)
        yield from self._late

    def _end(self, client: str, now_s: float) -> None:
        wait = self._waits.pop(client, None)
        if wait is None:
            return
        name, took_s, deadline_s = wait.phase.value, now_s - wait.since_s, _DEADLINES_S[wait.phase]
        self.longest_s[name] = max(self.longest_s.get(name, 0.0), took_s)
        if took_s > deadline_s + LATE_S:
            self._late.append(f"{client} ({wait.token}) was {name} for {took_s:.1f} s, expected at most {deadline_s:g} s")


class _Order(NamedTuple):
    client: str
    life: int
    broker: str
    #: The process of the broker; None if it was down.
    process: Node | None
    #: The subscriptions that are to move, and "" for the publishing side; None: another migration is in progress, so it depends.
    parts: frozenset[str] | None
    to: str


class Orders:
    """The orders of one run."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._orders: dict[str, _Order] = {}

    def add(self, order: MigrateClient, broker: str) -> None:
        """Add an order that a broker has just got, if it runs."""
        network, client = self._network, order.client
        core, life = network.client(client), network.client_processes.life(client)
        is_moving = core.is_migrating or any(
            each.client == client and token not in network.migrations for token, each in self._orders.items()
        )
        parts = set(core.view.subscriptions(broker) if order.subscriptions is None else order.subscriptions)
        if order.publishing and core.broker == broker:
            parts.add("")
        known = None if is_moving else frozenset(parts)
        self._orders[order.token] = _Order(client, life, broker, network.nodes.get(broker), known, order.to)

    def counts(self) -> tuple[int, int, int]:
        """The numbers of orders whose client moved, stayed, and without a result."""
        results = self._network.migrations
        moved = sum(token in results and results[token] is None for token in self._orders)
        unknown = sum(token not in results for token in self._orders)
        return moved, len(self._orders) - moved - unknown, unknown

    def failures(self) -> Iterator[str]:
        """The orders without a result, unless their broker or their client has crashed; clients must not have left yet."""
        network = self._network
        for token, order in self._orders.items():
            broker_crashed = order.process is None or network.nodes.get(order.broker) is not order.process
            client_crashed = order.client not in network.clients() or network.client_processes.life(order.client) != order.life
            if token not in network.migrations and not broker_crashed and not client_crashed:
                yield f"order {token} for {order.client} has no result, though {order.broker} and {order.client} still run"

    def misplaced(self) -> Iterator[str]:
        """What an order has moved by its result, and what is at another broker."""
        network = self._network
        last: dict[tuple[str, str], _Order] = {}
        for token, order in self._orders.items():
            if order.parts is not None and network.migrations.get(token, "no result") is None:
                last |= {(order.client, part): order for part in order.parts}
            else:  # it may have moved something else, or later
                last = {key: each for key, each in last.items() if key[0] != order.client}
        for (client, part), order in last.items():
            if client in network.clients() and network.client_processes.life(client) == order.life:
                core = network.client(client)
                homes = [
                    peer for peer in core.peers() if (part in core.view.subscriptions(peer) if part else peer == core.broker)
                ]
                if homes not in ([order.to], []):  # none: withdrawn meanwhile
                    yield f"{part or 'the publishing side'} of {client} is at {homes}, expected {order.to}"
