"""Subscriptions of a client: queues of publications, and flow control when they fill up."""

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType

from overweave.batches.base import Batch
from overweave.contract.effects import Deliver
from overweave.drivers.tcp.attachment import Attachment
from overweave.errors import Refused, SessionLost
from overweave.language.messages import Publish, Subscribe, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication

#: Publications that may be pending for one subscription before the client stops reading.
QUEUE_MAX = 20_000


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
    """All subscriptions of one client, over its attachment; implements `AttachmentHandler`."""

    def __init__(self) -> None:
        self._attachment: Attachment | None = None
        self._subscriptions: dict[str, Subscription] = {}
        #: Subscriptions with too many pending publications; while there are any, nothing is read.
        self._full: set[Subscription] = set()

    def attach(self, attachment: Attachment) -> None:
        """Send subscriptions over an attachment."""
        self._attachment = attachment

    @property
    def _home(self) -> Attachment:
        assert self._attachment is not None
        return self._attachment

    async def subscribe(self, subscription: Subscription) -> None:
        """Put a subscription in force; `Refused` if the broker rejects a filter of it."""
        home = self._home
        home.check()
        self._subscriptions[subscription.id] = subscription
        messages = [Subscribe(id, filter) for id, filter in subscription.filters.items()]
        try:
            await home.send_control(*messages, group=subscription.id, wait=subscription.wait)
        except Refused:
            self._subscriptions.pop(subscription.id, None)
            for id in subscription.filters if home.error is None else ():  # some may be in force
                home.post_control(Unsubscribe(id))
            raise
        subscription.in_force = True

    async def unsubscribe(self, subscription: Subscription) -> None:
        """Withdraw a subscription, unless the session has ended."""
        self._subscriptions.pop(subscription.id, None)
        self.resume(subscription)
        home = self._home
        if not home.closed and home.error is None:
            await home.send_control(*map(Unsubscribe, subscription.filters))

    def check(self) -> None:
        """Raise `Refused` if no more publications can arrive."""
        self._home.check()

    def resume(self, subscription: Subscription) -> None:
        """Read again when no subscription is full."""
        if subscription in self._full:
            self._full.remove(subscription)
            connection = self._home.uplink.connection
            if not self._full and connection is not None:
                connection.resume_reading()

    # ---- what the attachment reports

    @property
    def confirmed_filters(self) -> int:
        """See `AttachmentHandler.confirmed_filters`."""
        return sum(len(each.filters) for each in self._subscriptions.values() if each.in_force and each.wait)

    def deliver(self, effect: Deliver) -> None:
        """See `AttachmentHandler.deliver`; reading pauses when a subscription is full."""
        connection = self._home.uplink.connection
        for id, batch in effect.parts:
            subscription = self._subscriptions.get(id)
            if subscription is not None:
                subscription.push(batch)
                if subscription.pending >= QUEUE_MAX and connection is not None:
                    self._full.add(subscription)
                    connection.pause_reading()

    def on_session_lost(self, error: SessionLost) -> None:
        """See `AttachmentHandler.on_session_lost`."""
        for subscription in self._subscriptions.values():
            if subscription.in_force:
                subscription.push(copy.copy(error))  # each is raised with a traceback of its own

    def notify(self) -> None:
        """See `AttachmentHandler.notify`."""
        for subscription in self._subscriptions.values():
            subscription.notify()
