"""The client core: what the client library and the simulator's clients run, as pure as the broker's.

It numbers what it publishes, keeps what its broker has not settled, and says all its advertisements and subscriptions again to
a broker that has forgotten them. Whatever comes twice is handed out once.
"""

from collections.abc import Sequence

import numpy as np

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.routing.dedup import DedupWindow
from overweave.broker.session import AckScheduler, Mark, Session
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Deliver, Effect, Rejection, SetTimer
from overweave.contract.frames import Acknowledgement, BatchFrame, ControlFrame, ControlMessage, Frame, Hello, Rejected, SyncEnd
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, Stimulus, TimerFired
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.matching.index import Index

ACKNOWLEDGE, RESEND = "acknowledge", "resend"


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
        self._session = Session(broker, incarnation, self._config, self._ack_scheduler)
        self._said: dict[str, Advertise | Subscribe] = {}
        #: By who gets what matches: each subscription for itself, or several together.
        self._subscriptions: Index | None = None
        self._seen = DedupWindow(2 * self._config.window)
        #: Which of the clients that have had this name it is; and the number of its next publication.
        self.life = life
        self._sequence = self._first_sequence = first_sequence
        self._timers: set[str] = set()

    def send_control(self, message: Control, now_s: float, group: str | None = None) -> list[Effect]:
        """Advertise, subscribe, or withdraw either; what subscriptions of one ``group`` match is delivered to it, once."""
        if isinstance(message, Advertise | Subscribe):
            self._said[message.id] = message
        elif isinstance(message, Unadvertise | Unsubscribe):
            self._said.pop(message.id, None)
        if isinstance(message, Subscribe):
            self._subscriptions = self._subscriptions or Index()
            self._subscriptions.add(message.id, message.filter, group or message.id)
        elif isinstance(message, Unsubscribe) and self._subscriptions and message.id in self._subscriptions:
            self._subscriptions.remove(message.id)
        effects: list[Effect] = []
        self._session.queue_control(message, effects)
        return self._watch(effects, now_s)

    def publish(self, publications: Sequence[Publication], now_s: float) -> list[Effect]:
        """Publish some together; they are settled when everybody who wants them has them."""
        headers = (Header(self.id, self._sequence + i, now_s, self.life) for i in range(len(publications)))
        return self.send(Rows(tuple(map(Publish, publications, headers))), now_s)

    def send(self, batch: Batch, now_s: float) -> list[Effect]:
        """Publish rows that have their headers, numbered from `next_sequence` on.

        No more than two windows of them are ever on their way: nobody could tell more from duplicates (`DedupWindow`).
        """
        effects: list[Effect] = []
        count, window = batch.count, self._window
        if count <= window:
            self._session.send(batch, None, effects)
        else:
            for first in range(0, count, window):
                self._session.send(batch.take(np.arange(first, min(first + window, count))), None, effects)
        self._sequence += count
        return self._watch(effects, now_s)

    @property
    def next_sequence(self) -> int:
        """The number of the next publication."""
        return self._sequence

    def mark(self) -> Mark:
        """The place behind all that was said and published so far."""
        return self._session.mark()

    def unsettled_rows(self) -> int:
        """How many rows and words the broker has not settled."""
        return self._session.unsettled_rows()

    def unsettled(self) -> int:
        """How much of what was said is not settled."""
        return self._session.unsettled()

    def settled_publications(self) -> int:
        """How many publications the broker has settled."""
        return self._sequence - self._first_sequence - self._session.unsettled_publications()

    def unmatched_publications(self) -> int:
        """How many of them matched nobody there."""
        return self._session.peer_unmatched

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one door for what happens to the client."""
        effects: list[Effect] = []
        if isinstance(stimulus, FrameArrived):
            self._frame(stimulus.frame, effects)
        elif isinstance(stimulus, TimerFired):
            self._timers.discard(stimulus.name)
            if stimulus.name == ACKNOWLEDGE:
                self._ack_scheduler.flush_all(effects)
            else:
                self._session.retransmit(effects)
        elif isinstance(stimulus, PeerConnected):
            self._session.connect(effects)
        elif isinstance(stimulus, PeerDisconnected):
            self._session.disconnect()
        return self._watch(effects, now_s)

    def set_window(self, window: int) -> None:
        """Have no more rows in flight than this from now on; it is not above that of the configuration."""
        self._window = min(window, self._config.window)
        self._session.set_window(self._window)

    def reset(self) -> None:
        """The broker lives on but has forgotten this client, which was away for too long: next time it comes as a new one."""
        self._session.reset()

    def _frame(self, frame: Frame, effects: list[Effect]) -> None:
        session = self._session
        if isinstance(frame, BatchFrame):
            batch = frame.batch
            if session.receive(frame, batch.count, effects):
                session.settle(frame.sequence, batch.count)
                self._deliver(batch, effects)
        elif isinstance(frame, ControlFrame):
            if session.receive(frame, 1, effects):
                session.settle(frame.sequence, 1)
                if isinstance(frame.message, Rejected):
                    self._rejected(frame.message, effects)
        elif isinstance(frame, Acknowledgement):
            session.on_acknowledgement(frame, effects)
        elif isinstance(frame, Hello):
            greeting: list[ControlMessage] = [*self._said.values(), SyncEnd()] if session.is_new(frame) else []
            session.on_hello(frame, greeting, effects)

    def _rejected(self, word: Rejected, effects: list[Effect]) -> None:
        """Do not say again what the broker has not accepted."""
        if not word.withdrawal:
            self._said.pop(word.id, None)
            if self._subscriptions and word.id in self._subscriptions:
                self._subscriptions.remove(word.id)
        effects.append(Rejection(word.id, word.code, word.text, word.withdrawal))

    def _deliver(self, batch: Batch, effects: list[Effect]) -> None:
        new = batch.mark_seen(self._seen)
        if self._subscriptions is None or (new is not None and not len(new)):
            return
        if new is not None:
            batch = batch.take(new)
        parts = batch.split_by_link(self._subscriptions)
        if parts:
            effects.append(Deliver(parts))  # type: ignore[arg-type]

    def _watch(self, effects: list[Effect], now_s: float) -> list[Effect]:
        acks_due, config = self._ack_scheduler, self._config
        if acks_due.now:
            acks_due.flush(effects)
        if acks_due.later and ACKNOWLEDGE not in self._timers:
            self._set_timer(effects, ACKNOWLEDGE, now_s + config.acknowledge_delay_s)
        if config.retransmit_s is not None:
            self._set_timer(effects, RESEND, now_s + config.retransmit_s)
        return effects

    def _set_timer(self, effects: list[Effect], name: str, at_s: float) -> None:
        if name not in self._timers:
            self._timers.add(name)
            effects.append(SetTimer(name, at_s))
