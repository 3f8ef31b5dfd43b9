"""The frame reader: messages from a stream of bytes, with buffers that grow with the frames."""

from collections.abc import Iterator

import numpy as np

from overweave.contract.wire import HEAD, OPEN_BYTES_MAX, Message, decode, is_superseded
from overweave.errors import WireError

#: Buffer sizes: the first, the largest, and that for a long frame before most of it has arrived. Longer messages than the last
#: value stay in the buffer without a copy.
_LEAST_BYTES, _MOST_BYTES, _AT_ONCE_BYTES, _LONG_BYTES = 1 << 12, 1 << 19, 1 << 20, 1 << 14


class FrameReader:
    """Splits a stream of bytes into messages; long ones are not copied.

    >>> from overweave.contract.wire import Ping, encode
    >>> reader = FrameReader()
    >>> frame = b"".join(encode(Ping()))
    >>> list(reader.feed(frame[:3])), list(reader.feed(frame[3:] + frame))
    ([], [Ping(), Ping()])
    """

    def __init__(self) -> None:
        #: The receive buffer, which begins with a frame; its number of bytes; and the size of the next buffer.
        self._buffer, self._filled = _new_buffer(_LEAST_BYTES), 0
        self._capacity = _LEAST_BYTES
        #: Whether a message refers to the buffer, so that it must not be overwritten.
        self._is_taken = False
        #: The longest frame that is accepted; short for a peer that is not authenticated.
        self.bytes_max = OPEN_BYTES_MAX

    def get_buffer(self) -> memoryview:
        """The free part of the buffer, never empty."""
        return self._buffer[self._filled :]

    def buffer_updated(self, count: int) -> Iterator[Message]:
        """The messages that ``count`` more bytes complete; `WireError` if one is malformed."""
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
        """The end of the frame that begins at ``at``; 0: it is incomplete."""
        if self._filled - at < HEAD.size:
            return 0
        length, _ = HEAD.unpack_from(self._buffer, at)
        if not 0 < length <= self.bytes_max:
            raise WireError(at, f"a frame of 1 to {self.bytes_max:,} bytes, got {length:,}")
        end = at + 4 + length
        return end if end <= self._filled else 0

    def feed(self, data: bytes) -> Iterator[Message]:
        """The messages that some more bytes complete."""
        while data:
            room = self.get_buffer()
            count = min(len(room), len(data))
            room[:count] = data[:count]
            data = data[count:]
            yield from self.buffer_updated(count)

    def _make_room(self, at: int) -> None:
        """Move the bytes from ``at`` on to the front of a buffer with room for more of their frame."""
        rest = self._buffer[at : self._filled]
        if self._filled == len(self._buffer) and self._capacity < _MOST_BYTES:
            self._capacity *= 2
        size = self._capacity
        if len(rest) >= HEAD.size:
            # A long frame gets room for all of it only after some of it has arrived.
            size = max(size, min(4 + HEAD.unpack_from(rest)[0], max(_AT_ONCE_BYTES, 2 * len(rest))))
        is_new = self._is_taken or size > len(self._buffer) or (size < len(self._buffer) and not rest)
        if is_new:
            self._buffer, self._is_taken = _new_buffer(size), False
        if is_new or at:
            self._buffer[: len(rest)] = rest
        self._filled = len(rest)


def _new_buffer(size: int) -> memoryview:
    return np.empty(size, np.uint8).data
