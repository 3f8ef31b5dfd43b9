"""Subscriptions of a client: queues of publications, and flow control when they fill up."""

import asyncio
import copy
import warnings
from collections import deque
from collections.abc import AsyncIterator, Collection, Sequence
from types import TracebackType

from overweave.batches.base import Batch
from overweave.contract.effects import Deliver
from overweave.drivers.tcp.client_host import ClientHost
from overweave.errors import SessionLost
from overweave.language.messages import Publish, Subscribe, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication

#: Publications that may be pending for one subscription before the client stops reading.
QUEUE_MAX = 20_000
#: The same while the client moves to another broker.
MOVING_QUEUE_MAX = 10 * QUEUE_MAX


class Subscription:
    """The publications that match some filters, to be iterated over; `messages` gives headers and payloads too.

    If the broker had lost the client's session, so that publications may be missing, that raises `SessionLost` once, after the
    publications before the gap; iterating again continues behind it. A client that was cut off as a slow consumer gets
    `Refused`, always.
    """

    def __init__(self, subscriptions: "Subscriptions", id: str, filters: Sequence[Filter], wait: bool = True) -> None:
        self.id = id
        #: Whether entering the context waits until it is in force.
        self.wait = wait
        #: By the ids that brokers know.
        self.filters = {id if not place else f"{id}.{place}": filter for place, filter in enumerate(filters)}
        self._subscriptions = subscriptions
        self._batches: deque[Batch | SessionLost] = deque()
        #: Whether the broker has confirmed it, so that a broker without it has lost the session.
        self.in_force = False
        self._rows: deque[Publish] = deque()
        self._arrived = asyncio.Event()
        #: Publications that are not consumed.
        self.pending = 0

    async def __aenter__(self) -> "Subscription":
        await self._subscriptions.subscribe(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._subscriptions.unsubscribe(self)

    def __aiter__(self) -> AsyncIterator[Publication]:
        return self._publications()

    async def _publications(self) -> AsyncIterator[Publication]:
        async for publish in self.messages():
            yield publish.publication

    async def messages(self) -> AsyncIterator[Publish]:
        """Publications with their headers and payloads."""
        while True:
            while self._rows:
                self._consumed(1)
                yield self._rows.popleft()
            self._rows.extend((await self._next_batch()).publishes())

    async def batches(self) -> AsyncIterator[Batch]:
        """Publications in batches as they arrive, without the cost of one object each."""
        while True:
            batch = await self._next_batch()
            self._consumed(batch.count)
            yield batch

    def push(self, item: Batch | SessionLost) -> None:
        """Add publications, or a gap behind those that have arrived."""
        self._batches.append(item)
        if not isinstance(item, SessionLost):
            self.pending += item.count
        self._arrived.set()

    def notify(self) -> None:
        """Let a waiting reader check for errors."""
        self._arrived.set()

    @property
    def waiting(self) -> int:
        """The former name of `pending`."""
        warnings.warn("waiting is deprecated, use pending", DeprecationWarning, stacklevel=2)
        return self.pending

    @property
    def gap_is_next(self) -> bool:
        """Whether the next item is a gap."""
        return bool(self._batches) and isinstance(self._batches[0], SessionLost)

    async def _next_batch(self) -> Batch:
        while not self._batches:
            self._subscriptions.check()
            self._arrived.clear()
            await self._arrived.wait()
        first = self._batches.popleft()
        if isinstance(first, SessionLost):
            raise first
        return first

    def _consumed(self, rows: int) -> None:
        self.pending -= rows
        if self.pending < QUEUE_MAX // 2:
            self._subscriptions.resume(self)


class Subscriptions:
    """All subscriptions of one client; implements `DeliveryHandler`."""

    def __init__(self) -> None:
        self._attached: ClientHost | None = None
        self._subscriptions: dict[str, Subscription] = {}
        #: Subscriptions with too many pending publications; while there are any, nothing is read.
        self._full: set[Subscription] = set()

    def attach(self, host: ClientHost) -> None:
        """Send subscriptions by a client."""
        self._attached = host

    @property
    def _host(self) -> ClientHost:
        assert self._attached is not None
        return self._attached

    async def subscribe(self, subscription: Subscription) -> None:
        """Put a subscription in force; `Refused` if the broker rejects a filter of it."""
        host = self._host
        host.check()
        self._subscriptions[subscription.id] = subscription
        messages = [Subscribe(id, filter) for id, filter in subscription.filters.items()]
        try:
            await host.send_control(*messages, group=subscription.id, wait=subscription.wait)
        except BaseException:  # nobody reads it, also if the wait was cancelled
            self._forget(subscription)
            host.abandon(*map(Unsubscribe, subscription.filters))  # some may be in force
            raise
        subscription.in_force = True

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Withdraw a subscription, unless the session has ended."""
        self._forget(subscription)
        host = self._host
        if not host.closed and host.error is None:
            await host.send_control(*map(Unsubscribe, subscription.filters))

    def _forget(self, subscription: Subscription) -> None:
        """Deliver no more publications to a subscription."""
        self._subscriptions.pop(subscription.id, None)
        self.resume(subscription)

    def check(self) -> None:
        """Raise `Refused` if no more publications can arrive."""
        self._host.check()

    def resume(self, subscription: Subscription) -> None:
        """Read again when no subscription is full."""
        if subscription in self._full:
            self._full.remove(subscription)
            for connection in self._host.attachments.connections.values() if not self._full else ():
                connection.resume_reading()

    # ---- what the client reports

    def confirmed_filters(self, ids: Collection[str]) -> int:
        """See `DeliveryHandler.confirmed_filters`."""
        confirmed = (each for each in self._subscriptions.values() if each.in_force and each.wait)
        return sum(len(each.filters.keys() & ids) for each in confirmed)

    def deliver(self, effect: Deliver) -> None:
        """See `DeliveryHandler.deliver`; reading pauses at all brokers when a subscription is full."""
        for id, batch in effect.parts:
            subscription = self._subscriptions.get(id)
            if subscription is not None:
                subscription.push(batch)
                if subscription.pending >= QUEUE_MAX:
                    self._pause(subscription)

    def on_session_lost(self, ids: Collection[str], error: SessionLost) -> None:
        """See `DeliveryHandler.on_session_lost`."""
        for subscription in self._subscriptions.values():
            if subscription.in_force and not subscription.filters.keys().isdisjoint(ids):
                subscription.push(copy.copy(error))  # each is raised with a traceback of its own

    def _pause(self, subscription: Subscription) -> None:
        """Read nothing. During a migration brokers must not have to buffer, so that the queue may be longer then."""
        host = self._host
        if subscription.pending < MOVING_QUEUE_MAX and host.core.is_migrating:
            return
        self._full.add(subscription)
        for connection in host.attachments.connections.values():
            connection.pause_reading()

    def notify(self) -> None:
        """See `DeliveryHandler.notify`."""
        for subscription in self._subscriptions.values():
            subscription.notify()
