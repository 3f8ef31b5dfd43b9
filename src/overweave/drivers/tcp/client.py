"""The client library: publish and subscribe from Python.

::

    async with connect("tcp://localhost:7401") as client:
        await client.advertise("[class,eq,'STOCK'],[volume,isPresent,0]")
        await client.publish({"class": "STOCK", "volume": 7})
        async with client.subscribe("[class,eq,'STOCK'],[volume,>,5]") as quotes:
            async for publication in quotes:
                ...

A connection that breaks is made again, and what the broker had not settled is sent again; nothing has to be done about it.
What is published within one turn of the loop travels together.
"""

import asyncio
import contextlib
import secrets
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType

from overweave.broker.client import ClientCore
from overweave.contract.batches import Batch
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Deliver, Effect, SendFrame, SetTimer
from overweave.contract.raw import RawRows, encode_rows
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, Stimulus, TimerFired
from overweave.contract.wire import Bye, Message, Open, Ping, room_for
from overweave.contract.wire import Refused as RefusedMessage
from overweave.drivers.tcp.absence import LATE_S
from overweave.drivers.tcp.addresses import Address, parse_address
from overweave.drivers.tcp.connection import Connection
from overweave.errors import InvalidInput, Refused
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter

CONFIG = SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005)
#: Publications that may wait for one subscription before the client stops reading.
QUEUE_MAX = 20_000
#: Refusals after which it makes no sense to try again.
_FATAL = frozenset(
    ("unauthorized", "bad-name", "name-in-use", "version", "not-allowed", "bad-frame", "bad-id", "bad-publication")
)
_RETRY_S, _RETRY_S_MAX = 0.05, 2.0
_HEARTBEAT_S = 5.0
_DIAL_S_MAX = 10.0
#: So much of what is published in one turn goes into a frame; and so much may a single publication take.
_TOGETHER_ROWS, _TOGETHER_BYTES, _ROW_BYTES_MAX = 1024, 8 << 20, room_for(1)


class Subscription:
    """What some filters receive, to be iterated over; `messages` gives headers and payloads too."""

    def __init__(self, client: "Client", id: str, filters: Sequence[Filter]) -> None:
        self.id = id
        #: By the ids that brokers know.
        self.filters = {id if not place else f"{id}.{place}": filter for place, filter in enumerate(filters)}
        self._client = client
        self._batches: deque[Batch] = deque()
        self._rows: deque[Publish] = deque()
        self._arrived = asyncio.Event()
        #: How many publications wait to be taken.
        self.waiting = 0

    async def __aenter__(self) -> "Subscription":
        await self._client._begin(self)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._client._end(self)

    def __aiter__(self) -> AsyncIterator[Publication]:
        return self._publications()

    async def _publications(self) -> AsyncIterator[Publication]:
        async for publish in self.messages():
            yield publish.publication

    async def messages(self) -> AsyncIterator[Publish]:
        """Publications with their headers and payloads."""
        while True:
            while self._rows:
                self._taken(1)
                yield self._rows.popleft()
            self._rows.extend((await self._next_batch()).publishes())

    async def batches(self) -> AsyncIterator[Batch]:
        """Publications as they come, many at a time, for those in a hurry."""
        while True:
            batch = await self._next_batch()
            self._taken(batch.count)
            yield batch

    def put(self, batch: Batch) -> None:
        """Something has arrived."""
        self._batches.append(batch)
        self.waiting += batch.count
        self._arrived.set()

    def wake(self) -> None:
        """Have whoever waits look again."""
        self._arrived.set()

    async def _next_batch(self) -> Batch:
        while not self._batches:
            self._client._check()
            self._arrived.clear()
            await self._arrived.wait()
        return self._batches.popleft()

    def _taken(self, rows: int) -> None:
        self.waiting -= rows
        if self.waiting < QUEUE_MAX // 2:
            self._client._relieved(self)


class Client:
    """A client of one broker; use `connect`."""

    def __init__(self, address: Address, name: str | None, token: str | None, context: ssl.SSLContext | None) -> None:
        self._address = address
        self.name = name or f"client-{secrets.token_hex(6)}"
        self._token, self._context = token, context
        self._key = secrets.token_hex(16)
        #: What the broker says as long as it remembers this client.
        self._ticket: str | None = None
        now_us = time.time_ns() // 1_000
        self._epoch_s = time.time() - time.monotonic()
        self._core = ClientCore(self.name, "", CONFIG, incarnation=now_us // 1_000, first_sequence=now_us if name else 0)
        #: Part of all ids: who comes anew under its name, perhaps to another broker, says nothing that is said already.
        self._life = f"-{now_us // 1_000:x}" if name else ""
        self._connection: Connection | None = None
        self._subscriptions: dict[str, Subscription] = {}
        #: Subscriptions for which so much waits that nothing is read.
        self._full: set[Subscription] = set()
        self._counter = 0
        #: Published in this turn of the loop, and not sent yet.
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._progress = asyncio.Event()
        self._ready = asyncio.Event()
        #: A connection that was good is gone: make another before long.
        self._broken = asyncio.Event()
        self._refused: Refused | None = None
        self._closed = False
        self._dialler: asyncio.Task[None] | None = None

    async def __aenter__(self) -> "Client":
        self._dialler = asyncio.get_running_loop().create_task(self._keep_connected())
        ready = asyncio.get_running_loop().create_task(self._ready.wait())
        try:
            await asyncio.wait((self._dialler, ready), return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
            if not self._ready.is_set():
                await self.close()
        self._check()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None and self._refused is None:
            await self.flush()
        await self.close()

    # ---- what one does

    async def advertise(self, filter: str | Filter) -> str:
        """Say what will be published; the id with which it can be withdrawn."""
        id = self._new_id("a")
        self._carry_out(self._core.say(Advertise(id, _filter(filter)), self.now_s()))
        await self.flush()
        return id

    async def unadvertise(self, id: str) -> None:
        """Withdraw an advertisement, when all that was published under it is settled: it may have to be sent again."""
        await self.flush()
        self._carry_out(self._core.say(Unadvertise(id), self.now_s()))
        await self.flush()

    async def publish(self, publication: Mapping[str, object], payload: bytes = b"") -> None:
        """Publish; waits only while too much is unsettled. `flush` waits until all is."""
        content = publication if isinstance(publication, Publication) else Publication(publication)
        self._check()
        header = Header(self.name, self._core.next_sequence + len(self._outbox), self.now_s())
        row = encode_rows((Publish(content, header, payload),))
        _check_length(len(row))
        if self._outbox_bytes + len(row) > _TOGETHER_BYTES:
            self._send_outbox()
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._send_outbox)
        self._outbox.append(row)
        self._outbox_bytes += len(row)
        if len(self._outbox) >= _TOGETHER_ROWS or self._outbox_bytes >= _TOGETHER_BYTES or self.unsettled >= CONFIG.window:
            self._send_outbox()
            await self._room()

    async def publish_rows(self, rows: RawRows) -> None:
        """Publish rows that are encoded already (see `encode`), again and again if one likes; for those in a hurry."""
        self._send_outbox()
        await self._room()
        now_s = self.now_s()
        pieces = list(rows.numbered(self._core.next_sequence, now_s).cut(_TOGETHER_BYTES))
        _check_length(max(len(some.data) for some in pieces))
        for some in pieces:
            self._carry_out(self._core.send(some, now_s))

    def encode(self, publications: list[Mapping[str, object]], payload: bytes = b"") -> RawRows:
        """Publications as rows of this client, for `publish_rows`."""
        contents = (p if isinstance(p, Publication) else Publication(p) for p in publications)
        return RawRows(encode_rows(Publish(content, Header(self.name), payload) for content in contents), len(publications))

    def subscribe(self, *filters: str | Filter) -> Subscription:
        """What matches a filter, or any of several, from entering the context until leaving it."""
        if not filters:
            raise InvalidInput("filters: expected at least one")
        return Subscription(self, self._new_id("s"), [_filter(filter) for filter in filters])

    async def flush(self) -> None:
        """Wait until all that was said is settled: every subscriber that is connected has got it."""
        self._send_outbox()
        while self._core.unsettled():
            await self._wait()

    @property
    def unsettled(self) -> int:
        """How many publications are on their way."""
        return self._core.unsettled_rows() + len(self._outbox)

    async def close(self) -> None:
        """Leave for good; what was not flushed may be lost."""
        self._closed = True
        if self._dialler is not None:
            self._dialler.cancel()
            await asyncio.gather(self._dialler, return_exceptions=True)
        if self._connection is not None:
            self._connection.send(Bye())
            self._connection.close()
            self._connection = None
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._wake_all()
        await asyncio.sleep(0)

    # ---- subscriptions

    async def _begin(self, subscription: Subscription) -> None:
        self._check()
        self._subscriptions[subscription.id] = subscription
        for id, filter in subscription.filters.items():
            self._carry_out(self._core.say(Subscribe(id, filter), self.now_s(), subscription.id))
        await self.flush()

    async def _end(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.id, None)
        self._relieved(subscription)
        if not self._closed and self._refused is None:
            for id in subscription.filters:
                self._carry_out(self._core.say(Unsubscribe(id), self.now_s()))
            await self.flush()

    def _relieved(self, subscription: Subscription) -> None:
        if subscription in self._full:
            self._full.remove(subscription)
            if not self._full and self._connection is not None:
                self._connection.read_on()

    # ---- the core

    def now_s(self) -> float:
        """The time as publications have it: wall clock time that never jumps."""
        return self._epoch_s + time.monotonic()

    def _new_id(self, kind: str) -> str:
        self._counter += 1
        return f"{self.name}/{kind}{self._counter}{self._life}"

    def _send_outbox(self) -> None:
        if self._outbox:
            outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
            self._carry_out(self._core.send(RawRows(b"".join(outbox), len(outbox)), self.now_s()))

    async def _room(self) -> None:
        """Wait while as much is unsettled as may be."""
        while self._core.unsettled_rows() >= CONFIG.window:
            await self._wait()

    async def _wait(self) -> None:
        self._check()
        self._progress.clear()
        await self._progress.wait()
        self._check()

    def _check(self) -> None:
        if self._refused is not None:
            raise self._refused
        if self._closed:
            raise Refused("closed", "the client was closed")

    def _handle(self, stimulus: Stimulus) -> None:
        self._carry_out(self._core.handle(stimulus, self.now_s()))

    def _carry_out(self, effects: list[Effect]) -> None:
        for effect in effects:
            if isinstance(effect, SendFrame):
                if self._connection is not None:
                    self._connection.send(effect.frame)
            elif isinstance(effect, Deliver):
                self._deliver(effect)
            elif isinstance(effect, SetTimer):
                delay_s = max(effect.at_s - self.now_s(), 0.0)
                self._timers[effect.name] = asyncio.get_running_loop().call_later(delay_s, self._fire, effect.name)

    def _deliver(self, effect: Deliver) -> None:
        for id, batch in effect.parts:
            subscription = self._subscriptions.get(id)
            if subscription is not None:
                subscription.put(batch)
                if subscription.waiting >= QUEUE_MAX and self._connection is not None:
                    self._full.add(subscription)
                    self._connection.stop_reading()

    def _fire(self, name: str) -> None:
        self._timers.pop(name, None)
        self._handle(TimerFired(name))

    def _wake_all(self) -> None:
        self._progress.set()
        for subscription in self._subscriptions.values():
            subscription.wake()

    # ---- the connection

    async def _keep_connected(self) -> None:
        retry_s, due_s = _RETRY_S, time.monotonic()
        while self._refused is None and not self._closed:
            if self._connection is not None and time.monotonic() > due_s + LATE_S:
                # This process was paused: what the broker said meanwhile has not been read yet.
                self._connection.received_s = time.monotonic()
                self._connection.send(Ping())
            if self._connection is None:
                with contextlib.suppress(OSError, TimeoutError):
                    async with asyncio.timeout(_DIAL_S_MAX):
                        await self._dial()
            elif time.monotonic() - self._connection.received_s > 3 * _HEARTBEAT_S and self._ready.is_set():
                self._connection.abort()
            else:
                if time.monotonic() - self._connection.sent_s > _HEARTBEAT_S / 2:
                    self._connection.send(Ping())
            due_s = time.monotonic() + retry_s
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(retry_s):
                    await self._broken.wait()
            retry_s = min(2 * retry_s, _RETRY_S_MAX)
            if self._broken.is_set():
                self._broken.clear()
                retry_s = _RETRY_S
                await asyncio.sleep(retry_s)

    async def _dial(self) -> None:
        host, port, _ = self._address
        try:
            await asyncio.get_running_loop().create_connection(lambda: Connection(self), host, port, ssl=self._context)
        except ssl.SSLCertVerificationError as error:
            if not self._ready.is_set():  # it would be no better next time, unless it was good before
                self._refused = Refused("bad-certificate", str(error))

    def connected(self, connection: Connection) -> None:
        """See `Owner.connected`."""
        self._connection = connection
        connection.trust()
        connection.send(Open("client", self.name, self._token, self._key))

    def received(self, connection: Connection, message: Message) -> None:
        """See `Owner.received`."""
        if isinstance(message, Ping | Bye):
            return
        if isinstance(message, RefusedMessage):
            if message.code in _FATAL or message.code == "slow-consumer":
                self._refused = Refused(message.code, message.text)
            connection.close()
            self.lost(connection)
        elif isinstance(message, Open):
            self._core.broker = connection.peer = message.name
            if self._ticket not in (None, message.key):
                self._core.come_anew()
            self._ticket = message.key
            self._handle(PeerConnected(message.name))
            self._ready.set()
        else:
            self._handle(FrameArrived(connection.peer, message))
            self._progress.set()

    def lost(self, connection: Connection) -> None:
        """See `Owner.lost`."""
        if self._connection is connection:
            self._connection = None
            if connection.peer:
                self._broken.set()
            self._handle(PeerDisconnected(connection.peer))
            self._wake_all()


def connect(
    url: str,
    *,
    name: str | None = None,
    token: str | None = None,
    authorities: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
) -> Client:
    """A client of the broker at ``url`` (``tcp://HOST:PORT`` or ``tls://HOST:PORT``), to be entered.

    ``authorities`` is a PEM file of who signs the broker's certificate (else the system's), ``certificate`` and ``key`` are the
    client's own. ``token`` proves the ``name`` where a broker asks for it; without a name the client gets one that nobody has.

    >>> connect("http://localhost")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: url: expected tcp://HOST:PORT or tls://HOST:PORT, got 'http://localhost'
    """
    address, context = parse_address(url), None
    if address.tls:
        context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
        if certificate is not None:
            context.load_cert_chain(str(certificate), None if key is None else str(key))
    return Client(address, name, token, context)


def _filter(filter: str | Filter) -> Filter:
    return parse_filter(filter) if isinstance(filter, str) else filter


def _check_length(length: int) -> None:
    if length > _ROW_BYTES_MAX:
        raise InvalidInput(f"publication: expected at most {_ROW_BYTES_MAX:,} bytes with its payload, got {length:,}")
