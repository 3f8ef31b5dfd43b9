"""``python -m overweave.testing.fuzz --seconds N --seed S``: a live broker among peers that mean no good.

A broker runs in a process of its own. Two good clients publish to each other all the time, while others throw random bytes at
the broker, valid frames with mistakes in them (before and after they have said who they are), lengths that cannot be, names that
are not theirs, connections that are never finished, and connections without number. In the end the broker must be up, with as
much memory and as many sockets as before, without a word on its standard error that tells of a mistake of ours; and the good
clients must have got everything, once, in order and before long.
"""

import argparse
import asyncio
import contextlib
import random
import socket
import struct
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
import numpy as np

from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.broker.session import AckScheduler, EpochCounter, Session
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Effect, SendFrame
from overweave.contract.frames import Acknowledgement, BatchFrame, Hello, SyncEnd
from overweave.contract.wire import BATCH, FRAME_BYTES_MAX, HEAD, Connect, Message, Ping, encode
from overweave.drivers.tcp.addresses import parse_address
from overweave.drivers.tcp.client import Client, Subscription, connect
from overweave.drivers.tcp.connection import FrameReader
from overweave.drivers.tcp.lives import life_of
from overweave.errors import OverweaveError
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.testing.live import BrokerProcess, network_settings, processes, raise_descriptor_limit, until

#: How many attacks run side by side.
ATTACKERS = 32
#: What the broker may hold more at the end than after the first part of the time.
GROWTH_BYTES_MAX = 48 << 20
#: How long a publication of a good client may take, now and then and at worst; this process has two cores and much to do.
LATENCY_S_P99, LATENCY_S_MAX = 1.0, 5.0
#: What the broker would say if something went wrong in it.
_MISTAKES = ("Traceback", "Fatal error", "Exception", "never retrieved", "AssertionError")
_BURST, _EVERY_S = 5, 0.01
_KEY = "key"
_RESET = struct.pack("ii", 1, 0)
_CONFIG = BrokerConfig(
    SessionConfig(window=16_384, acknowledge_every=256, acknowledge_delay_s=0.005), slow_consumer_timeout_s=1.0
)


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What happened."""

    seconds: float
    attacks: dict[str, int]
    connections: int
    frames: int
    bytes_sent: int
    memory_bytes_before: int
    memory_bytes_after: int
    memory_bytes_max: int
    descriptors_before: int
    descriptors_after: int
    published: int
    received: int
    latency_s_p50: float
    latency_s_p99: float
    latency_s_max: float

    def check(self) -> None:
        """Raise an AssertionError if the broker or the good clients have suffered."""
        assert self.received == self.published > 0, f"{self.published} published, {self.received} received"
        growth = self.memory_bytes_after - self.memory_bytes_before
        assert growth <= GROWTH_BYTES_MAX, f"memory has grown by {growth:,} bytes"
        assert self.descriptors_after <= self.descriptors_before, "sockets are left open"
        assert self.latency_s_p99 <= LATENCY_S_P99, f"latency p99 {self.latency_s_p99:.3f} s"
        assert self.latency_s_max <= LATENCY_S_MAX, f"latency {self.latency_s_max:.3f} s"


def fuzz(seconds: float, seed: int) -> Report:
    """Attack a broker of its own for a while; an AssertionError if it does not bear it."""
    raise_descriptor_limit()
    settings = network_settings(Overlay(["B1"]), session_expiry_s=1.0, heartbeat_s=1.0, config=_CONFIG)
    with processes(settings) as brokers:
        broker = brokers["B1"]
        report = asyncio.run(_fuzz(broker, seconds, seed))
        assert broker.alive, f"the broker died: {broker.errors()[-2000:]}"
        said = broker.errors()
        at = min((said.find(each) for each in _MISTAKES if each in said), default=-1)
        assert at < 0, f"the broker made a mistake: {said[max(at - 500, 0) : at + 3000]}"
    return report


async def _fuzz(broker: BrokerProcess, seconds: float, seed: int) -> Report:
    async with _Pair(broker.url) as pair:
        descriptors = broker.descriptors()
        attack = _Attack(broker.url, random.Random(seed))
        memory = [broker.memory_bytes()]
        start_s = time.monotonic()
        warm_s, end_s = start_s + min(seconds / 3, 60.0), start_s + seconds
        attackers = [asyncio.create_task(attack.go_on(end_s)) for _ in range(ATTACKERS)]
        while time.monotonic() < end_s:
            await asyncio.sleep(min(seconds / 20, 1.0))
            assert broker.alive, f"the broker died: {broker.errors()[-2000:]}"
            pair.check()
            if time.monotonic() < warm_s:
                memory = []
            memory.append(broker.memory_bytes())
        await asyncio.gather(*attackers)
        await pair.finish()
        with contextlib.suppress(AssertionError):
            await until(lambda: broker.descriptors() <= descriptors, within_s=8.0)
        latencies_s = np.concatenate(pair.latencies_s)
        return Report(
            seconds=time.monotonic() - start_s, attacks=attack.counts, connections=attack.connections, frames=attack.frames,
            bytes_sent=attack.bytes_sent, memory_bytes_before=memory[0], memory_bytes_after=broker.memory_bytes(),
            memory_bytes_max=max(memory), descriptors_before=descriptors, descriptors_after=broker.descriptors(),
            published=pair.published, received=pair.received, latency_s_p50=float(np.percentile(latencies_s, 50)),
            latency_s_p99=float(np.percentile(latencies_s, 99)), latency_s_max=float(latencies_s.max()),
        )  # fmt: skip


class _Pair:
    """Two clients that publish to each other, and watch that all arrives once and in order."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._stack = contextlib.AsyncExitStack()
        self._tasks: list[asyncio.Task[None]] = []
        self._publishing = True
        self._clients: list[Client] = []
        self.published = self.received = 0
        self.latencies_s: list[np.ndarray] = []

    async def __aenter__(self) -> "_Pair":
        names = "good-1", "good-2"
        for name in names:
            client = await self._stack.enter_async_context(connect(self._url, name=name))
            await client.advertise(f"[class,eq,'of {name}'],[n,>=,0]")
            self._clients.append(client)
        for name, client, other in zip(names, self._clients, reversed(self._clients), strict=True):
            subscription = await self._stack.enter_async_context(other.subscribe(f"[class,eq,'of {name}']"))
            self._tasks.append(asyncio.create_task(self._publish(client, name)))
            self._tasks.append(asyncio.create_task(self._receive(subscription)))
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._stack.aclose()

    def check(self) -> None:
        """Nobody has stopped for a reason."""
        for task in self._tasks:
            if task.done() and self._publishing:
                task.result()

    async def finish(self) -> None:
        """Publish no more, and wait for what is under way."""
        self._publishing = False
        for client in self._clients:
            await asyncio.wait_for(client.flush(), timeout=30.0)
        with contextlib.suppress(AssertionError):
            await until(lambda: self.received >= self.published, within_s=5.0)
        for task in self._tasks:
            if task.done():
                task.result()

    async def _publish(self, client: Client, name: str) -> None:
        number = 0
        while self._publishing:
            for _ in range(_BURST):
                await client.publish({"class": f"of {name}", "n": number}, b"payload")
                number += 1
                self.published += 1
            await asyncio.sleep(_EVERY_S)

    async def _receive(self, subscription: Subscription) -> None:
        expected = 0
        async for batch in subscription.batches():
            assert isinstance(batch, RawRows)
            self.latencies_s.append(self._clients[0].now_s() - batch.published_at_s())
            for publish in batch.publishes():
                assert publish.publication["n"] == expected, f"expected {expected}, got {publish.publication}"
                expected += 1
                self.received += 1


class _Attack:
    """Attacks, chosen by chance."""

    def __init__(self, url: str, draw: random.Random) -> None:
        self._address = parse_address(url)
        self._draw = draw
        self.counts: dict[str, int] = {}
        self.connections = self.frames = self.bytes_sent = 0
        self._names = 0

    async def go_on(self, end_s: float) -> None:
        """One attack after the other."""
        kinds: list[Callable[[], Awaitable[None]]] = [
            self.random_bytes, self.broken_opening, self.broken_session, self.broken_session, self.broken_session,
            self.wrong_opening, self.huge_length, self.never_finished, self.drop_by_drop, self.storm,
        ]  # fmt: skip
        while time.monotonic() < end_s:
            attack = self._draw.choice(kinds)
            name = attack.__name__.replace("_", " ")
            self.counts[name] = self.counts.get(name, 0) + 1
            with contextlib.suppress(OSError, TimeoutError, EOFError):
                await asyncio.wait_for(attack(), timeout=4.0)

    # ---- the attacks

    async def random_bytes(self) -> None:
        async with self._connection() as peer:
            for _ in range(self._draw.randint(1, 5)):
                await peer.send(self._draw.randbytes(self._draw.choice((1, 4, 5, 64, 4096, 20_000))))
            await peer.overhear(0.1)

    async def broken_opening(self) -> None:
        async with self._connection() as peer:
            await peer.send(self._mutated(_bytes(self._open())))
            await peer.send(_bytes(Ping()))
            await peer.overhear(0.1)

    async def wrong_opening(self) -> None:
        """Names of others, names that cannot be, roles and versions that there are not; and more than one opening."""
        name = self._draw.choice(("good-1", "B1", "", "a/b", "x" * 300, "ä\0\n", "B2", self._new_name()))
        role = self._draw.choice(("client", "broker", "", "Client", "x" * 2000))
        version = self._draw.choice((1, 1, 0, 2, -1, 2**63))
        async with self._connection() as peer:
            for _ in range(self._draw.randint(1, 3)):
                await peer.send(_bytes(Connect(role, name, "token", self._draw.choice((None, "key")), version)))
            await peer.overhear(0.1)

    async def broken_session(self) -> None:
        """A client that speaks as it should, but for one frame in four."""
        async with self._connection() as peer:
            session = _Session(self._new_name(), self._draw)
            await peer.send(session.opening())
            for _ in range(self._draw.randint(2, 12)):
                heard = await peer.overhear(0.01)
                if heard is None:
                    return
                for frame in (*session.answers(heard), *session.says()):
                    await peer.send(self._mutated(frame) if self._draw.random() < 0.25 else frame)

    async def huge_length(self) -> None:
        lengths = (0, 4097, 1 << 20, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 0x7FFFFFFF, 0xFFFFFFFF)
        async with self._connection() as peer:
            if self._draw.random() < 0.5:
                await peer.send(_bytes(self._open()))
            await peer.send(HEAD.pack(self._draw.choice(lengths), self._draw.choice((BATCH, BATCH, self._draw.randrange(256)))))
            for _ in range(self._draw.choice((0, 1, 16))):
                await peer.send(bytes(1 << 16))
            await peer.overhear(0.2)

    async def never_finished(self) -> None:
        """Half an opening, or half a frame, and then nothing for a while."""
        async with self._connection() as peer:
            if self._draw.random() < 0.5:
                await peer.send(_bytes(self._open()))
            await peer.send(_bytes(self._open())[: self._draw.randrange(20)])
            await asyncio.sleep(self._draw.uniform(0.5, 3.5))

    async def drop_by_drop(self) -> None:
        """One byte a second, at most as long as an attack may take."""
        async with self._connection() as peer:
            if self._draw.random() < 0.5:
                await peer.send(_bytes(self._open()))
            for byte in _bytes(self._open()):
                await peer.send(bytes((byte,)))
                await asyncio.sleep(1.0)

    async def storm(self) -> None:
        for _ in range(self._draw.choice((20, 100, 300))):
            async with self._connection() as peer:
                if self._draw.random() < 0.3:
                    await peer.send(_bytes(self._open()))

    # ---- what they need

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator["_Peer"]:
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        self.connections += 1
        peer = _Peer(reader, writer)
        try:
            yield peer
        finally:
            self.frames += peer.frames
            self.bytes_sent += peer.bytes_sent
            peer.close(reset=self._draw.random() < 0.5)

    def _open(self) -> Connect:
        return Connect("client", self._new_name(), None, "key")

    def _new_name(self) -> str:
        self._names += 1
        return f"fuzz-{self._names}"

    def _mutated(self, data: bytes) -> bytes:
        """The bytes with some mistakes."""
        some, draw = bytearray(data), self._draw
        for _ in range(draw.choice((1, 1, 1, 2, 8))):
            at = draw.randrange(len(some) + 1)
            kind = draw.randrange(6)
            if kind == 0 and at < len(some):
                some[at] ^= 1 << draw.randrange(8)
            elif kind == 1 and at < len(some):
                some[at] = draw.choice((0, 1, 0x7F, 0x80, 0xFF, draw.randrange(256)))
            elif kind == 2:
                some[at:at] = draw.randbytes(draw.randint(1, 9))
            elif kind == 3:
                del some[at : at + draw.randint(1, 9)]
            elif kind == 4:
                some[at : at + 8] = draw.choice((bytes(8), b"\xff" * 8, b"\xff" * 7 + b"\x7f", bytes(7) + b"\x80"))
            else:
                some += some[at : at + 64]
        if draw.random() < 0.5 and len(some) > HEAD.size:
            # So that it is taken for one frame, and what is in it is looked at.
            some[:4] = struct.pack("<I", len(some) - 4)
        return bytes(some)


class _Peer:
    """One connection of an attacker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()
        self._frames.bytes_max = FRAME_BYTES_MAX
        self.frames = self.bytes_sent = 0

    async def send(self, data: bytes) -> None:
        self._writer.write(data)
        self.frames += 1
        self.bytes_sent += len(data)
        await self._writer.drain()

    async def overhear(self, within_s: float) -> list[Message] | None:
        """What the broker says within some time; None when it has closed the connection."""
        try:
            data = await asyncio.wait_for(self._reader.read(1 << 16), within_s)
        except TimeoutError:
            return []
        return list(self._frames.feed(data)) if data else None

    def close(self, reset: bool) -> None:
        if reset:
            sock = self._writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._writer.transport.abort()
        else:
            self._writer.close()


class _Session:
    """A client that says something at each turn, as bytes; it cares little whether it makes sense."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self._name, self._draw = name, draw
        self._session = Session("B1", EpochCounter(draw.choice((1, 1, 7, 2**64 - 1))), SessionConfig(), AckScheduler())
        self._number = self._sequence = 0

    def opening(self) -> bytes:
        return _bytes(Connect("client", self._name, None, _KEY))

    def answers(self, heard: list[Message]) -> list[bytes]:
        effects: list[Effect] = []
        for message in heard:
            if isinstance(message, Connect):
                self._session.connect(effects)
            elif isinstance(message, Hello):
                self._session.on_hello(message, [SyncEnd()] if self._session.is_new(message) else [], effects)
            elif isinstance(message, Acknowledgement):
                self._session.on_acknowledgement(message, effects)
            elif isinstance(message, BatchFrame):
                if self._session.receive(message, message.batch.count, effects):
                    self._session.inbound.settle(message.sequence, message.batch.count)
                self._session.acknowledge(effects)
        return _frames(effects)

    def says(self) -> list[bytes]:
        number = self._number = self._number + 1
        effects: list[Effect] = []
        kind, id = self._draw.randrange(6), f"{self._name}/{self._draw.randrange(4)}"
        filter = parse_filter(f"[class,eq,'noise'],[{self._draw.choice(('n', 'm', f'a{number}'))},>=,{self._draw.randrange(5)}]")
        if kind < 2:
            self._session.send_control(self._draw.choice((Advertise, Subscribe, Subscribe))(id, filter), effects)
        elif kind == 2:
            self._session.send_control(self._draw.choice((Unsubscribe, Unadvertise))(id), effects)
        else:
            content = Publication({"class": "noise", "n": number, f"a{number}": 1.5, "t": "text" * self._draw.randrange(9)})
            rows = self._draw.choice((1, 2, 50))
            publishes = [Publish(content, Header(self._name, self._sequence + i, 1.0, life_of(_KEY))) for i in range(rows)]
            self._sequence += rows
            self._session.send(RawRows(encode_rows(publishes), rows), None, effects)
        return _frames(effects)


def _frames(effects: list[Effect]) -> list[bytes]:
    return [_bytes(effect.frame) for effect in effects if isinstance(effect, SendFrame)]


def _bytes(message: Message) -> bytes:
    return b"".join(piece if isinstance(piece, bytes) else piece.tobytes() for piece in encode(message))


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description="Attack a live broker, and see that good clients notice nothing.")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    report = fuzz(arguments.seconds, arguments.seed)
    for name, value in msgspec.structs.asdict(report).items():
        print(f"{name}: {value}")
    try:
        report.check()
    except (AssertionError, OverweaveError) as error:
        sys.exit(f"failed: {error}")


if __name__ == "__main__":
    main()
