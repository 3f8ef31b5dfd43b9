"""An attacker: a random sequence of malformed and hostile connections."""

import asyncio
import contextlib
import random
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable

from overweave.contract.wire import BATCH, FRAME_BYTES_MAX, HEAD, Connect, Ping
from overweave.drivers.tcp.addresses import parse_address
from overweave.testing.fuzz.peer import FuzzSession, Peer, message_bytes


class Attack:
    """Attacks, chosen by chance."""

    def __init__(self, url: str, draw: random.Random) -> None:
        self._address = parse_address(url)
        self._draw = draw
        self.counts: dict[str, int] = {}
        self.connections = self.frames = self.bytes_sent = 0
        self._names = 0

    async def run_until(self, end_s: float) -> None:
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
        """Send random bytes."""
        async with self._connection() as peer:
            for _ in range(self._draw.randint(1, 5)):
                await peer.send(self._draw.randbytes(self._draw.choice((1, 4, 5, 64, 4096, 20_000))))
            await peer.receive(0.1)

    async def broken_opening(self) -> None:
        """Open with a mutated frame."""
        async with self._connection() as peer:
            await peer.send(self._mutated(message_bytes(self._open())))
            await peer.send(message_bytes(Ping()))
            await peer.receive(0.1)

    async def wrong_opening(self) -> None:
        """Names of others, names that cannot be, roles and versions that there are not; and more than one opening."""
        name = self._draw.choice(("good-1", "B1", "", "a/b", "x" * 300, "ä\0\n", "B2", self._new_name()))
        role = self._draw.choice(("client", "broker", "", "Client", "x" * 2000))
        version = self._draw.choice((1, 1, 0, 2, -1, 2**63))
        async with self._connection() as peer:
            for _ in range(self._draw.randint(1, 3)):
                await peer.send(message_bytes(Connect(role, name, "token", self._draw.choice((None, "key")), version)))
            await peer.receive(0.1)

    async def broken_session(self) -> None:
        """A client that speaks as it should, but for one frame in four."""
        async with self._connection() as peer:
            session = FuzzSession(self._new_name(), self._draw)
            await peer.send(session.opening())
            for _ in range(self._draw.randint(2, 12)):
                received = await peer.receive(0.01)
                if received is None:
                    return
                for frame in (*session.answers(received), *session.next_frames()):
                    await peer.send(self._mutated(frame) if self._draw.random() < 0.25 else frame)

    async def huge_length(self) -> None:
        """Announce impossible frame lengths."""
        lengths = (0, 4097, 1 << 20, FRAME_BYTES_MAX, FRAME_BYTES_MAX + 1, 0x7FFFFFFF, 0xFFFFFFFF)
        async with self._connection() as peer:
            if self._draw.random() < 0.5:
                await peer.send(message_bytes(self._open()))
            await peer.send(HEAD.pack(self._draw.choice(lengths), self._draw.choice((BATCH, BATCH, self._draw.randrange(256)))))
            for _ in range(self._draw.choice((0, 1, 16))):
                await peer.send(bytes(1 << 16))
            await peer.receive(0.2)

    async def never_finished(self) -> None:
        """Half an opening, or half a frame, and then nothing for a while."""
        async with self._connection() as peer:
            if self._draw.random() < 0.5:
                await peer.send(message_bytes(self._open()))
            await peer.send(message_bytes(self._open())[: self._draw.randrange(20)])
            await asyncio.sleep(self._draw.uniform(0.5, 3.5))

    async def drop_by_drop(self) -> None:
        """One byte a second, at most as long as an attack may take."""
        async with self._connection() as peer:
            if self._draw.random() < 0.5:
                await peer.send(message_bytes(self._open()))
            for byte in message_bytes(self._open()):
                await peer.send(bytes((byte,)))
                await asyncio.sleep(1.0)

    async def storm(self) -> None:
        """Open and close many connections."""
        for _ in range(self._draw.choice((20, 100, 300))):
            async with self._connection() as peer:
                if self._draw.random() < 0.3:
                    await peer.send(message_bytes(self._open()))

    # ---- helpers

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator["Peer"]:
        reader, writer = await asyncio.open_connection(self._address.host, self._address.port)
        self.connections += 1
        peer = Peer(reader, writer)
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
