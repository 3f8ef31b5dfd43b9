"""The client library: publish and subscribe from Python.

::

    async with connect("tcp://localhost:7401") as client:
        await client.publish({"class": "STOCK", "volume": 7})
        receipt = await client.flush()
        async with client.subscribe("[class,eq,'STOCK'],[volume,>,5]") as quotes:
            async for publication in quotes:
                ...

A connection that breaks is made again, and what the broker had not settled is sent again; nothing has to be done about it.
Where the broker has forgotten the client meanwhile, publications may be missing: subscriptions raise `SessionLost`, once.
What is published within one turn of the loop travels together. What is not advertised yet is, before it is published.
"""

import asyncio
import contextlib
import secrets
import ssl
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType

import msgspec

from overweave.batches.base import Batch
from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.broker.client import ClientCore
from overweave.contract.config import CLIENT_WINDOW, SessionConfig
from overweave.contract.effects import Deliver, Rejection
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, Stimulus, TimerFired
from overweave.contract.wire import Connect, Disconnect, Gap, Message, Notice, Ping, payload_max
from overweave.contract.wire import Refused as RefusedMessage
from overweave.drivers.effect_runner import CLIENT_EFFECTS, Alarm, EffectRunner
from overweave.drivers.tcp.absence import LATE_S
from overweave.drivers.tcp.addresses import Address, parse_address
from overweave.drivers.tcp.advertiser import Advertiser
from overweave.drivers.tcp.certificates import SEPARATOR, common_name
from overweave.drivers.tcp.client_keys import TAKEN_OVER
from overweave.drivers.tcp.connection import Connection
from overweave.drivers.tcp.lives import life_of
from overweave.errors import InvalidInput, NotAdvertised, Refused, SessionLost
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter

CONFIG = SessionConfig(window=CLIENT_WINDOW, acknowledge_every=256, acknowledge_delay_s=0.005)
#: Publications that may wait for one subscription before the client stops reading.
QUEUE_MAX = 20_000
#: Refusals after which it makes no sense to try again.
_FATAL = frozenset(
    ("unauthorized", "bad-name", "name-in-use", "version", "not-allowed", "bad-frame", "bad-id", "bad-publication", TAKEN_OVER)
) | {"limit-exceeded", "slow-consumer"}
_RETRY_S, _RETRY_S_MAX = 0.05, 2.0
_HEARTBEAT_S = 5.0
_DIAL_S_MAX = 10.0
#: So much of what is published in one turn goes into a frame; and so much may a single publication take.
_TOGETHER_ROWS, _TOGETHER_BYTES, _ROW_BYTES_MAX = 1024, 8 << 20, payload_max(1)


class Receipt(msgspec.Struct, frozen=True):
    """What became of publications that are settled: how many there were, and how many of them matched nobody.

    Those went nowhere from their first broker. What became of some may be unknown, because a broker restarted; they count as
    forwarded.

    >>> Receipt(published=10, unmatched=3).forwarded
    7
    """

    published: int
    unmatched: int

    @property
    def forwarded(self) -> int:
        """How many went to subscribers or to other brokers."""
        return self.published - self.unmatched


class EncodedRows(RawRows):
    """Rows that `Client.encode` has made."""

    #: What they were made from, until it is known to be advertised.
    contents: Sequence[Publication] = ()


class Subscription:
    """What some filters receive, to be iterated over; `messages` gives headers and payloads too.

    When the broker had forgotten the client, so that publications may be missing, that raises `SessionLost` once, after what
    came before the gap; iterating again goes on behind it. A client that was cut off as a slow consumer gets `Refused`, always.
    """

    def __init__(self, client: "Client", id: str, filters: Sequence[Filter], wait: bool = True) -> None:
        self.id = id
        #: Whether to wait at the beginning until it is in force.
        self.wait = wait
        #: By the ids that brokers know.
        self.filters = {id if not place else f"{id}.{place}": filter for place, filter in enumerate(filters)}
        self._client = client
        self._batches: deque[Batch | SessionLost] = deque()
        #: Whether the broker has had it: it must not be missed from then on.
        self.in_force = False
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

    def lose(self, error: SessionLost) -> None:
        """There is a gap behind what has arrived."""
        self._batches.append(error)
        self._arrived.set()

    @property
    def gap_is_next(self) -> bool:
        """Whether the next thing to be read is an error."""
        return bool(self._batches) and isinstance(self._batches[0], SessionLost)

    def wake(self) -> None:
        """Have whoever waits look again."""
        self._arrived.set()

    async def _next_batch(self) -> Batch:
        while not self._batches:
            self._client._check()
            self._arrived.clear()
            await self._arrived.wait()
        first = self._batches.popleft()
        if isinstance(first, SessionLost):
            raise first
        return first

    def _taken(self, rows: int) -> None:
        self.waiting -= rows
        if self.waiting < QUEUE_MAX // 2:
            self._client._relieved(self)


class Client:
    """A client of one broker; use `connect`."""

    def __init__(
        self,
        address: Address,
        name: str | None,
        token: str | None,
        context: ssl.SSLContext | None,
        prefix: str = "client-",
        advertise: bool = True,
    ) -> None:
        self._address = address
        self._advertiser = Advertiser() if advertise else None
        #: Whoever publishes waits in line while something is advertised first.
        self._advertising = asyncio.Lock()
        self._in_line = 0
        #: What the last receipt has counted.
        self._counted_published = self._counted_unmatched = 0
        #: What the broker said of publications, until somebody is told; and the number of the last thing it said.
        self._notice: NotAdvertised | None = None
        self._notice_number = 0
        #: When the connection was lost.
        self._lost_s = 0.0
        self.name = name or f"{prefix}{secrets.token_hex(6)}"
        self._token, self._context = token, context
        self._key = secrets.token_hex(16)
        #: What the broker says as long as it remembers this client.
        self._ticket: str | None = None
        self._epoch_s = time.time() - time.monotonic()
        # Only traces care for the first number: in them, clients of one name are told apart by nothing else.
        first_sequence = time.time_ns() // 1_000 if name else 0
        self._core = ClientCore(self.name, "", CONFIG, first_sequence=first_sequence, life=life_of(self._key))
        #: Part of all ids: who comes anew under its name, perhaps to another broker, says nothing that is said already.
        self._suffix = f"-{secrets.token_hex(6)}" if name else ""
        #: Publications in flight, at most: the broker may say less than is usual.
        self._window = CONFIG.window
        self._connection: Connection | None = None
        self._subscriptions: dict[str, Subscription] = {}
        #: Subscriptions for which so much waits that nothing is read.
        self._full: set[Subscription] = set()
        self._counter = 0
        #: Published in this turn of the loop, and not sent yet.
        self._outbox: list[bytes] = []
        self._outbox_bytes = 0
        self._runner = EffectRunner(
            CLIENT_EFFECTS, _Uplink(self), self._schedule, self._fire, {Deliver: self._deliver, Rejection: self._rejected}
        )
        self._progress = asyncio.Event()
        self._ready = asyncio.Event()
        #: A connection that was good is gone: make another before long.
        self._broken = asyncio.Event()
        self._refused: Refused | None = None
        #: Control messages that somebody waits for, by their ids, with why the broker rejected them.
        self._awaited: dict[str, Refused | None] = {}
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
        try:
            if kind is None and self._refused is None:
                await self.flush()  # what was not advertised is raised here at the latest
        finally:
            await self.close()

    # ---- what one does

    async def advertise(self, filter: str | Filter, *, wait: bool = True) -> str:
        """Say what will be published; the id with which it can be withdrawn.

        Returns when the advertisement is in force: every broker has it, and all subscriptions that it attracts have arrived. With
        ``wait=False`` at once.
        """
        id, wanted = self._new_id("a"), _filter(filter)
        await self._say(Advertise(id, wanted), wait=wait)
        if self._advertiser is not None:
            self._advertiser.add(id, wanted)
        return id

    async def unadvertise(self, id: str) -> None:
        """Withdraw an advertisement, when all that was published under it is settled: it may have to be sent again."""
        await self._settle()
        if self._advertiser is not None:
            self._advertiser.remove(id)
        await self._say(Unadvertise(id))

    async def publish(self, publication: Mapping[str, object], payload: bytes = b"") -> None:
        """Publish; waits only while too much is unsettled, or until it is advertised. `flush` waits until all is settled.

        `NotAdvertised` is raised, once, if something that was published before reached nobody because it was not advertised.
        """
        content = publication if isinstance(publication, Publication) else Publication(publication)
        self._check()
        self._raise_notice()
        if self._advertiser is not None and (self._in_line or self._advertiser.missing(content) is not None):
            await self._advertise_first((content,))
        header = Header(self.name, self._core.next_sequence + len(self._outbox), self.now_s(), self._core.life)
        row = encode_rows((Publish(content, header, payload),))
        _check_length(len(row))
        if self._outbox_bytes + len(row) > _TOGETHER_BYTES:
            self._send_outbox()
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._send_outbox)
        self._outbox.append(row)
        self._outbox_bytes += len(row)
        if len(self._outbox) >= _TOGETHER_ROWS or self._outbox_bytes >= _TOGETHER_BYTES or self.unsettled >= self._window:
            self._send_outbox()
            await self._room()

    async def publish_encoded(self, rows: RawRows) -> None:
        """Publish rows that are encoded already (see `encode`), again and again if one likes; for those in a hurry.

        Rows that `encode` made are advertised like others. Rows from elsewhere have to be advertised before.
        """
        self._raise_notice()
        if self._advertiser is not None and isinstance(rows, EncodedRows) and (rows.contents or self._in_line):
            await self._advertise_first(rows.contents)
            rows.contents = ()
        self._send_outbox()
        await self._room()
        now_s = self.now_s()
        pieces = list(rows.renumbered(self._core.next_sequence, now_s).chunks(_TOGETHER_BYTES))
        _check_length(max(len(some.data) for some in pieces))
        for some in pieces:
            self._runner.run(self._core.send(some, now_s))

    def encode(self, publications: list[Mapping[str, object]], payload: bytes = b"") -> RawRows:
        """Publications as rows of this client, for `publish_encoded`."""
        contents = [p if isinstance(p, Publication) else Publication(p) for p in publications]
        header = Header(self.name, life=self._core.life)
        rows = EncodedRows(encode_rows(Publish(content, header, payload) for content in contents), len(contents))
        rows.contents = contents
        return rows

    def subscribe(self, *filters: str | Filter, wait: bool = True) -> Subscription:
        """What matches a filter, or any of several, from entering the context until leaving it.

        The context is entered when the subscription is in force: every broker that needs it has it. With ``wait=False`` at once.
        """
        if not filters:
            raise InvalidInput("filters: expected at least one")
        return Subscription(self, self._new_id("s"), [_filter(filter) for filter in filters], wait)

    async def flush(self) -> Receipt:
        """Wait until all that was sent before is settled: every subscriber that is connected has got it.

        The receipt counts the publications that were settled since the last one. `NotAdvertised` is raised, once, if some
        reached nobody because they were not advertised.
        """
        await self._settle()
        if self._refused is not None:
            raise self._refused
        self._raise_notice()
        published, unmatched = self._core.settled_publications(), self._core.unmatched_publications()
        receipt = Receipt(published - self._counted_published, unmatched - self._counted_unmatched)
        self._counted_published, self._counted_unmatched = published, unmatched
        return receipt

    async def _settle(self, until: Callable[[], bool] = lambda: False) -> None:
        """Wait until all that was sent before is settled, or something else is so."""
        self._send_outbox()
        barrier = self._core.barrier()
        while not barrier.settled and not until():
            await self._wait()

    async def _advertise_first(self, contents: Sequence[Publication]) -> None:
        """Advertise what is not yet, after what was published before; all who publish meanwhile wait in line."""
        assert self._advertiser is not None
        self._in_line += 1
        try:
            async with self._advertising:
                for content in contents:
                    filter = self._advertiser.missing(content)
                    if filter is not None:
                        await self._say(Advertise(self._new_id("a"), filter))
                        self._advertiser.advertised(content)
        finally:
            self._in_line -= 1

    def _raise_notice(self) -> None:
        notice, self._notice = self._notice, None
        if notice is not None:
            raise notice

    @property
    def unsettled(self) -> int:
        """How many publications are on their way."""
        return self._core.unsettled_rows() + len(self._outbox)

    @property
    def unmatched(self) -> int:
        """How many of the publications that are settled matched nobody, since it was connected."""
        return self._core.unmatched_publications()

    async def close(self) -> None:
        """Leave for good; what was not flushed may be lost."""
        self._closed = True
        if self._dialler is not None:
            self._dialler.cancel()
            await asyncio.gather(self._dialler, return_exceptions=True)
        if self._connection is not None:
            self._connection.send(Disconnect())
            self._connection.close()
            self._connection = None
        self._runner.cancel_timers()
        self._wake_all()
        await asyncio.sleep(0)

    # ---- subscriptions

    async def _begin(self, subscription: Subscription) -> None:
        self._check()
        self._subscriptions[subscription.id] = subscription
        subscribes = [Subscribe(id, filter) for id, filter in subscription.filters.items()]
        try:
            await self._say(*subscribes, group=subscription.id, wait=subscription.wait)
        except Refused:
            self._subscriptions.pop(subscription.id, None)
            for id in subscription.filters if self._refused is None else ():  # some may be in force
                self._runner.run(self._core.send_control(Unsubscribe(id), self.now_s()))
            raise
        subscription.in_force = True

    async def _end(self, subscription: Subscription) -> None:
        self._subscriptions.pop(subscription.id, None)
        self._relieved(subscription)
        if not self._closed and self._refused is None:
            await self._say(*map(Unsubscribe, subscription.filters))

    def _relieved(self, subscription: Subscription) -> None:
        if subscription in self._full:
            self._full.remove(subscription)
            if not self._full and self._connection is not None:
                self._connection.resume_reading()

    async def _say(self, *messages: Control, group: str | None = None, wait: bool = True) -> None:
        """Say something and wait until it is settled; `Refused` if the broker has rejected any of it."""
        self._send_outbox()
        if wait:
            self._awaited.update(dict.fromkeys(message.id for message in messages))
        try:
            for message in messages:
                self._runner.run(self._core.send_control(message, self.now_s(), group))
            if wait:
                await self._settle(until=lambda: any(self._awaited[message.id] is not None for message in messages))
        finally:
            rejected = [self._awaited.pop(message.id, None) for message in messages]
        for refused in rejected:
            if refused is not None:
                raise refused

    def _rejected(self, effect: Rejection) -> None:
        """Tell whoever waits for it. What nobody waits for, or is said again to a broker that forgot it, ends the client."""
        refused = Refused(effect.code, effect.text)
        if effect.id in self._awaited:
            self._awaited[effect.id] = refused
        elif not effect.withdrawal:
            self._refused = refused
            self._wake_all()

    # ---- the core

    def now_s(self) -> float:
        """The time as publications have it: wall clock time that never jumps."""
        return self._epoch_s + time.monotonic()

    def _new_id(self, kind: str) -> str:
        self._counter += 1
        return f"{self.name}/{kind}{self._counter}{self._suffix}"

    def _send_outbox(self) -> None:
        if self._outbox:
            outbox, self._outbox, self._outbox_bytes = self._outbox, [], 0
            self._runner.run(self._core.send(RawRows(b"".join(outbox), len(outbox)), self.now_s()))

    async def _room(self) -> None:
        """Wait while as much is unsettled as may be."""
        while self._core.unsettled_rows() >= self._window:
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
        self._runner.run(self._core.handle(stimulus, self.now_s()))

    def _schedule(self, at_s: float, action: Callable[[str], None], name: str) -> Alarm:
        return asyncio.get_running_loop().call_later(max(at_s - self.now_s(), 0.0), action, name)

    def _deliver(self, effect: Deliver) -> None:
        for id, batch in effect.parts:
            subscription = self._subscriptions.get(id)
            if subscription is not None:
                subscription.put(batch)
                if subscription.waiting >= QUEUE_MAX and self._connection is not None:
                    self._full.add(subscription)
                    self._connection.pause_reading()

    def _fire(self, name: str) -> None:
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
        """See `ConnectionHandler.connected`."""
        self._connection = connection
        connection.mark_authenticated()
        settled = sum(len(each.filters) for each in self._subscriptions.values() if each.in_force and each.wait)
        connection.send(Connect("client", self.name, self._token, self._key, subscriptions=settled))

    def received(self, connection: Connection, message: Message) -> None:
        """See `ConnectionHandler.received`."""
        if isinstance(message, Ping | Disconnect):
            return
        if isinstance(message, RefusedMessage):
            full = message.code == "connection-limit" and not self._ready.is_set()  # who was connected before tries again
            if message.code in _FATAL or full:
                self._refused = Refused(message.code, message.text)
            connection.close()
            self.lost(connection)
        elif isinstance(message, Connect):
            self._opened(connection, message)
        elif isinstance(message, Notice):
            self._noticed(message)
        else:
            self._handle(FrameArrived(connection.peer, message))
            self._progress.set()

    def _opened(self, connection: Connection, message: Connect) -> None:
        self._core.broker = connection.peer = message.name
        is_other, self._ticket = self._ticket not in (None, message.key), message.key
        if is_other:
            if message.gap is not None and message.gap.code in _FATAL:
                # We were told when it happened, but did not hear it.
                self._refused = Refused(message.gap.code, message.gap.text)
                connection.close()
                self.lost(connection)
                return
            if not message.knows:
                self._lose_session(message.name, message.gap)
            self._notice_number = 0
            self._core.reset()
        self._window = min(message.window or CONFIG.window, CONFIG.window)
        self._core.set_window(self._window)
        self._handle(PeerConnected(message.name))
        self._ready.set()

    def _lose_session(self, broker: str, gap: Gap | None) -> None:
        """The broker did not know what we had subscribed to, for a while."""
        now_s, since_s = self.now_s(), self._lost_s
        unknown = f"broker {broker} does not know all subscriptions of this client any more, as after a restart without state"
        for subscription in self._subscriptions.values():
            if subscription.in_force:
                subscription.lose(
                    SessionLost("session-lost", unknown, since_s, now_s)
                    if gap is None
                    else SessionLost(gap.code, gap.text, min(now_s - gap.ago_s, since_s), now_s, gap.rows)
                )

    def _noticed(self, message: Notice) -> None:
        if message.number > self._notice_number:
            self._notice_number = message.number
            self._notice = NotAdvertised(message.text)

    def lost(self, connection: Connection) -> None:
        """See `ConnectionHandler.lost`."""
        if self._connection is connection:
            # From when nothing was heard: if this process was stopped, it notices late that the connection is gone.
            self._connection, self._lost_s = None, self.now_s() - (time.monotonic() - connection.received_s)
            if connection.peer:
                self._broken.set()
            self._handle(PeerDisconnected(connection.peer))
            self._wake_all()


class _Uplink:
    """The one connection of a client, whatever its broker is called."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, _: str, /) -> Connection | None:
        """See `Connections.get`."""
        return self._client._connection


def connect(
    url: str,
    *,
    name: str | None = None,
    token: str | None = None,
    authorities: Path | str | None = None,
    certificate: Path | str | None = None,
    key: Path | str | None = None,
    advertise: bool = True,
) -> Client:
    """A client of the broker at ``url`` (``tcp://HOST:PORT`` or ``tls://HOST:PORT``), to be entered.

    ``authorities`` is a PEM file of who signs the broker's certificate (else the system's), ``certificate`` and ``key`` are the
    client's own. ``token`` proves the ``name`` where a broker asks for it. Without a name the client gets one that nobody has:
    ``client-HEX``, or ``NAME~HEX`` if the common name in its certificate is NAME.
    Unless ``advertise`` is False, what is published is advertised before, where no advertisement of the client covers it: its
    class and the attributes it has.

    >>> connect("http://localhost")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: url: expected tcp://HOST:PORT or tls://HOST:PORT, got 'http://localhost'
    """
    address, context, prefix = parse_address(url), None, "client-"
    if address.tls:
        context = ssl.create_default_context(cafile=None if authorities is None else str(authorities))
        if certificate is not None:
            context.load_cert_chain(str(certificate), None if key is None else str(key))
            found = common_name(certificate)
            if found and "/" not in found:  # which no client's name has
                prefix = f"{found}{SEPARATOR}"
    return Client(address, name, token, context, prefix, advertise)


def _filter(filter: str | Filter) -> Filter:
    return parse_filter(filter) if isinstance(filter, str) else filter


def _check_length(length: int) -> None:
    if length > _ROW_BYTES_MAX:
        raise InvalidInput(f"publication: expected at most {_ROW_BYTES_MAX:,} bytes with its payload, got {length:,}")
