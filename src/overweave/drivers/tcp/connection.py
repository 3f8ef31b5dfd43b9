"""A connection: bytes of a socket in, messages out, and the other way round. What they mean is its owner's business."""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

import numpy as np

from overweave.contract.frames import ControlFrame, UrgentFrame
from overweave.contract.wire import FRAME_BYTES_MAX, HEAD, OPEN_BYTES_MAX, Message, Refused, decode, encode, is_superseded
from overweave.errors import InvalidInput, WireError

#: What a transport may hold before more waits here, where it is not copied.
_TRANSPORT_BYTES = 1 << 20
#: Smaller pieces are joined where they cannot be written together, to be sent by one system call.
_JOINED_BYTES = 1 << 16
#: How much is received at once, at first and at most; of a longer frame, before more of it has come; and from which length on a
#: message stays where it was received.
_LEAST_BYTES, _MOST_BYTES, _AT_ONCE_BYTES, _LONG_BYTES = 1 << 12, 1 << 19, 1 << 20, 1 << 14
#: After so long with control messages of one connection, in one turn of the loop, others have their turn.
_TURN_S = 0.002
#: Urgent frames that may wait for a peer that does not read, and how long: older ones are outdated, and dropped.
_URGENT_FRAMES, _URGENT_DEADLINE_S = 256, 1.0
#: How long a peer that does not read may keep us from closing.
LINGER_S = 2.0


class ConnectionHandler(Protocol):
    """Who has connections."""

    def connected(self, connection: "Connection") -> None:
        """A connection is open."""

    def received(self, connection: "Connection", message: Message) -> None:
        """A message came in."""

    def lost(self, connection: "Connection") -> None:
        """A connection is gone."""


class FrameReader:
    """Cuts a stream of bytes into messages. Long ones are received where they are to stay, and not copied.

    >>> from overweave.contract.wire import Ping
    >>> reader = FrameReader()
    >>> frame = b"".join(encode(Ping()))
    >>> list(reader.feed(frame[:3])), list(reader.feed(frame[3:] + frame))
    ([], [Ping(), Ping()])
    """

    def __init__(self) -> None:
        #: Where bytes are received, and how many are there; it begins with a frame. How large the next one will be.
        self._buffer, self._filled = _new_buffer(_LEAST_BYTES), 0
        self._capacity = _LEAST_BYTES
        #: Whether a message lies in the buffer, so that nothing else may be written there.
        self._is_taken = False
        #: The longest frame that is taken; a peer that has not said who it is gets little.
        self.bytes_max = OPEN_BYTES_MAX

    def get_buffer(self) -> memoryview:
        """Where the next bytes are to be put: always some."""
        return self._buffer[self._filled :]

    def buffer_updated(self, count: int) -> Iterator[Message]:
        """The messages that are complete when so many bytes were put there; a `WireError` when something is none."""
        self._filled += count
        at = 0
        try:
            while end := self._end_of_frame(at):
                frame, at = self._buffer[at:end], end
                if is_superseded(frame, self._buffer[at : self._filled]):
                    continue
                kind, body = frame[4], frame[HEAD.size :]
                if len(frame) >= _LONG_BYTES and 4 * len(frame) >= len(self._buffer):
                    self._is_taken = True
                    yield decode(kind, body.toreadonly())
                else:
                    yield decode(kind, bytes(body))
        finally:
            self._make_room(at)

    def _end_of_frame(self, at: int) -> int:
        """Where the frame that begins there ends; 0: it is not all there."""
        if self._filled - at < HEAD.size:
            return 0
        length, _ = HEAD.unpack_from(self._buffer, at)
        if not 0 < length <= self.bytes_max:
            raise WireError(at, f"a frame of 1 to {self.bytes_max:,} bytes, got {length:,}")
        end = at + 4 + length
        return end if end <= self._filled else 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that are complete with some more bytes, for those who have them already."""
        while data:
            room = self.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            yield from self.buffer_updated(count)

    def _make_room(self, at: int) -> None:
        """Have the bytes from ``at`` on first in a buffer in which there is room for more of their frame."""
        rest = self._buffer[at : self._filled]
        if self._filled == len(self._buffer) and self._capacity < _MOST_BYTES:
            self._capacity *= 2
        size = self._capacity
        if len(rest) >= HEAD.size:
            # Who announces a long frame has to send some of it before there is room for all.
            size = max(size, min(4 + HEAD.unpack_from(rest)[0], max(_AT_ONCE_BYTES, 2 * len(rest))))
        is_new = self._is_taken or size > len(self._buffer) or (size < len(self._buffer) and not rest)
        if is_new:
            self._buffer, self._is_taken = _new_buffer(size), False
        if is_new or at:
            self._buffer[: len(rest)] = rest
        self._filled = len(rest)


def _new_buffer(size: int) -> memoryview:
    return np.empty(size, np.uint8).data


def _descriptor(transport: asyncio.Transport) -> int | None:
    socket = transport.get_extra_info("socket")
    can_write = hasattr(os, "writev") and socket is not None and transport.get_extra_info("ssl_object") is None
    return socket.fileno() if can_write else None


class Connection(asyncio.BufferedProtocol):
    """One open socket."""

    def __init__(self, owner: ConnectionHandler) -> None:
        self.owner = owner
        self._reader = FrameReader()
        self._transport: asyncio.Transport | None = None
        #: Where pieces can be written together, while nothing waits in the transport; None: they cannot, as over TLS.
        self._descriptor: int | None = None
        #: Whole messages, so that what is said last does not end up within one of them.
        self._waiting: deque[Sequence[bytes | memoryview]] = deque()
        #: Urgent messages with the time of sending. They go before all others here, but not before bytes that the transport
        #: (`_TRANSPORT_BYTES`) or the operating system holds already.
        self._urgent: deque[tuple[float, Sequence[bytes | memoryview]]] = deque(maxlen=_URGENT_FRAMES)
        self._writable = True
        #: Messages that were received and not handed over yet; until they are, in a later turn of the loop, nothing is read.
        self._received: Iterator[Message] | None = None
        self._is_scheduled = False
        #: Whether the owner wants nothing for now, whether nothing is read, and whether the connection is closed or gone.
        self.held = False
        self._paused = self._closed = self._gone = False
        #: When it was made, and when something was sent and received last, by the monotonic clock.
        self.made_s = self.sent_s = self.received_s = 0.0
        #: Who is at the other end, once it is known.
        self.peer = ""
        self.bytes_out = 0

    # ---- what asyncio says

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._transport = cast(asyncio.Transport, transport)  # that of another loop may have another base
        self._transport.set_write_buffer_limits(high=_TRANSPORT_BYTES)
        self._descriptor = _descriptor(self._transport)
        self.made_s = self.sent_s = self.received_s = time.monotonic()
        self.owner.connected(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """See `asyncio.BufferedProtocol`."""
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        """See `asyncio.BufferedProtocol`."""
        if self._transport is None:
            return  # closed by us; over TLS something may still come in
        self.received_s = time.monotonic()
        self._received = self._reader.buffer_updated(nbytes)
        self._hand_over()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        """See `asyncio.BufferedProtocol`."""
        self._transport = None
        self._waiting.clear()
        self._urgent.clear()
        self._gone = True
        if not self._is_scheduled:  # else the owner is to hear first what it has said
            self.owner.lost(self)

    def pause_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._writable = False

    def resume_writing(self) -> None:
        """See `asyncio.BufferedProtocol`."""
        self._writable = True
        outdated_s = time.monotonic() - _URGENT_DEADLINE_S
        while self._urgent and self._writable and self._transport is not None:
            sent_s, pieces = self._urgent.popleft()
            if sent_s >= outdated_s:
                self._write(pieces)
        while self._waiting and self._writable and self._transport is not None:
            self._write(self._waiting.popleft())

    # ---- what the owner wants

    @property
    def open(self) -> bool:
        """Whether anything can still be sent."""
        return self._transport is not None

    def mark_authenticated(self) -> None:
        """The peer has said who it is: it may send long frames."""
        self._reader.bytes_max = FRAME_BYTES_MAX

    def certificate(self) -> dict[str, object] | None:
        """What the peer has shown, over TLS."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None

    def send(self, message: Message) -> None:
        """Put a message on the wire, or behind what waits to go there."""
        if self._transport is None:
            return
        self.sent_s = time.monotonic()
        pieces = encode(message)
        size = sum(map(len, pieces))
        self.bytes_out += size
        if self._descriptor is None and len(pieces) > 1 and size < _JOINED_BYTES:
            pieces = (b"".join(pieces),)
        if self._writable and not self._waiting:
            self._write(pieces)
        elif isinstance(message, UrgentFrame):
            self._urgent.append((self.sent_s, pieces))
        else:
            self._waiting.append(pieces)

    def refuse(self, code: str, text: str) -> None:
        """Say why, and close."""
        self._waiting.clear()
        self._urgent.clear()
        self._writable = True
        self.send(Refused(code, text))
        self.close()

    def close(self) -> None:
        """Close when all that is in the transport has gone out, or the peer has not taken it for a while."""
        self._closed, self._received = True, None
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

    def pause_reading(self) -> None:
        """Leave what arrives to the operating system, and so to the peer."""
        self.held = True
        self._update_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self.held = False
        self._update_reading()

    def _hand_over(self) -> None:
        """Give the owner what was received, until others have their turn."""
        end_s = time.perf_counter() + _TURN_S
        try:
            for message in self._received or ():
                self.owner.received(self, message)
                if self._closed:
                    break
                if isinstance(message, ControlFrame) and time.perf_counter() > end_s:
                    self._update_reading()
                    self._is_scheduled = True
                    asyncio.get_running_loop().call_soon(self._hand_over_more)
                    return
        except InvalidInput as error:
            self.refuse("bad-frame", str(error))
        self._received = None
        self._update_reading()
        if self._gone:
            self.owner.lost(self)

    def _hand_over_more(self) -> None:
        self._is_scheduled = False
        self._hand_over()

    def _update_reading(self) -> None:
        """Read only when the owner wants to hear more and has all that was received."""
        wanted = not self.held and self._received is None
        if self._transport is not None and wanted is self._paused:
            self._paused = not wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def _write(self, pieces: Sequence[bytes | memoryview]) -> None:
        transport, sent = self._transport, 0
        assert transport is not None
        # A transport that was aborted has thrown away what it held, perhaps within a frame; the socket is closed only later.
        if self._descriptor is not None and not transport.is_closing() and not transport.get_write_buffer_size():
            with contextlib.suppress(OSError):  # the transport will see the same
                sent = os.writev(self._descriptor, pieces)
        for piece in pieces:
            if sent < len(piece):
                transport.write(memoryview(piece)[sent:])
            sent = max(sent - len(piece), 0)
