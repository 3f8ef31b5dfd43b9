"""Migrations of clients, at their brokers: orders, barriers between brokers, and results (docs/decisions/0022).

A barrier passes from broker to broker behind all publications. A broker with deferred publications or unsynchronised neighbours
drops it, because publications may be behind it then: the client asks for another one.
"""

from typing import NamedTuple

from overweave.broker.context import BrokerContext
from overweave.broker.slow_consumers import SlowConsumerPolicy
from overweave.contract.effects import MigrationEnded, Reject
from overweave.contract.frames import (
    BarrierKind,
    BarrierRequest,
    ControlMessage,
    Migrate,
    MigrationBarrier,
    MigrationResult,
    StreamEnd,
)
from overweave.contract.requests import MOVING_ALREADY
from overweave.contract.stimuli import MigrateClient
from overweave.routing.sync import SyncKind

#: The timer of orders, and the longest wait for the result of one: longer than all waits of a client.
MIGRATIONS, _RESULT_S = "migrations", 200.0
#: The least time between two barriers of a client, and the most of all clients in a second: each goes to all brokers.
_BARRIER_S, _BARRIERS_HZ_MAX = 0.1, 100
#: How clients of a broker move, by the overlays that its routing is for; they do not move where waits may form cycles.
_BARRIER_KINDS = {SyncKind.TREE: BarrierKind.STREAM, SyncKind.BY_ROUTING: BarrierKind.SWEEP}


class _Order(NamedTuple):
    client: str
    to: str
    deadline_s: float


class MigrationControl:
    """The orders of one broker that wait for their results."""

    def __init__(self, context: BrokerContext, slow_consumers: SlowConsumerPolicy) -> None:
        self._context, self._slow_consumers = context, slow_consumers
        self._sessions, self._neighbours = context.peers.sessions, context.peers.neighbours
        self._orders: dict[str, _Order] = {}
        #: When each client last got a barrier.
        self._last_barrier_s: dict[str, float] = {}
        #: When clients last began to get barriers for a second, and how many they have got since.
        self._second_s, self._barriers_this_second = float("-inf"), 0

    def __len__(self) -> int:
        return len(self._orders)

    def targets(self) -> dict[str, str]:
        """The clients that are to move, and where to."""
        return {order.client: order.to for order in self._orders.values()}

    # ---- orders

    def on_order(self, stimulus: MigrateClient) -> None:
        """Order a client to move, or reject the order."""
        barrier = _BARRIER_KINDS.get(self._context.sync.kind)
        error = self._error(stimulus, barrier)
        if error is not None or barrier is None:
            self._end(stimulus.token, stimulus.client, error)
            return
        order = Migrate(stimulus.token, stimulus.to, stimulus.subscriptions, stimulus.publishing, barrier)
        self._orders[stimulus.token] = _Order(stimulus.client, stimulus.to, self._context.step.now_s + _RESULT_S)
        self._context.timers.set(MIGRATIONS, _RESULT_S)
        session = self._sessions[stimulus.client]
        self._slow_consumers.begin_move(session, stimulus.token)
        session.send_control(order, self._context.step.effects)

    def on_left(self, client: str) -> None:
        """A client has left: its migrations have no result."""
        self._last_barrier_s.pop(client, None)
        for token, order in list(self._orders.items()):
            if order.client == client:
                self._end(token, client, f"{client!r} has left")

    def on_timer(self) -> None:
        """Give up orders without a result."""
        now_s = self._context.step.now_s
        for token, order in list(self._orders.items()):
            if order.deadline_s <= now_s:
                self._end(token, order.client, f"no result within {_RESULT_S:g} s")
        if self._orders:
            self._context.timers.set_at(MIGRATIONS, min(order.deadline_s for order in self._orders.values()))

    def _error(self, order: MigrateClient, barrier: BarrierKind | None) -> str | None:
        session = self._sessions.get(order.client)
        if barrier is None:
            name = self._context.engine.name
            return f"clients cannot move under {name}: on overlays with cycles it has no order of publications"
        if session is None or order.client in self._neighbours:
            return f"{order.client!r} is not a client of {self._context.id}"
        if order.to == self._context.id:
            return f"{order.client!r} is at {order.to} already"
        if not session.established:
            return f"{order.client!r} is not connected"
        if session.outbound.buffer.active or session.outbound.buffer.bytes:
            return f"{order.client!r} is a slow consumer: {session.outbound.buffer.bytes:,} bytes are buffered for it"
        if any(known.client == order.client for token, known in self._orders.items() if token != order.token):
            return f"{order.client!r} {MOVING_ALREADY}"
        return None

    # ---- messages

    def on_client_message(self, client: str, message: ControlMessage) -> None:
        """Process a message of a client about a migration."""
        if isinstance(message, BarrierRequest):
            if not self._floods_barriers:
                text = f"expected no request for a barrier under {self._context.engine.name}"
                self._context.step.effects.append(Reject(client, "bad-frame", text))
                return
            if self._admit_barrier(client):  # else it asks again
                self._send_barrier(MigrationBarrier(message.token, client, message.broker), "")
        elif isinstance(message, MigrationResult):
            self._slow_consumers.end_move(self._sessions[client], message.token)  # also of an order that was given up
            order = self._orders.get(message.token)
            if order is not None and order.client == client:
                self._end(message.token, client, message.error)

    def _admit_barrier(self, client: str) -> bool:
        """Count a barrier of a client; False if this client, or all together, had too many lately."""
        now_s = self._context.step.now_s
        if now_s - self._second_s >= 1.0:
            self._second_s, self._barriers_this_second = now_s, 0
        if now_s - self._last_barrier_s.get(client, float("-inf")) < _BARRIER_S or self._barriers_this_second >= _BARRIERS_HZ_MAX:
            return False
        self._last_barrier_s[client] = now_s
        self._barriers_this_second += 1
        return True

    def on_barrier(self, neighbour: str, barrier: MigrationBarrier) -> None:
        """Pass a barrier on, or end the stream to the client that waits for it."""
        if not self._floods_barriers:
            return
        if barrier.broker != self._context.id:
            self._send_barrier(barrier, neighbour)
            return
        session = self._sessions.get(barrier.client)
        if session is not None and barrier.client not in self._neighbours and self._is_barrier_safe():
            session.send_control(StreamEnd(barrier.token), self._context.step.effects)

    def _send_barrier(self, barrier: MigrationBarrier, origin: str) -> None:
        """Send a barrier in all other directions: where a broker is, routing need not know."""
        if self._is_barrier_safe():
            for neighbour in self._context.peers.established():  # for others they would pile up: clients ask again
                if neighbour != origin and self._context.is_linked(neighbour):
                    self._sessions[neighbour].send_control(barrier, self._context.step.effects)

    @property
    def _floods_barriers(self) -> bool:
        """Whether brokers pass barriers on: each goes to all neighbours, so that on a cycle it would never end."""
        return _BARRIER_KINDS.get(self._context.sync.kind) is BarrierKind.STREAM

    def _is_barrier_safe(self) -> bool:
        """Whether no publication is deferred here or sent again by a peer, and all travel in one epoch of the overlay."""
        context = self._context
        has_epochs = context.engine.epochs is not None and not context.engine.epochs.is_single
        is_deferring = context.sync.unsynced or context.deferred or context.detector.awaited
        return not (has_epochs or is_deferring) and context.backlogs.complete

    def validate(self) -> None:
        """Check the invariants: a client has one order at a time, which ends."""
        clients = [order.client for order in self._orders.values()]
        assert len(clients) == len(set(clients))
        assert {*clients, *self._last_barrier_s} <= self._sessions.keys() - self._neighbours.keys()
        assert not clients or MIGRATIONS in self._context.timers.due_s

    def _end(self, token: str, client: str, error: str | None) -> None:
        self._orders.pop(token, None)
        counters = self._context.counters
        if error is None:
            counters.migrations_completed += 1
        else:
            counters.migrations_failed += 1
        ended = MigrationEnded(token, client, error)
        self._context.step.effects.append(ended)
        self._context.modules.on_migration_ended(ended)
