"""The client core of the client library and of simulated clients, as pure as the broker's.

It numbers its publications and holds them until its broker has settled them. To a broker without its session it sends all
its advertisements and subscriptions again. Duplicates are delivered once.
"""

from collections.abc import Sequence

import numpy as np

from overweave.batches.base import Batch, split_by_link
from overweave.batches.objects import Rows
from overweave.broker.session import AckScheduler, Barrier, EpochCounter, Session
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Deliver, Effect, Rejection, SetTimer
from overweave.contract.frames import Acknowledgement, BatchFrame, ControlFrame, ControlMessage, Frame, Hello, Rejected, SyncEnd
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, Stimulus, TimerFired
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.matching.index import Index
from overweave.routing.dedup import DedupWindow

ACKNOWLEDGE, RETRANSMIT = "acknowledge", "resend"


class ClientCore:
    """One client of one broker."""

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
        self.broker = broker
        self._config = config or SessionConfig()
        self._window = self._config.window
        self._ack_scheduler = AckScheduler()
        self._session = Session(broker, EpochCounter(incarnation), self._config, self._ack_scheduler)
        #: Advertisements and subscriptions in force, by id.
        self._registered: dict[str, Advertise | Subscribe] = {}
        #: By group: the deliveries of a group's subscriptions are merged.
        self._subscriptions: Index | None = None
        self._seen = DedupWindow(2 * self._config.window)
        #: Its incarnation as a publisher, and the sequence number of its next publication.
        self.life = life
        self._sequence = self._first_sequence = first_sequence
        self._timers: set[str] = set()

    def send_control(self, message: Control, now_s: float, group: str | None = None) -> list[Effect]:
        """Advertise, subscribe, or withdraw either. Each publication is delivered once to a ``group`` of subscriptions."""
        if isinstance(message, Advertise | Subscribe):
            self._registered[message.id] = message
        elif isinstance(message, Unadvertise | Unsubscribe):
            self._registered.pop(message.id, None)
        if isinstance(message, Subscribe):
            self._subscriptions = self._subscriptions or Index()
            self._subscriptions.add(message.id, message.filter, group or message.id)
        elif isinstance(message, Unsubscribe) and self._subscriptions and message.id in self._subscriptions:
            self._subscriptions.remove(message.id)
        effects: list[Effect] = []
        self._session.outbound.send_control_in_turn(message, effects)
        return self._arm_timers(effects, now_s)

    def publish(self, publications: Sequence[Publication], now_s: float) -> list[Effect]:
        """Publish a batch; it is settled when every subscriber has it."""
        headers = (Header(self.id, self._sequence + i, now_s, self.life) for i in range(len(publications)))
        return self.send(Rows(tuple(map(Publish, publications, headers))), now_s)

    def send(self, batch: Batch, now_s: float) -> list[Effect]:
        """Publish rows with headers, numbered from `next_sequence` on.

        At most two windows of them are in flight: a `DedupWindow` has no room for more.
        """
        effects: list[Effect] = []
        count, window = batch.count, self._window
        if count <= window:
            self._session.send(batch, None, effects)
        else:
            for first in range(0, count, window):
                self._session.send(batch.take(np.arange(first, min(first + window, count))), None, effects)
        self._sequence += count
        return self._arm_timers(effects, now_s)

    @property
    def next_sequence(self) -> int:
        """The sequence number of the next publication."""
        return self._sequence

    def barrier(self) -> Barrier:
        """A barrier behind everything sent so far."""
        return self._session.outbound.barrier()

    def unsettled_rows(self) -> int:
        """The number of publications and control messages that the broker has not settled."""
        return self._session.outbound.unsettled_rows()

    def unsettled(self) -> int:
        """The number of batches and control messages that the broker has not settled."""
        return self._session.outbound.unsettled_entries()

    def settled_publications(self) -> int:
        """The number of publications that the broker has settled."""
        return self._sequence - self._first_sequence - self._session.outbound.unsettled_window_rows()

    def unmatched_publications(self) -> int:
        """The number of settled publications without a matching subscription there."""
        return self._session.peer_unmatched

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """Process a stimulus: the single entry point."""
        effects: list[Effect] = []
        if isinstance(stimulus, FrameArrived):
            self._frame(stimulus.frame, effects)
        elif isinstance(stimulus, TimerFired):
            self._timers.discard(stimulus.name)
            if stimulus.name == ACKNOWLEDGE:
                self._ack_scheduler.flush_delayed(effects)
            else:
                self._session.retransmit(effects)
        elif isinstance(stimulus, PeerConnected):
            self._session.connect(effects)
        elif isinstance(stimulus, PeerDisconnected):
            self._session.disconnect()
        return self._arm_timers(effects, now_s)

    def set_window(self, window: int) -> None:
        """Change the largest number of rows in flight, up to that of the configuration."""
        self._window = min(window, self._config.window)
        self._session.outbound.window = self._window

    def renew_epoch(self) -> None:
        """Start a new epoch: the session at the broker has expired."""
        self._session.renew_epoch()

    def _frame(self, frame: Frame, effects: list[Effect]) -> None:
        session = self._session
        if isinstance(frame, BatchFrame):
            batch = frame.batch
            if session.receive(frame, batch.count, effects):
                session.inbound.settle(frame.sequence, batch.count)
                self._deliver(batch, effects)
        elif isinstance(frame, ControlFrame):
            if session.receive(frame, 1, effects):
                session.inbound.settle(frame.sequence, 1)
                if isinstance(frame.message, Rejected):
                    self._on_rejected(frame.message, effects)
        elif isinstance(frame, Acknowledgement):
            session.on_acknowledgement(frame, effects)
        elif isinstance(frame, Hello):
            greeting: list[ControlMessage] = [*self._registered.values(), SyncEnd()] if session.is_new(frame) else []
            session.on_hello(frame, greeting, effects)

    def _on_rejected(self, rejected: Rejected, effects: list[Effect]) -> None:
        """Forget a rejected message: it is not sent again."""
        if not rejected.withdrawal:
            self._registered.pop(rejected.id, None)
            if self._subscriptions and rejected.id in self._subscriptions:
                self._subscriptions.remove(rejected.id)
        effects.append(Rejection(rejected.id, rejected.code, rejected.text, rejected.withdrawal))

    def _deliver(self, batch: Batch, effects: list[Effect]) -> None:
        new = batch.mark_seen(self._seen)
        if self._subscriptions is None or (new is not None and not len(new)):
            return
        if new is not None:
            batch = batch.take(new)
        parts = split_by_link(batch, self._subscriptions)
        if parts:
            effects.append(Deliver(parts))  # type: ignore[arg-type]

    def _arm_timers(self, effects: list[Effect], now_s: float) -> list[Effect]:
        acks_due, config = self._ack_scheduler, self._config
        if acks_due.now:
            acks_due.flush_now(effects)
        if acks_due.later and ACKNOWLEDGE not in self._timers:
            self._set_timer(effects, ACKNOWLEDGE, now_s + config.acknowledge_delay_s)
        if config.retransmit_s is not None:
            self._set_timer(effects, RETRANSMIT, now_s + config.retransmit_s)
        return effects

    def _set_timer(self, effects: list[Effect], name: str, at_s: float) -> None:
        if name not in self._timers:
            self._timers.add(name)
            effects.append(SetTimer(name, at_s))
