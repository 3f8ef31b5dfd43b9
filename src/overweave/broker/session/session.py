"""A session: handshake, inbound and outbound stream of one peer."""

from collections.abc import Iterable

from overweave.batches.base import Batch
from overweave.broker.pending_ack import PendingAck
from overweave.broker.session.ack_scheduler import AckScheduler
from overweave.broker.session.handshake import EpochCounter, Handshake
from overweave.broker.session.inbound import Inbound
from overweave.broker.session.outbound import Outbound
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Effect, SendFrame
from overweave.contract.frames import (
    Acknowledgement,
    BatchFrame,
    ControlFrame,
    ControlMessage,
    Hello,
    ModuleMessage,
    SessionEpoch,
    UrgentFrame,
    UrgentMessageFrame,
)
from overweave.language.messages import Control


class Session:
    """One end of the streams between this core and one peer."""

    __slots__ = ("_backlog_end", "_unmatched_before", "handshake", "inbound", "outbound", "peer", "peer_unmatched")

    def __init__(self, peer: str, epochs: EpochCounter, config: SessionConfig, ack_scheduler: AckScheduler) -> None:
        self.peer = peer
        self.handshake = Handshake(peer, epochs)
        self.inbound = Inbound(self.handshake, config, ack_scheduler)
        self.outbound = Outbound(self.handshake, config, self.inbound)
        #: Our publications without a matching subscription at the peer, in all streams and before the present one.
        self.peer_unmatched = self._unmatched_before = 0
        #: The messages before it were in flight to us when the connection opened.
        self._backlog_end = 0

    @property
    def epoch(self) -> SessionEpoch:
        """Our epoch."""
        return self.handshake.epoch

    @property
    def peer_epoch(self) -> SessionEpoch:
        """The last epoch of the peer; `NO_EPOCH` before its first hello."""
        return self.handshake.peer_epoch

    @property
    def established(self) -> bool:
        """Whether both ends know each other's epoch."""
        return self.handshake.established

    @property
    def has_inbound_backlog(self) -> bool:
        """Whether messages are missing that were in flight to us when the connection opened."""
        return self.inbound.expected < self._backlog_end

    @property
    def is_caught_up(self) -> bool:
        """Whether the peer is connected, and everything that was in flight to us has arrived."""
        return self.established and not self.has_inbound_backlog

    # ---- handshake

    def connect(self, effects: list[Effect]) -> None:
        """The connection is open."""
        self.handshake.connect()
        self._send_hello(effects)

    def disconnect(self) -> None:
        """The connection is gone; unsettled messages stay in flight."""
        self.handshake.disconnect()

    def renew_epoch(self) -> None:
        """Start a new epoch and forget that of the peer: both ends have to exchange hellos again."""
        self.handshake.renew_epoch()

    def has_new_epoch(self, frame: Hello) -> bool:
        """Whether the peer has a new epoch, and therefore no state: it needs a greeting."""
        return self.handshake.has_new_epoch(frame)

    def is_current(self, frame: UrgentFrame | UrgentMessageFrame) -> bool:
        """Whether a frame without a sequence number belongs to the present epochs of both ends."""
        return self.handshake.is_current(frame)

    def on_hello(self, frame: Hello, greeting: Iterable[ControlMessage], effects: list[Effect]) -> None:
        """Process a hello; a peer with a new epoch is sent ``greeting`` first."""
        handshake = self.handshake
        if not handshake.connected or frame.epoch < handshake.peer_epoch:
            return
        if handshake.has_new_epoch(frame):
            handshake.learn_peer_epoch(frame.epoch)
            self._restart(greeting)
        if frame.peer_epoch != handshake.epoch:
            self._send_hello(effects)
            return
        if not handshake.established:
            self._backlog_end = frame.next_sequence
        handshake.establish()
        # Our last hello may be outdated, and acknowledgements were lost meanwhile.
        self.inbound.repeat_ack()
        if not frame.confirmed:
            self._send_hello(effects)
        self._update_unmatched(frame.unmatched)
        self.outbound.resume(frame.acknowledged, frame.expected, effects)

    # ---- outbound

    def send_urgent(self, batch: Batch, effects: list[Effect]) -> None:
        """Send urgent control publications outside the numbered stream, once: without a connection they are lost."""
        handshake = self.handshake
        if handshake.established:
            effects.append(SendFrame(self.peer, UrgentFrame(handshake.epoch, handshake.peer_epoch, batch)))

    def send_urgent_message(self, message: ModuleMessage, effects: list[Effect]) -> None:
        """Send an urgent message of a module outside the numbered stream, once."""
        handshake = self.handshake
        if handshake.established:
            effects.append(SendFrame(self.peer, UrgentMessageFrame(handshake.epoch, handshake.peer_epoch, message)))

    def send_control(self, message: ControlMessage, effects: list[Effect], ack: PendingAck | None = None) -> None:
        """Send a control message behind everything before it; ``ack`` is released when the peer has settled it."""
        self.outbound.send_control(message, effects, ack)

    def on_acknowledgement(self, frame: Acknowledgement, effects: list[Effect]) -> None:
        """Process an acknowledgement, and send what the window has room for now."""
        if not self.handshake.is_current(frame):
            return
        if frame.unmatched:
            self._update_unmatched(frame.unmatched)
        outbound = self.outbound
        outbound.on_acknowledged(frame.acknowledged, frame.expected)
        if frame.ranges:
            outbound.on_ack_ranges(frame.ranges)
        if outbound.blocked:
            outbound.flush(effects)

    def retransmit(self, effects: list[Effect]) -> None:
        """Send again what the peer may not have received; called once in each period of retransmission."""
        if self.handshake.established:
            self.outbound.retransmit(effects)
        elif self.handshake.connected:
            self._send_hello(effects)

    def reclaim(self, effects: list[Effect]) -> list[tuple[Control | Batch, PendingAck | None]]:
        """Remove what the peer has not settled, to be sent on other paths, and start a new epoch."""
        reclaimed = self.outbound.reclaim()
        self.renew_epoch()
        self._restart(())
        if self.handshake.connected:
            self._send_hello(effects)
        return reclaimed

    def close(self) -> None:
        """The peer will not return: everything sent to it is settled, and nothing from it is any more."""
        self.outbound.settle_all()
        self.inbound.void()

    # ---- inbound

    def receive(self, frame: ControlFrame | BatchFrame, rows: int, effects: list[Effect]) -> bool:
        """Accept the next frame of the stream; False for any other. The caller settles an accepted one.

        Its piggybacked acknowledgement counts in both cases.
        """
        # Without further calls: every frame passes here.
        handshake = self.handshake
        if not handshake.established or frame.epoch != handshake.peer_epoch or frame.peer_epoch != handshake.epoch:
            return False
        inbound = self.inbound
        if frame.acknowledged > self.outbound.in_flight.lowest_unacked:
            self.outbound.on_acknowledged(frame.acknowledged)
            if self.outbound.blocked:
                self.outbound.flush(effects)
        if frame.sequence != inbound.expected:
            inbound.repeat_ack()  # the sender seems not to know what has arrived
            return False
        inbound.expected += rows
        return True

    def acknowledge(self, effects: list[Effect], selective: bool = False) -> None:
        """Send an acknowledgement; with ranges if ``selective``, or if settled control is among them."""
        self.inbound.acknowledge(effects, selective)

    def validate(self) -> None:
        """Check the invariants."""
        self.handshake.validate()
        self.inbound.validate()
        self.outbound.validate()

    def _send_hello(self, effects: list[Effect]) -> None:
        effects.append(SendFrame(self.peer, self.inbound.hello(self.outbound.in_flight.next_sequence)))

    def _update_unmatched(self, unmatched: int) -> None:
        """The peer reports the total of a stream."""
        self.peer_unmatched = max(self.peer_unmatched, self._unmatched_before + unmatched)

    def _restart(self, greeting: Iterable[ControlMessage]) -> None:
        """Begin both streams at 0."""
        self.handshake.established = False
        self._backlog_end = 0
        self.inbound.restart()
        self.outbound.restart(greeting)
        self._unmatched_before = self.peer_unmatched
