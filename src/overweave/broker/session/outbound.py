"""Outbound: window, retransmission and buffering of what is sent to one peer."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, takewhile

from overweave.batches.base import Batch
from overweave.broker.pending_ack import PendingAck
from overweave.broker.session.backoff import Backoff
from overweave.broker.session.barriers import Barrier, Barriers
from overweave.broker.session.control_waiters import ControlWaiters, Waiters
from overweave.broker.session.handshake import Handshake
from overweave.broker.session.in_flight import InFlight, InFlightQueue
from overweave.broker.session.inbound import Inbound
from overweave.broker.session.module_rows import ModuleRows
from overweave.broker.session.stall_buffer import BufferedBytes, StallBuffer
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Effect, SendFrame
from overweave.contract.frames import (
    BatchFrame,
    ControlFrame,
    ControlMessage,
    is_addressed,
)
from overweave.language.messages import Control


class Outbound:
    """The stream to one peer."""

    __slots__ = (
        "_backoff",
        "_barriers",
        "_blocked_rows",
        "_handshake",
        "_inbound",
        "_module_rows",
        "_window_bytes",
        "_window_bytes_used",
        "_window_used",
        "blocked",
        "buffer",
        "in_flight",
        "waiters",
        "window",
    )

    def __init__(self, handshake: Handshake, config: SessionConfig, inbound: Inbound) -> None:
        self._handshake, self._inbound = handshake, inbound
        self.in_flight = InFlightQueue()
        #: The largest numbers of rows and bytes in flight, and the present ones. Transit does not count.
        self.window, self._window_bytes = config.window, config.window_bytes
        self._window_used = self._window_bytes_used = 0
        #: Blocked by the window; without sequence numbers yet.
        self.blocked: deque[InFlight] = deque()
        self._blocked_rows = 0
        self._barriers = Barriers()
        self._backoff = Backoff()
        self._module_rows = ModuleRows()
        #: The acks that wait for control messages, and the publications that are buffered for a stalled client.
        self.waiters = ControlWaiters()
        self.buffer = StallBuffer()

    # ---- sending

    def send(self, batch: Batch, ack: PendingAck | None, effects: list[Effect], window_exempt: bool = False) -> None:
        """Send publications as soon as the window has room; ``ack`` is released when the peer has settled them, or at once
        while publications are buffered for a stalled client.

        Transit is ``window_exempt`` and sent at once: brokers with full windows could otherwise wait for each other in a cycle.
        """
        rows, holder = batch.count, self.buffer.charge(batch, ack) if self.buffer.active else ack
        if window_exempt:
            entry = InFlight(None, batch, rows, holder, 0)
        else:
            entry = InFlight(None, batch, rows, holder, rows)
            if self._window_used >= self.window or self._window_bytes_used >= self._window_bytes:
                self.blocked.append(entry)
                self._blocked_rows += rows
                return
            self._window_used += rows
            self._window_bytes_used += batch.wire_bytes
        in_flight, handshake = self.in_flight, self._handshake
        if not handshake.established:
            in_flight.append(entry)
            return
        # Numbered and sent at once, without a call: every forwarded publication passes here.
        in_flight.entries.append(entry)
        number = in_flight.next_sequence
        in_flight.next_sequence = in_flight.next_to_send = number + rows
        frame = BatchFrame(handshake.epoch, handshake.peer_epoch, number, self._inbound.take_piggybacked_ack(), batch)
        effects.append(SendFrame(handshake.peer, frame))

    def send_of_module(self, batch: Batch, ack: PendingAck | None, effects: list[Effect], window_exempt: bool) -> bool:
        """Send publications of a module to a neighbour. False: they are not kept, as it is not connected, or keeps too many."""
        in_flight = self.in_flight
        if not self._handshake.established:
            return False
        if not self._module_rows.add(batch.count, chain(in_flight, self.blocked), in_flight.lowest_unacked):
            return False
        self.send(batch, ack, effects, window_exempt)
        return True

    def send_control(self, message: ControlMessage, effects: list[Effect], ack: PendingAck | None = None) -> None:
        """Send a control message in order, but exempt from the window: blocked publications go first."""
        self._admit_all_blocked()
        self.in_flight.append(self.waiters.track(message, ack))
        self.flush(effects)

    def send_control_windowed(self, message: ControlMessage, effects: list[Effect]) -> None:
        """Send a control message when the window has had room for all blocked publications."""
        if self.blocked:
            self.blocked.append(self.waiters.track(message))
            self._blocked_rows += 1
        else:
            self.send_control(message, effects)

    def barrier(self) -> Barrier:
        """A barrier behind everything sent so far."""
        in_flight = self.in_flight
        return self._barriers.add(in_flight.next_sequence + self._blocked_rows, in_flight.lowest_unacked)

    def flush(self, effects: list[Effect]) -> None:
        """Send everything unsent for which the window has room."""
        while self.blocked and not self._is_full():
            self._admit_blocked()
        handshake = self._handshake
        if not handshake.established or not self.in_flight.unsent:
            return
        acknowledged = self._inbound.take_piggybacked_ack()
        for number, entry in self.in_flight.take_unsent():
            numbers = handshake.epoch, handshake.peer_epoch, number, acknowledged
            if entry.message is not None:
                effects.append(SendFrame(handshake.peer, ControlFrame(*numbers, entry.message)))
            elif entry.batch is not None:
                effects.append(SendFrame(handshake.peer, BatchFrame(*numbers, entry.batch)))

    # ---- acknowledgements

    def on_acknowledged(self, acknowledged: int, expected: int = 0) -> None:
        """The peer has settled all before ``acknowledged`` and received all before ``expected``."""
        rows, bytes = self.in_flight.settle(acknowledged, expected)
        self._window_used -= rows
        self._window_bytes_used -= bytes
        if self._barriers:
            self._barriers.settle(self.in_flight.lowest_unacked)

    def on_ack_ranges(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Release the acks of what is settled behind something that is not."""
        for ack in self.in_flight.detach_acks(ranges):
            ack.release()

    def settled_rows(self) -> int:
        """The number of publications and control messages of this stream that the peer has settled."""
        return self.in_flight.lowest_unacked

    def unsettled_entries(self) -> int:
        """The number of batches and control messages that the peer has not settled."""
        return len(self.in_flight) + len(self.blocked)

    def unsettled_rows(self) -> int:
        """The number of publications and control messages that the peer has not settled."""
        return self.in_flight.next_sequence - self.in_flight.lowest_unacked + self._blocked_rows

    def unsettled_windowed_rows(self) -> int:
        """The number of unsettled publications that count against the window, blocked ones included."""
        return self._window_used + sum(entry.window_rows for entry in self.blocked)

    def batches_holding_acks(self) -> Iterator[tuple[Batch, PendingAck]]:
        """The unsettled publications with their acks, without buffered ones."""
        for entry in chain(self.in_flight, self.blocked):
            if entry.batch is not None and isinstance(entry.ack, PendingAck):
                yield entry.batch, entry.ack

    def batches(self) -> Iterator[Batch]:
        """The unsettled publications."""
        return (entry.batch for entry in chain(self.in_flight, self.blocked) if entry.batch is not None)

    # ---- stalled clients

    def start_stall_buffer(self, bytes_max: int) -> None:
        """For a connected client that stalls: release acks early, until ``bytes_max`` bytes are buffered."""
        buffer = self.buffer
        if buffer.active or not self._handshake.connected or buffer.bytes >= bytes_max:
            return  # a peer that reconnects after a crash must find everything
        buffer.start(bytes_max)
        newest = list(takewhile(lambda entry: not isinstance(entry.ack, BufferedBytes), reversed(self.in_flight)))
        for entry in chain(reversed(newest), self.blocked):
            if buffer.active and entry.batch is not None:
                entry.ack = buffer.charge(entry.batch, entry.ack)

    # ---- retransmission and recovery

    def retransmit(self, effects: list[Effect]) -> None:
        """Send again what the peer may not have received, once in a period of retransmission at most."""
        if not len(self.in_flight):
            self._backoff.reset()
        elif self._backoff.tick(*self.in_flight.progress()):
            self.in_flight.rewind()
            self.flush(effects)

    def resume(self, acknowledged: int, expected: int, effects: list[Effect]) -> None:
        """Go on over a new connection with what the peer expects."""
        self._backoff = Backoff()
        self.on_acknowledged(acknowledged, expected)
        self.in_flight.rewind_to(expected)
        self.flush(effects)

    def reclaim(self) -> list[tuple[Control | Batch, PendingAck | None]]:
        """Remove everything in flight; publications and addressed control are returned, to be sent on other paths."""
        self._admit_all_blocked()
        in_flight, self.in_flight = self.in_flight, InFlightQueue()
        self._window_used = self._window_bytes_used = 0
        reclaimed: list[tuple[Control | Batch, PendingAck | None]] = []
        for entry in in_flight:
            content, ack = _reroutable(entry), entry.ack
            if content is not None:
                reclaimed.append((content, ack if isinstance(ack, PendingAck) else None))
            elif isinstance(ack, Waiters):
                ack.release()
        return reclaimed

    def restart(self, greeting: Iterable[ControlMessage]) -> None:
        """Begin a stream at 0: ``greeting``, then unsettled publications and addressed control."""
        before = self.in_flight
        self._module_rows.restart()
        waiting = [(entry.ack.key, entry.ack.detach()) for entry in before if isinstance(entry.ack, Waiters)]
        first = [self.waiters.track(message) for message in greeting]
        self._barriers.renumber(before, before.lowest_unacked, before.next_sequence, len(first))
        self.in_flight = InFlightQueue([*first, *(entry for entry in before if entry.survives_restart())])
        # The greeting contains what was in flight, unless it was withdrawn.
        for key, acks in waiting:
            for ack in acks:
                self.waiters.wait_for(key, ack)
                ack.release()
        self._barriers.settle(0)

    def settle_all(self) -> None:
        """Settle everything: the peer will not return."""
        self._admit_all_blocked()
        self.on_acknowledged(self.in_flight.next_sequence)

    def validate(self) -> None:
        """Check the invariants."""
        self.in_flight.validate()
        assert not self.in_flight.unsent or not self._handshake.established
        assert self._window_used == sum(entry.window_rows for entry in self.in_flight)
        assert self._window_bytes_used == sum(entry.window_bytes() for entry in self.in_flight)
        assert self._is_full() or not self.blocked
        assert self._blocked_rows == sum(entry.length for entry in self.blocked)
        acks = (entry.ack for entry in chain(self.in_flight, self.blocked))
        assert self.buffer.bytes == sum(ack.bytes for ack in acks if isinstance(ack, BufferedBytes))
        self._barriers.validate()
        self._backoff.validate()
        self.buffer.validate()
        self.waiters.validate(chain(self.in_flight, self.blocked))

    def _is_full(self) -> bool:
        return self._window_used >= self.window or self._window_bytes_used >= self._window_bytes

    def _admit_blocked(self) -> None:
        """Give the first blocked message its sequence numbers."""
        entry = self.blocked.popleft()
        self._blocked_rows -= entry.length
        self._window_used += entry.window_rows
        self._window_bytes_used += entry.window_bytes()
        self.in_flight.append(entry)

    def _admit_all_blocked(self) -> None:
        """Number all blocked messages, beyond the window."""
        while self.blocked:
            self._admit_blocked()


def _reroutable(entry: InFlight) -> Batch | Control | None:
    """The content of a message that other paths can carry; None for other control."""
    message = entry.message
    if message is None or not isinstance(message, Control):
        return entry.batch
    return message if is_addressed(message) else None
