"""The stall buffer: publications that a broker buffers for a stalled client, so that no publisher waits for it."""

from overweave.batches.base import Batch
from overweave.broker.session.in_flight import Releasable

#: The size of an in-flight record besides its content.
_RECORD_BYTES = 1024


class StallBuffer:
    """Bytes buffered by one session. In sending order, all buffered batches precede those whose acks are still held."""

    __slots__ = ("_bytes_max", "active", "bytes")

    def __init__(self) -> None:
        #: Whether new publications are buffered.
        self.active = False
        self.bytes = 0
        self._bytes_max = 0

    def start(self, bytes_max: int) -> None:
        """Buffer new publications until ``bytes_max`` are buffered."""
        self.active, self._bytes_max = True, bytes_max

    def stop(self) -> None:
        """Buffer no more: senders wait again until the peer settles."""
        self.active = False

    def charge(self, batch: Batch, ack: Releasable | None) -> "BufferedBytes":
        """Count the bytes of a batch, and release its upstream ack before the peer settles it. The last may exceed the limit."""
        buffered = BufferedBytes(self, _RECORD_BYTES + batch.size_bytes())
        self.active = self.bytes < self._bytes_max
        if ack is not None:
            ack.release()
        return buffered

    def validate(self) -> None:
        """Check the invariants."""
        assert self.bytes >= 0
        assert not self.active or self.bytes < self._bytes_max


class BufferedBytes:
    """The bytes of one batch in a stall buffer."""

    __slots__ = ("_buffer", "bytes")

    def __init__(self, buffer: StallBuffer, bytes: int) -> None:
        self._buffer, self.bytes = buffer, bytes
        buffer.bytes += bytes

    def release(self) -> None:
        """The peer has settled the batch."""
        self._buffer.bytes -= self.bytes
