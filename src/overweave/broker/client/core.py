"""The client core of the client library and of simulated clients, as pure as the broker's.

It numbers its publications and holds them until its broker has settled them. To a broker without its session it sends all
its advertisements and subscriptions again. Duplicates are delivered once. It may be attached to several brokers: each
subscription, and the publishing side, has one home, except while it moves (`overweave.broker.client.migration`).
"""

from collections.abc import Sequence

import numpy as np

from overweave.batches.base import Batch, Rows64
from overweave.batches.objects import Rows
from overweave.broker.client.attachment import ClientAttachment
from overweave.broker.client.attachments import Attachments
from overweave.broker.client.failover import Failover
from overweave.broker.client.migration import MIGRATE, Migrations
from overweave.broker.client.publishing import ClientBarrier, Publishing
from overweave.broker.client.received import ReceivedPublications
from overweave.broker.client.view import AttachmentView
from overweave.broker.session import AckScheduler
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Deliver, Effect, Rejection, SetTimer
from overweave.contract.frames import (
    Acknowledgement,
    BatchFrame,
    ControlFrame,
    ControlMessage,
    Frame,
    Hello,
    Migrate,
    Rejected,
    StreamEnd,
)
from overweave.contract.stimuli import (
    AttachFailed,
    FailOver,
    FrameArrived,
    PeerConnected,
    PeerDisconnected,
    Stimulus,
    TimerFired,
)
from overweave.language.generations import stable_id
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.matching.index import Index
from overweave.routing.dedup import DeliveryWindow

ACKNOWLEDGE, RETRANSMIT = "acknowledge", "resend"


class ClientCore:
    """One client; ``broker`` is its first one, by any name that its driver gives the connection."""

    def __init__(
        self,
        id: str,
        broker: str,
        config: SessionConfig | None = None,
        incarnation: int = 1,
        first_sequence: int = 0,
        life: int = 0,
    ) -> None:
        self.id = id
        self._config = config or SessionConfig()
        self._window = self._config.window
        self._ack_scheduler = AckScheduler()
        self._attachments = Attachments(self._config, incarnation, self._ack_scheduler)
        first = self._attachments.add(broker)
        self._publishing = Publishing(first)
        self._migrations = Migrations(self._attachments, self._publishing, first)
        self._failover = Failover(self._attachments, self._publishing, self._migrations)
        #: For drivers: the brokers that its parts depend on.
        self.view = AttachmentView(self._attachments, self._publishing, self._migrations)
        #: By group: the deliveries of a group's subscriptions are merged.
        self._subscriptions: Index | None = None
        self._seen = DeliveryWindow(2 * self._config.window)
        self._received = ReceivedPublications(self._seen)
        #: Its life id as a publisher, and the sequence number of its next publication.
        self.life = life
        self._sequence = self._first_sequence = first_sequence
        self._timers: set[str] = set()

    # ---- actions of the application

    def send_control(self, message: Control, now_s: float, group: str | None = None) -> list[Effect]:
        """Advertise, subscribe, or withdraw either. Each publication is delivered once to a ``group`` of subscriptions."""
        effects: list[Effect] = []
        if isinstance(message, Subscribe):
            self._subscriptions = self._subscriptions or Index()
            self._subscriptions.add(message.id, message.filter, group or message.id)
        elif isinstance(message, Unsubscribe) and self._subscriptions and message.id in self._subscriptions:
            self._subscriptions.remove(message.id)
        if isinstance(message, Unadvertise | Unsubscribe):
            self._migrations.withdraw(message, effects)
        else:
            home = self._publishing.home if isinstance(message, Advertise) else self._migrations.home
            home.send(message, effects)
        return self._arm_timers(effects, now_s)

    def publish(self, publications: Sequence[Publication], now_s: float) -> list[Effect]:
        """Publish a batch; it is settled when every subscriber has it."""
        headers = (Header(self.id, self._sequence + i, now_s, self.life) for i in range(len(publications)))
        return self.send(Rows(tuple(map(Publish, publications, headers))), now_s)

    def send(self, batch: Batch, now_s: float) -> list[Effect]:
        """Publish rows with headers, numbered from `next_sequence` on.

        At most two windows of them are in flight: a `DeliveryWindow` has no room for more.
        """
        effects: list[Effect] = []
        count, window = batch.count, self._window
        if count <= window:
            self._publishing.send(batch, effects)
        else:
            for first in range(0, count, window):
                self._publishing.send(batch.take(np.arange(first, min(first + window, count))), effects)
        self._sequence += count
        return self._arm_timers(effects, now_s)

    # ---- state

    @property
    def broker(self) -> str:
        """The broker that it publishes to."""
        return self._publishing.home.broker

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next publication."""
        return self._sequence

    @property
    def is_migrating(self) -> bool:
        """Whether a migration is in progress."""
        return self._migrations.active

    def peers(self) -> list[str]:
        """The brokers that it is attached to, by the names of their connections."""
        return [attachment.peer for attachment in self._attachments]

    def registered(self, peer: str) -> list[Advertise | Subscribe]:
        """The advertisements and subscriptions at one broker."""
        attachment = self._attachments.get(peer)
        return [] if attachment is None else list(attachment.registered.values())

    def barrier(self) -> ClientBarrier:
        """A barrier behind everything sent so far, without what only a migration has sent: its target may be unreachable."""
        needed = [each for each in self._attachments if not self._migrations.is_secondary(each)]
        return self._publishing.barrier([(each, each.session.outbound.barrier()) for each in needed])

    def unsettled_rows(self) -> int:
        """The number of publications and control messages that brokers have not settled."""
        return self._attachments.unsettled_rows() + self._publishing.paused_rows

    def unsettled(self) -> int:
        """The number of batches and control messages that brokers have not settled."""
        return self._attachments.unsettled_entries() + self._publishing.paused_rows

    def settled_publications(self) -> int:
        """The number of publications that brokers have settled."""
        unsettled = self._attachments.unsettled_windowed_rows() + self._publishing.paused_rows
        return self._sequence - self._first_sequence - unsettled

    def unmatched_publications(self) -> int:
        """The number of settled publications without a matching subscription."""
        return self._attachments.unmatched()

    def set_window(self, window: int) -> None:
        """Change the largest number of rows in flight, up to that of the configuration."""
        self._window = min(window, self._config.window)
        self._attachments.set_window(self._window)

    def renew_epoch(self, peer: str) -> None:
        """Start a new epoch: the session at a broker has expired."""
        self._attachments[peer].session.renew_epoch()

    def name_broker(self, peer: str, broker: str) -> None:
        """The name of the broker at a connection is known now."""
        self._attachments[peer].broker = broker

    # ---- stimuli

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """Process a stimulus: the single entry point."""
        effects: list[Effect] = []
        if isinstance(stimulus, FrameArrived):
            attachment = self._attachments.by_peer.get(stimulus.peer)
            if attachment is not None:
                self._on_frame(stimulus.frame, attachment, effects)
        elif isinstance(stimulus, TimerFired):
            self._on_timer(stimulus.name, effects, now_s)
        elif isinstance(stimulus, PeerConnected | PeerDisconnected):
            attachment = self._attachments.get(stimulus.peer)
            if attachment is not None and isinstance(stimulus, PeerConnected):
                attachment.session.connect(effects)
            elif attachment is not None:
                attachment.session.disconnect()
        elif isinstance(stimulus, AttachFailed):
            self._migrations.on_attach_failed(stimulus.peer, stimulus.reason, effects)
        elif isinstance(stimulus, FailOver):
            self._failover.begin(stimulus.peer, stimulus.to, effects)
        if self._publishing.awaited is not None:
            self._publishing.advance(effects)
        if self._migrations.active:
            self._migrations.advance(effects, now_s)
        return self._arm_timers(effects, now_s)

    def _on_timer(self, name: str, effects: list[Effect], now_s: float) -> None:
        self._timers.discard(name)
        if name == ACKNOWLEDGE:
            self._ack_scheduler.flush_delayed(effects)
        elif name == MIGRATE:
            self._migrations.on_timer(effects, now_s)
        else:
            for attachment in self._attachments:
                attachment.session.retransmit(effects)

    def _on_frame(self, frame: Frame, attachment: ClientAttachment, effects: list[Effect]) -> None:
        session = attachment.session
        if isinstance(frame, BatchFrame):
            batch = frame.batch
            if session.receive(frame, batch.count, effects):
                session.inbound.settle(frame.sequence, batch.count)
                self._deliver(batch, effects)
        elif isinstance(frame, ControlFrame):
            if session.receive(frame, 1, effects):
                session.inbound.settle(frame.sequence, 1)
                self._on_control(frame.message, attachment, effects)
        elif isinstance(frame, Acknowledgement):
            session.on_acknowledgement(frame, effects)
        elif isinstance(frame, Hello):
            session.on_hello(frame, attachment.greeting() if session.has_new_epoch(frame) else [], effects)

    def _on_control(self, message: ControlMessage, attachment: ClientAttachment, effects: list[Effect]) -> None:
        if isinstance(message, Rejected):
            self._on_rejected(message, attachment, effects)
        elif isinstance(message, Migrate):
            self._migrations.begin(message, attachment, effects)
        elif isinstance(message, StreamEnd):
            self._migrations.on_stream_end(message.token)

    def _on_rejected(self, rejected: Rejected, attachment: ClientAttachment, effects: list[Effect]) -> None:
        """Forget a rejected message: it is not sent again."""
        if not rejected.withdrawal:
            known = attachment.registered.pop(rejected.id, None)
            if self._migrations.on_rejected(rejected, attachment, effects):
                return  # the registration stays in force where it was
            if known is None:
                return  # it was withdrawn meanwhile: nobody depends on it
            if self._subscriptions and rejected.id in self._subscriptions:
                self._subscriptions.remove(rejected.id)
        effects.append(Rejection(stable_id(rejected.id), rejected.code, rejected.text, rejected.withdrawal))

    def _deliver(self, batch: Batch, effects: list[Effect]) -> None:
        if len(self._attachments.by_peer) > 1:
            new: Rows64 | None = self._received.mark_received(batch)
        else:
            self._received.clear()
            new = batch.mark_seen(self._seen)
        if self._subscriptions is None or (new is not None and not len(new)):
            return
        if new is not None:
            batch = batch.take(new)
        parts = batch.split_by_link(self._subscriptions)
        if parts:
            effects.append(Deliver(parts))  # type: ignore[arg-type]

    def _arm_timers(self, effects: list[Effect], now_s: float) -> list[Effect]:
        acks_due, config = self._ack_scheduler, self._config
        if acks_due.now:
            acks_due.flush_now(effects)
        if acks_due.delayed and ACKNOWLEDGE not in self._timers:
            _set_timer(self._timers, effects, ACKNOWLEDGE, now_s + config.acknowledge_delay_s)
        if config.retransmit_s is not None:
            _set_timer(self._timers, effects, RETRANSMIT, now_s + config.retransmit_s)
        if self._migrations.active:
            _set_timer(self._timers, effects, MIGRATE, now_s + self._migrations.REPEAT_S)
        return effects

    def validate(self) -> None:
        """Check the invariants of all parts, after a stimulus or an action."""
        for part in (self._attachments, self._publishing, self._migrations, self._failover):
            part.validate()
        self._seen.validate()
        assert 0 <= self.settled_publications() <= self._sequence - self._first_sequence
        acks_due, timers = self._ack_scheduler, self._timers
        assert not acks_due.now
        assert not acks_due.delayed or ACKNOWLEDGE in timers
        assert self._config.retransmit_s is None or not timers or RETRANSMIT in timers
        assert not self._migrations.active or MIGRATE in timers


def _set_timer(timers: set[str], effects: list[Effect], name: str, at_s: float) -> None:
    """Set a timer, unless it is set."""
    if name not in timers:
        timers.add(name)
        effects.append(SetTimer(name, at_s))
