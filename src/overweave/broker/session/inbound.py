"""Inbound: order, settlement and acknowledgement of what arrives from one peer."""

from overweave.broker.session.ack_scheduler import AckScheduler
from overweave.broker.session.handshake import Handshake
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Effect, SendFrame
from overweave.contract.frames import Acknowledgement, Hello

#: The largest number of ranges in one acknowledgement; the others follow in the next.
ACK_RANGES_MAX = 256


class Inbound:
    """The stream from one peer."""

    __slots__ = (
        "_ack_scheduler",
        "_acknowledge_every",
        "_acknowledged",
        "_ranges_pending",
        "_ranges_sent_to",
        "_settled",
        "_settled_out_of_order",
        "_unmatched",
        "_unmatched_out_of_order",
        "_unmatched_sent",
        "expected",
        "handshake",
        "stream",
        "unsettled_control",
    )

    def __init__(self, handshake: Handshake, config: SessionConfig, ack_scheduler: AckScheduler) -> None:
        self.handshake, self._ack_scheduler = handshake, ack_scheduler
        self._acknowledge_every = config.acknowledge_every
        #: Counts the streams so far: sequence numbers of an earlier one are void.
        self.stream = 0
        #: The next sequence number to arrive. All before ``_settled`` are settled, and some ranges after it.
        self.expected = 0
        self._settled = 0
        self._settled_out_of_order: dict[int, int] = {}
        #: The number of control messages from the peer that are not settled.
        self.unsettled_control = 0
        #: The last acknowledged number, or -1: acknowledge again. Then where the last ranges ended, and whether some are due.
        self._acknowledged = 0
        self._ranges_sent_to = 0
        self._ranges_pending = False
        #: Settled rows without a matching subscription here: all, acknowledged ones, and those settled out of order.
        self._unmatched = self._unmatched_sent = 0
        self._unmatched_out_of_order: dict[int, int] = {}

    def settle(self, sequence: int, rows: int, control: bool = False, unmatched: int = 0) -> None:
        """Settle a frame, ``unmatched`` rows of which matched no subscription, now that all that it caused is settled."""
        settled, out_of_order = sequence + rows, self._settled_out_of_order
        if control:
            self._ack_scheduler.control[self] = None
        if sequence != self._settled:
            out_of_order[sequence] = settled
            if unmatched:
                self._unmatched_out_of_order[sequence] = unmatched
            if control or self._ack_scheduler.selective:
                self._ranges_pending = True
                self._ack_scheduler.delayed[self] = None
            return
        while out_of_order and settled in out_of_order:
            if self._unmatched_out_of_order:
                unmatched += self._unmatched_out_of_order.pop(settled, 0)
            settled = out_of_order.pop(settled)
        if unmatched:
            self._unmatched += unmatched
        self._settled = settled
        if settled - self._acknowledged >= self._acknowledge_every:
            self._ack_scheduler.now[self] = None
        else:
            self._ack_scheduler.delayed[self] = None

    def unsettled_publications(self) -> int:
        """The number of publications from the peer that are not settled, or are behind some that are not."""
        return self.expected - self._settled - self.unsettled_control

    def has_unacknowledged(self) -> bool:
        """Whether there is something to acknowledge, or to acknowledge again."""
        return self._settled > self._acknowledged or self._ranges_pending

    def acknowledge(self, effects: list[Effect], selective: bool = False) -> None:
        """Send an acknowledgement; with ranges if ``selective``, or if settled control is among them."""
        handshake = self.handshake
        if handshake.established:
            self._acknowledged, self._unmatched_sent = self._settled, self._unmatched
            ranges = self._take_ack_ranges() if self._settled_out_of_order and (selective or self._ranges_pending) else ()
            epochs = handshake.epoch, handshake.peer_epoch
            frame = Acknowledgement(*epochs, self._settled, self.expected, ranges, self._unmatched)
            effects.append(SendFrame(handshake.peer, frame))

    def take_piggybacked_ack(self) -> int:
        """The acknowledged number for a frame that is sent now: it must not pass unmatched rows that are not reported yet."""
        if self._unmatched != self._unmatched_sent:
            return max(self._acknowledged, 0)
        self._acknowledged = self._settled
        return self._settled

    def repeat_ack(self) -> None:
        """Schedule an acknowledgement, whatever was acknowledged before: that may be lost."""
        self._acknowledged, self._ranges_pending = -1, bool(self._settled_out_of_order)
        self._ack_scheduler.delayed[self] = None

    def hello(self, next_sequence: int) -> Hello:
        """A hello with the state of this direction, and the next number of the other one."""
        handshake = self.handshake
        epochs = handshake.epoch, handshake.peer_epoch
        return Hello(*epochs, self._settled, self.expected, handshake.established, self._unmatched, next_sequence)

    def restart(self) -> None:
        """Begin a stream at 0."""
        self.stream += 1
        self.expected = self._settled = self._acknowledged = 0
        self.unsettled_control = 0
        self._settled_out_of_order.clear()
        self._unmatched_out_of_order.clear()
        self._unmatched = self._unmatched_sent = 0
        self._ranges_sent_to, self._ranges_pending = 0, False

    def void(self) -> None:
        """End the stream: nothing in it is settled any more."""
        self.stream += 1

    def validate(self) -> None:
        """Check the invariants."""
        assert -1 <= self._acknowledged <= self._settled <= self.expected
        assert all(self._settled < start < end <= self.expected for start, end in self._settled_out_of_order.items())
        assert 0 <= self._unmatched_sent <= self._unmatched <= self._settled
        assert self._unmatched_out_of_order.keys() <= self._settled_out_of_order.keys()

    def _take_ack_ranges(self) -> tuple[tuple[int, int], ...]:
        """The ranges settled out of order, joined, from the end of the last ones sent; at most `ACK_RANGES_MAX`."""
        joined: list[tuple[int, int]] = []
        for start, end in sorted(self._settled_out_of_order.items()):
            if joined and joined[-1][1] == start:
                joined[-1] = joined[-1][0], end
            else:
                joined.append((start, end))
        ranges = [each for each in joined if each[1] > self._ranges_sent_to][:ACK_RANGES_MAX]
        self._ranges_pending = bool(ranges) and ranges[-1] != joined[-1]
        self._ranges_sent_to = ranges[-1][1] if self._ranges_pending else 0
        if self._ranges_pending:
            self._ack_scheduler.delayed[self] = None
        return tuple(ranges)
