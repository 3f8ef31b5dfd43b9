"""A connection: messages to and from the bytes of a socket. Their meaning is the handler's concern."""

import asyncio
import contextlib
import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from overweave.contract.frames import ControlFrame, UrgentFrame, UrgentMessageFrame
from overweave.contract.wire import FRAME_BYTES_MAX, Error, Message, encode
from overweave.drivers.tcp.frame_reader import FrameReader
from overweave.errors import InvalidInput

#: The most bytes in a transport's buffer; more stay here, where they are not copied.
_TRANSPORT_BYTES = 1 << 20
#: Smaller pieces are joined if they cannot be written together, to be sent by one system call.
_JOINED_BYTES = 1 << 16
#: The time slice for control messages of one connection in one turn of the loop.
_TURN_S = 0.002
#: The most urgent frames that wait for a peer that does not read, and their time limit: older ones are outdated, and dropped.
_URGENT_FRAMES, _URGENT_DEADLINE_S = 256, 1.0
#: The time limit for a peer that does not read when the connection closes.
LINGER_S = 2.0


class ConnectionHandler(Protocol):
    """The owner of connections."""

    def connected(self, connection: "Connection") -> None:
        """A connection is open."""

    def received(self, connection: "Connection", message: Message) -> None:
        """A message has arrived."""

    def lost(self, connection: "Connection") -> None:
        """A connection is lost."""


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
        #: For writing pieces together while the transport is empty; None if that is impossible, as over TLS.
        self._descriptor: int | None = None
        #: Whole messages, so that a final error is never sent within one of them.
        self._waiting: deque[Sequence[bytes | memoryview]] = deque()
        #: Urgent messages with the time of sending. They go before all others here, but not before bytes that the transport
        #: (`_TRANSPORT_BYTES`) or the operating system holds already.
        self._urgent: deque[tuple[float, Sequence[bytes | memoryview]]] = deque(maxlen=_URGENT_FRAMES)
        self._writable = True
        #: Received messages that the handler gets in a later turn of the loop; nothing is read until then.
        self._received: Iterator[Message] | None = None
        self._is_scheduled = False
        #: Whether the handler has paused reading, whether reading is paused, and whether the connection is closed or lost.
        self.held = False
        self._paused = self._closed = self._gone = False
        #: The times of its start, the last send and the last receipt, by the monotonic clock.
        self.made_s = self.sent_s = self.received_s = 0.0
        #: The name of the peer, once it is known.
        self.peer = ""
        self.bytes_out = 0

    # ---- callbacks of asyncio

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
            return  # closed by this end; over TLS more may arrive
        self.received_s = time.monotonic()
        self._received = self._reader.buffer_updated(nbytes)
        self._dispatch()

    def connection_lost(self, error: Exception | None) -> None:  # noqa: ARG002
        """See `asyncio.BufferedProtocol`."""
        self._transport = None
        self._waiting.clear()
        self._urgent.clear()
        self._gone = True
        if not self._is_scheduled:  # else the handler gets the received messages first
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

    # ---- for the handler

    @property
    def open(self) -> bool:
        """Whether anything can still be sent."""
        return self._transport is not None

    @property
    def pending_bytes(self) -> int:
        """The bytes that were sent and that the operating system has not accepted."""
        held = 0 if self._transport is None else self._transport.get_write_buffer_size()
        urgent = sum(len(piece) for _, pieces in self._urgent for piece in pieces)
        return held + urgent + sum(len(piece) for pieces in self._waiting for piece in pieces)

    def mark_authenticated(self) -> None:
        """Accept long frames from now on."""
        self._reader.bytes_max = FRAME_BYTES_MAX

    def certificate(self) -> dict[str, object] | None:
        """The certificate of the peer, over TLS."""
        return self._transport.get_extra_info("peercert") if self._transport is not None else None

    def send(self, message: Message) -> None:
        """Send a message, after those that are pending."""
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
        elif isinstance(message, UrgentFrame | UrgentMessageFrame):
            self._urgent.append((self.sent_s, pieces))
        else:
            self._waiting.append(pieces)

    def refuse(self, code: str, text: str) -> None:
        """Send an error, and close."""
        self._waiting.clear()
        self._urgent.clear()
        self._writable = True
        self.send(Error(code, text))
        self.close()

    def close(self) -> None:
        """Close when the transport is empty, or after a time limit if the peer does not read."""
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
        """Read nothing for now, so that TCP holds the peer back."""
        self.held = True
        self._update_reading()

    def resume_reading(self) -> None:
        """Read again."""
        self.held = False
        self._update_reading()

    def _dispatch(self) -> None:
        """Pass received messages to the handler, for one time slice."""
        end_s = time.perf_counter() + _TURN_S
        try:
            for message in self._received or ():
                self.owner.received(self, message)
                if self._closed:
                    break
                if isinstance(message, ControlFrame) and time.perf_counter() > end_s:
                    self._update_reading()
                    self._is_scheduled = True
                    asyncio.get_running_loop().call_soon(self._dispatch_rest)
                    return
        except InvalidInput as error:
            self.refuse("bad-frame", str(error))
        self._received = None
        self._update_reading()
        if self._gone:
            self.owner.lost(self)

    def _dispatch_rest(self) -> None:
        self._is_scheduled = False
        self._dispatch()

    def _update_reading(self) -> None:
        """Read only if the handler has not paused reading and has all received messages."""
        wanted = not self.held and self._received is None
        if self._transport is not None and wanted is self._paused:
            self._paused = not wanted
            (self._transport.resume_reading if wanted else self._transport.pause_reading)()

    def _write(self, pieces: Sequence[bytes | memoryview]) -> None:
        transport, sent = self._transport, 0
        assert transport is not None
        # An aborted transport has discarded its buffer, perhaps within a frame; the socket is closed only later.
        if self._descriptor is not None and not transport.is_closing() and not transport.get_write_buffer_size():
            with contextlib.suppress(OSError):  # the transport will get the same error
                sent = os.writev(self._descriptor, pieces)
        for piece in pieces:
            if sent < len(piece):
                transport.write(memoryview(piece)[sent:])
            sent = max(sent - len(piece), 0)
