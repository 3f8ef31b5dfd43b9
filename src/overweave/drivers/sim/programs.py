"""Client programs: what the clients of a scenario do when they start, publish, leave, crash and return."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

from overweave.broker.core import BrokerCore
from overweave.contract.effects import Parts
from overweave.drivers.sim.checkers import DeliveryOracle
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.drivers.sim.timeline import Move, Rate, TimedAction
from overweave.drivers.sim.workload import Publisher, Workload
from overweave.language.messages import Advertise, Subscribe
from overweave.language.publications import Publication

#: How often a program looks whether its control messages are in force.
_POLL_S = 0.05
#: A client, its life id, the condition, and the action.
_Waiting = tuple[str, int, Callable[[], bool], Callable[[], None]]


@dataclass(slots=True)
class _Stream:
    """The publications of one publisher, at a rate from a number and a time on."""

    publisher: Publisher
    publications: Iterator[Publication]
    rate_hz: float
    phase_s: float
    first: int = 0
    #: The number of the next publication in this incarnation, and that of the plan in force: older ones are void.
    number: int = 0
    plan: int = 0

    def at_s(self) -> float:
        """The time of the next publication, counted from the start so that rounding errors do not add up."""
        done = self.number - self.first
        return self.phase_s + (done - done % self.publisher.batch) / self.rate_hz


class ClientPrograms:
    """The programs of all clients of a workload."""

    def __init__(self, network: SimulatedNetwork, workload: Workload, oracle: DeliveryOracle | None, duration_s: float) -> None:
        self._network, self._oracle, self._duration_s = network, oracle, duration_s
        self._publishers = {each.id: each for each in workload.publishers}
        self._subscribers = {each.id: each for each in workload.subscribers}
        self._streams: dict[str, _Stream] = {}
        #: The present subscription of each subscriber.
        self._ids: dict[str, str] = {}
        #: Publishers that leave as soon as their publications are settled, and crashed clients that leave if they return.
        self._leaving: set[str] = set()
        self._gone: set[str] = set()
        self._start_s: float | None = None
        self.publications = self.deliveries = 0
        network.client_processes.observer = self

    # ---- the beginning

    def start(self, client: str) -> None:
        """Attach a client, and have it advertise or subscribe."""
        at = self._publishers.get(client) or self._subscribers[client]
        self._network.add_client(client, at.broker)
        self._register(client)

    def publish(self) -> None:
        """Have all publishers that are attached publish from now on."""
        self._start_s = self._network.scheduler.now_s
        attached = set(self._network.clients())
        for publisher in self._publishers.values():
            stream = _Stream(publisher, publisher.publications(), publisher.rate_hz, publisher.phase_s)
            self._streams[publisher.id] = stream
            if publisher.id in attached and self._network.client_processes.life(publisher.id) == 1:
                self._plan(stream)
            elif publisher.id in attached:  # it has crashed while the network was set up
                self._when_settled(publisher.id, partial(self._resume, stream))

    # ---- the timeline

    def act(self, action: TimedAction) -> None:
        """Perform an action of the timeline."""
        if action.kind == "join":
            self._gone.discard(action.client)
            if action.client not in self._network.clients():
                self.start(action.client)
        elif action.kind == "leave":
            self._leave(action.client)
        elif isinstance(action.entry, Rate):
            self._change_rate(action.client, action.entry)
        elif isinstance(action.entry, Move) and action.client in self._network.clients():
            parts = None if action.entry.subscriptions else ()
            self._network.client_processes.migrate(
                action.client, action.entry.to, subscriptions=parts, publishing=action.entry.publishing
            )

    def _leave(self, client: str) -> None:
        """Leave when everything is settled, as a client does that closes; a crashed client has left already."""
        if client not in self._network.clients():
            self._gone.add(client)
            return
        self._leaving.add(client)
        if client in self._streams:
            self._streams[client].plan += 1
            self._when_settled(client, partial(self._remove, client))
        else:
            self._remove(client)

    def _remove(self, client: str) -> None:
        self._leaving.discard(client)
        self._close(client)
        self._network.remove_client(client)

    def _change_rate(self, client: str, change: Rate) -> None:
        stream, now_s = self._streams[client], self._elapsed_s()
        rate_hz = change.rate_hz if change.rate_hz is not None else stream.publisher.rate_hz * (change.factor or 1.0)
        wait_s = max(stream.at_s() - now_s, 0.0) * stream.rate_hz / rate_hz
        stream.rate_hz, stream.phase_s, stream.first = rate_hz, now_s + wait_s, stream.number
        if client in self._network.clients() and client not in self._leaving:
            self._plan(stream)

    # ---- crashes (`ClientObserver`)

    def crashed(self, client: str, settled: int) -> None:
        """Expect nothing more of a client, but what its broker has settled."""
        self._leaving.discard(client)
        self._close(client)
        if client in self._publishers and self._oracle is not None:
            self._oracle.excuse(client, self._network.client_processes.life(client), settled)
            self._oracle.trust(client)
        if client in self._streams:
            self._streams[client].plan += 1

    def returned(self, client: str) -> None:
        """Restart the program."""
        if client in self._gone:
            self._network.remove_client(client)
        else:
            self._register(client)

    def expired(self, client: str) -> None:
        """Let publications be lost until the client's registrations are in force again."""
        if self._oracle is None:
            return
        if client in self._ids:
            self._oracle.subscribe(self._ids[client], self._subscribers[client].filter)
            self._when_registered(client, partial(self._in_force, client, self._ids[client]))
        elif client in self._publishers:
            oracle = self._oracle
            oracle.excuse(
                client, self._network.client_processes.life(client), self._network.client(client).settled_publications()
            )
            oracle.doubt(client)
            self._when_registered(client, partial(oracle.trust, client))

    # ---- registrations

    def _register(self, client: str) -> None:
        """Advertise or subscribe, under another id than an earlier process of the client did."""
        life = self._network.client_processes.life(client)
        id = client if life == 1 else f"{client}@{life}"
        publisher = self._publishers.get(client)
        if publisher is None:
            subscriber = self._subscribers[client]
            self._ids[client] = id
            self._network.say(client, Subscribe(id, subscriber.filter))
            if self._oracle is not None:
                self._oracle.subscribe(id, subscriber.filter)
                if life == 1 and self._start_s is None:  # nobody publishes before it is in force
                    self._oracle.in_force(id)
                else:
                    self._when_settled(client, partial(self._in_force, client, id))
            return
        self._network.say(client, Advertise(id, publisher.advertisement))
        stream = self._streams.get(client)
        if stream is not None:
            stream.number = stream.first = 0
            self._when_settled(client, partial(self._resume, stream))

    def _resume(self, stream: _Stream) -> None:
        stream.phase_s = max(self._elapsed_s(), stream.phase_s)
        self._plan(stream)

    def _in_force(self, client: str, id: str) -> None:
        if self._oracle is not None and self._ids.get(client) == id:
            self._oracle.in_force(id)

    def _close(self, client: str) -> None:
        id = self._ids.pop(client, None)
        if id is not None and self._oracle is not None:
            self._oracle.close(id)

    # ---- publishing

    def _plan(self, stream: _Stream) -> None:
        """Publish the next ones at their time."""
        assert self._start_s is not None
        after_s = stream.at_s()
        stream.plan += 1
        if after_s < self._duration_s:
            self._network.scheduler.at(self._start_s + after_s, self._publish_some, (stream, stream.plan))

    def _publish_some(self, planned: tuple[_Stream, int]) -> None:
        stream, plan = planned
        publisher = stream.publisher
        if plan != stream.plan:
            return
        batch = list(itertools.islice(stream.publications, publisher.batch))
        if batch:
            self.publications += len(batch)
            if self._oracle is not None:
                life = self._network.client_processes.life(publisher.id)
                for place, publication in enumerate(batch):
                    self._oracle.published(publisher.id, stream.number + place, publication, life)
            self._network.publish(publisher.id, *batch)
            stream.number += len(batch)
            self._plan(stream)

    def delivered(self, parts: Parts) -> None:
        """Count the deliveries of a client."""
        for subscription, batch in parts:
            self.deliveries += batch.count
            if self._oracle is not None:
                for publisher, life, sequence in batch.identities():
                    self._oracle.delivered(publisher, sequence, subscription, life)

    # ---- waiting

    def _when_settled(self, client: str, action: Callable[[], None]) -> None:
        """Call ``action`` when all that a client has sent is settled, unless it crashes or leaves before."""
        barrier = self._network.client(client).barrier()
        self._wait((client, self._network.client_processes.life(client), lambda: barrier.settled, action))

    def _when_registered(self, client: str, action: Callable[[], None]) -> None:
        """Call ``action`` when a client has reconnected and registered everything again."""
        network = self._network

        def is_registered() -> bool:
            broker = network.client(client).broker
            is_known = broker in network.nodes[client].channels and _registrations(network.broker(broker), client) > 0
            return is_known and not network.client(client).unsettled()

        self._wait((client, network.client_processes.life(client), is_registered, action))

    def _wait(self, waiting: _Waiting) -> None:
        self._network.scheduler.at(self._network.scheduler.now_s + _POLL_S, self._poll, waiting)

    def _poll(self, waiting: _Waiting) -> None:
        client, life, is_done, action = waiting
        if client not in self._network.clients() or self._network.client_processes.life(client) != life:
            return
        if is_done():
            action()
        else:
            self._wait(waiting)

    def _elapsed_s(self) -> float:
        assert self._start_s is not None
        return self._network.scheduler.now_s - self._start_s


def _registrations(broker: BrokerCore, client: str) -> int:
    return broker.registration_count("subscription", client) + broker.registration_count("advertisement", client)
