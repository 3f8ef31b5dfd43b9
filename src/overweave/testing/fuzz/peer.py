"""A raw peer of a broker: its connection and its side of a session."""

import asyncio
import contextlib
import random
import socket
import struct

from overweave.batches.raw import RawRows
from overweave.batches.row_codec import encode_rows
from overweave.broker.session import AckScheduler, EpochCounter, Session
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Effect, SendFrame
from overweave.contract.frames import Acknowledgement, BatchFrame, Hello, SyncEnd
from overweave.contract.wire import FRAME_BYTES_MAX, Connect, Message, encode
from overweave.drivers.tcp.frame_reader import FrameReader
from overweave.drivers.tcp.lives import life_of
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter

KEY = "key"


_RESET = struct.pack("ii", 1, 0)


class Peer:
    """One connection of an attacker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._frames = FrameReader()
        self._frames.bytes_max = FRAME_BYTES_MAX
        self.frames = self.bytes_sent = 0

    async def send(self, data: bytes) -> None:
        """Write raw bytes."""
        self._writer.write(data)
        self.frames += 1
        self.bytes_sent += len(data)
        await self._writer.drain()

    async def receive(self, within_s: float) -> list[Message] | None:
        """What the broker says within some time; None when it has closed the connection."""
        try:
            data = await asyncio.wait_for(self._reader.read(1 << 16), within_s)
        except TimeoutError:
            return []
        return list(self._frames.feed(data)) if data else None

    def close(self, reset: bool) -> None:
        """Close the connection, or reset it."""
        if reset:
            sock = self._writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            self._writer.transport.abort()
        else:
            self._writer.close()


class FuzzSession:
    """A client that says something at each turn, as bytes; it cares little whether it makes sense."""

    def __init__(self, name: str, draw: random.Random) -> None:
        self._name, self._draw = name, draw
        self._session = Session("B1", EpochCounter(draw.choice((1, 1, 7, 2**64 - 1))), SessionConfig(), AckScheduler())
        self._number = self._sequence = 0

    def opening(self) -> bytes:
        """The first frame of the connection."""
        return message_bytes(Connect("client", self._name, None, KEY))

    def answers(self, received: list[Message]) -> list[bytes]:
        """The frames in reply to received ones."""
        effects: list[Effect] = []
        for message in received:
            if isinstance(message, Connect):
                self._session.connect(effects)
            elif isinstance(message, Hello):
                self._session.on_hello(message, [SyncEnd()] if self._session.has_new_epoch(message) else [], effects)
            elif isinstance(message, Acknowledgement):
                self._session.on_acknowledgement(message, effects)
            elif isinstance(message, BatchFrame):
                if self._session.receive(message, message.batch.count, effects):
                    self._session.inbound.settle(message.sequence, message.batch.count)
                self._session.acknowledge(effects)
        return _frames(effects)

    def next_frames(self) -> list[bytes]:
        """Frames of the next valid message."""
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
            publishes = [Publish(content, Header(self._name, self._sequence + i, 1.0, life_of(KEY))) for i in range(rows)]
            self._sequence += rows
            self._session.outbound.send(RawRows(encode_rows(publishes), rows), None, effects)
        return _frames(effects)


def _frames(effects: list[Effect]) -> list[bytes]:
    return [message_bytes(effect.frame) for effect in effects if isinstance(effect, SendFrame)]


def message_bytes(message: Message) -> bytes:
    """The wire form of a message."""
    return b"".join(piece if isinstance(piece, bytes) else piece.tobytes() for piece in encode(message))
