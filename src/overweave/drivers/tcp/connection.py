"""A connection: bytes of a socket in, messages out, and the other way round. What they mean is its owner's business."""

import asyncio
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol

from overweave.contract.raw import Bytes
from overweave.contract.wire import FRAME_BYTES_MAX, HEAD, OPEN_BYTES_MAX, Message, Refused, decode, encode
from overweave.errors import InvalidInput, WireError

#: What a transport may hold before more waits here, where it is not copied.
_TRANSPORT_BYTES = 1 << 20
#: Smaller pieces are joined, to be sent by one system call.
_JOINED_BYTES = 1 << 16
#: How long a peer that does not read may keep us from closing.
LINGER_S = 2.0


class Owner(Protocol):
    """Who has connections."""

    def connected(self, connection: "Connection") -> None:
        """A connection is open."""

    def received(self, connection: "Connection", message: Message) -> None:
        """A message came in."""

    def lost(self, connection: "Connection") -> None:
        """A connection is gone."""


class FrameReader:
    """Cuts a stream of bytes into messages.

    >>> from overweave.contract.wire import Ping
    >>> reader = FrameReader()
    >>> frame = b"".join(encode(Ping()))
    >>> list(reader.feed(frame[:3])), list(reader.feed(frame[3:] + frame))
    ([], [Ping(), Ping()])
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        #: The longest frame that is taken; a peer that has not said who it is gets little.
        self.bytes_max = OPEN_BYTES_MAX

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete now; a `WireError` when something is none."""
        buffer = self._buffer
        buffer += data
        at = 0
        try:
            while len(buffer) - at >= HEAD.size:
                length, kind = HEAD.unpack_from(buffer, at)
                if not 0 < length <= self.bytes_max:
                    raise WireError(at, f"a frame of 1 to {self.bytes_max:,} bytes, got {length:,}")
                end = at + 4 + length
                if end > len(buffer):
                    break
                body = bytes(memoryview(buffer)[at + HEAD.size : end])
                at = end
                yield decode(kind, body)
        finally:
            del buffer[:at]


def _buffer(piece: bytes | Bytes) -> bytes | memoryview:
    return piece if isinstance(piece, bytes) else piece.data


class Connection(asyncio.Protocol):
    """One open socket."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        #: Whole messages, so that what is said last does not end up within one of them.
        self._waiting: deque[Sequence[bytes | Bytes]] = deque()
        self._writable = True
        #: When it was made, and when something was sent and received last, by the loop's clock.
        self.made_s = self.sent_s = self.received_s = 0.0
        #: Who is at the other end, once it is known.
        self.peer = ""
        self.bytes_out = 0

    # ---- what asyncio says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.Protocol`."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        transport.set_write_buffer_limits(high=_TRANSPORT_BYTES)
        self.made_s = self.sent_s = self.received_s = asyncio.get_running_loop().time()
        self._owner.connected(self)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        if self._transport is None:
            return  # closed by us; over TLS something may still come in
        self.received_s = asyncio.get_running_loop().time()
        try:
            for message in self._reader.feed(data):
                self._owner.received(self, message)
                if self._transport is None:
                    return
        except InvalidInput as error:
            self.refuse("bad-frame", str(error))

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        """See `asyncio.Protocol`."""
        self._transport = None
        self._waiting.clear()
        self._owner.lost(self)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable = False

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._writable = True
        while self._waiting and self._writable and self._transport is not None:
            self._write(self._waiting.popleft())

    # ---- what the owner wants

    @property
    def open(self) -> bool:
        """Whether anything can still be sent."""
        return self._transport is not None

    def trust(self) -> None:
        """The peer has said who it is: it may send long frames."""
        self._reader.bytes_max = FRAME_BYTES_MAX

    def certificate(self) -> dict[str, object] | None:
        """What the peer has shown, over TLS."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None

    def send(self, message: Message) -> None:
        """Put a message on the wire, or behind what waits to go there."""
        if self._transport is None:
            return
        self.sent_s = asyncio.get_running_loop().time()
        pieces = encode(message)
        size = sum(map(len, pieces))
        self.bytes_out += size
        if len(pieces) > 1 and size < _JOINED_BYTES:
            pieces = (b"".join(piece if isinstance(piece, bytes) else piece.tobytes() for piece in pieces),)
        if self._writable and not self._waiting:
            self._write(pieces)
        else:
            self._waiting.append(pieces)

    def refuse(self, code: str, text: str) -> None:
        """Say why, and close."""
        self._waiting.clear()
        self._writable = True
        self.send(Refused(code, text))
        self.close()

    def close(self) -> None:
        """Close when all that is in the transport has gone out, or the peer has not taken it for a while."""
        if self._transport is not None:
            transport, self._transport = self._transport, None
            unsent = transport.get_write_buffer_size()
            transport.close()
            if unsent:
                asyncio.get_running_loop().call_later(LINGER_S, transport.abort)

    def abort(self) -> None:
        """Close at once."""
        if self._transport is not None:
            self._transport.abort()

    def stop_reading(self) -> None:
        """Leave what arrives to the operating system, and so to the peer."""
        if self._transport is not None and self._transport.is_reading():
            self._transport.pause_reading()

    def read_on(self) -> None:
        """Read again."""
        if self._transport is not None and not self._transport.is_reading():
            self._transport.resume_reading()

    def _write(self, pieces: Sequence[bytes | Bytes]) -> None:
        assert self._transport is not None
        for piece in pieces:
            self._transport.write(_buffer(piece))
