"""The broker core: a stimulus goes in with the time, a list of effects comes out. It dispatches to its parts.

Invariants: an incoming publication is unsettled at its sender until every forwarded copy is settled, so that some peer still has
it whoever crashes. Control messages of clients are in the journal before they are acknowledged. Publications are routed only when
all neighbours in other directions are synchronised.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from overweave.batches.base import Batch
from overweave.broker.counters import Statistics
from overweave.broker.durability import Durability
from overweave.broker.lifecycle import PeerLifecycle
from overweave.broker.parts import make_context, make_parts
from overweave.broker.pending_ack import PendingAck
from overweave.broker.registry import OVERLAY_KEY, Journal, Registry
from overweave.broker.session import Session
from overweave.broker.story import Step
from overweave.broker.timer_dispatch import TimerDispatch
from overweave.broker.view import View
from overweave.contract.config import BrokerConfig
from overweave.contract.effects import Effect
from overweave.contract.frames import (
    Acknowledgement,
    BatchFrame,
    ControlFrame,
    EpochOpened,
    LinkRetired,
    MigrationBarrier,
    MigrationMessage,
    ModuleMessage,
    OverlayUpdate,
    UrgentFrame,
    UrgentMessageFrame,
)
from overweave.contract.modules import Module, TopologyView
from overweave.contract.overlay_state import OverlayRecord, OverlayState, OverlayStatus, first_state
from overweave.contract.stimuli import (
    AskModule,
    ChangeOverlay,
    FrameArrived,
    JournalFailed,
    LoadMeasured,
    MigrateClient,
    PeerConnected,
    PeerDisconnected,
    PeerLeft,
    Persisted,
    Stimulus,
    TimerFired,
)
from overweave.language.messages import Control
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Engine, Routing


class BrokerCore:
    """One broker; ``journal`` is that of an earlier incarnation, ``module_life`` the life id of its modules as
    publishers, ``confirms_persist`` whether the driver reports `Persisted`, and ``pending_persists`` the number of `Persist`
    effects of an earlier core that it will count first.
    """

    def __init__(
        self,
        id: str,
        engine: Engine,
        neighbours: Iterable[str],
        config: BrokerConfig | None = None,
        incarnation: int = 1,
        journal: Journal | None = None,
        modules: Mapping[str, Module] | None = None,
        module_life: int | None = None,
        confirms_persist: bool = False,
        pending_persists: int = 0,
        overlay: OverlayState | None = None,
    ) -> None:
        self.id, self.config, self.incarnation = id, config or BrokerConfig(), incarnation
        module_life = incarnation if module_life is None else module_life
        self._context = context = make_context(id, engine, self.config, incarnation, modules or {}, module_life)
        self._registry = Registry(pending_persists)
        durability = Durability(confirms_persist)
        kinds = neighbours if isinstance(neighbours, Mapping) else dict.fromkeys(neighbours, LinkKind.PRIMARY)
        journal = journal or {}
        overlay = overlay or first_state(Overlay([id, *kinds], [(id, each) for each in kinds]))
        self._parts = parts = make_parts(context, self._registry, durability, _latest_overlay(overlay, journal.get(OVERLAY_KEY)))
        self._lifecycle = PeerLifecycle(parts)
        self._timers = TimerDispatch(parts, self._lifecycle)
        self._step, self._failure_detector, self._forwarder = context.step, context.detector, parts.forwarder
        self._sessions, self._neighbours = context.peers.sessions, context.peers.neighbours
        self._match_cost = engine.match_cost or partial(_all_subscriptions, engine.routing)
        self._handlers: dict[type, Callable[..., None]] = {
            TimerFired: self._timers.on_timer,
            PeerConnected: self._lifecycle.on_connected,
            PeerDisconnected: self._lifecycle.on_disconnected,
            PeerLeft: self._lifecycle.on_left,
            LoadMeasured: parts.control.on_load,
            MigrateClient: parts.migration.on_order,
            AskModule: context.modules.on_request,
            ChangeOverlay: lambda stimulus: parts.overlay.adopt(stimulus.state),
            Persisted: durability.persisted,
            JournalFailed: durability.failed,
        }
        #: The messages of neighbours that are not for the control plane.
        self._neighbour_handlers: dict[type, Callable[..., None]] = {
            LinkRetired: parts.retirement.on_message,
            MigrationBarrier: parts.migration.on_barrier,
            ModuleMessage: context.modules.on_message,
            OverlayUpdate: parts.overlay.on_message,
            EpochOpened: parts.overlay.on_message,
        }
        parts.overlay.start(kinds)
        parts.clients.restore(journal)
        parts.recovery.start()
        self._started = False

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one entry point: a broker changes only here."""
        step = self._step
        paused_s = now_s - step.now_s
        step.now_s = now_s
        effects: list[Effect] = []
        step.effects = effects
        if self._started:
            if paused_s > self._failure_detector.pause_threshold_s:
                self._parts.recovery.on_paused(paused_s)
        else:
            self._started = True
            self._parts.overlay.guests.start()
            self._context.modules.start(
                self.topology, tuple(self._neighbours), View(self._parts.overlay, self._registry, self._context.peers)
            )
        if isinstance(stimulus, FrameArrived):
            self._on_frame(stimulus)
        else:
            self._handlers[type(stimulus)](stimulus)
        self._timers.end_step()
        return effects

    def _on_frame(self, stimulus: FrameArrived) -> None:
        peer, frame = stimulus.peer, stimulus.frame
        session = self._sessions.get(peer)
        if session is None:
            return
        if self._failure_detector.tick_s is not None and peer in self._neighbours:
            self._failure_detector.alive(peer, self._step.now_s)
        if isinstance(frame, BatchFrame):
            self._forwarder.on_batch(frame, peer, session)
        elif isinstance(frame, ControlFrame):
            if session.receive(frame, 1, self._step.effects):
                self._on_control(frame, peer, session)
        elif isinstance(frame, Acknowledgement):
            session.on_acknowledgement(frame, self._step.effects)
        elif isinstance(frame, UrgentFrame):
            self._parts.urgent.on_frame(frame, peer, session)
        elif isinstance(frame, UrgentMessageFrame):
            self._parts.urgent.on_message(frame, peer, session)
        else:
            self._lifecycle.on_hello(frame, peer, session)

    def _on_control(self, frame: ControlFrame, peer: str, session: Session) -> None:
        """Dispatch a message of the stream that is no publication."""
        message, ack = frame.message, PendingAck.of_control(session.inbound, frame.sequence)
        is_routed = isinstance(message, Control)
        if peer not in self._neighbours:
            if isinstance(message, MigrationMessage):
                self._parts.migration.on_client_message(peer, message)
            else:
                is_routed = self._parts.clients.on_message(peer, message, ack)
        elif (handler := self._neighbour_handlers.get(type(message))) is not None:
            handler(peer, message)
        else:
            self._parts.control.on_message(peer, message, ack)
        if is_routed:
            self._parts.recovery.on_routes_changed()
        ack.release()

    # ---- state

    @property
    def routing(self) -> Routing:
        """The routing protocol."""
        return self._context.engine.routing

    @property
    def topology(self) -> TopologyView | None:
        """The overlay as far as the protocol knows it."""
        links = self._context.engine.links
        return None if links is None else links.topology

    def statistics(self) -> Statistics:
        """A snapshot of counters and tables."""
        return self._context.counters.statistics(self.routing.table_sizes(), self._context.peers.unsettled())

    def module_status(self) -> Mapping[str, Mapping[str, object]]:
        """The state of each module, by name."""
        return self._context.modules.status()

    def match_cost(self, peer: str, batch: Batch) -> int:
        """The number of filters that each publication of a peer is matched against."""
        return self._match_cost(batch, self._context.peers.origin_of(peer))

    def established_neighbours(self) -> list[str]:
        """The neighbours with an established session: both ends know each other's epoch."""
        return self._context.peers.established()

    def unsettled_inbound_rows(self, peer: str) -> int:
        """The number of a peer's rows that are not settled here: the most that it may have to send again."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.inbound.unsettled_publications()

    def unsettled_outbound_rows(self, peer: str) -> int:
        """The number of rows and control messages that a peer has not settled."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.outbound.unsettled_rows()

    def registration_count(self, kind: str, client: str | None = None) -> int:
        """The number of subscriptions or advertisements of one client, or of all."""
        return self._registry.count(kind, client)

    def is_registered(self, client: str, message: Control) -> bool:
        """Whether a message is about a registration that a client has, or moves an advertisement to another generation."""
        return self._registry.has(client, message) or self._registry.moves(client, message)

    def clients(self) -> list[str]:
        """All clients with a session or registrations, connected or not."""
        return self._registry.clients()

    def knows(self, client: str) -> bool:
        """Whether a client has a session or registrations, perhaps from the journal."""
        return self._registry.knows(client)

    def journal(self) -> Journal:
        """The journal as it is or will be: all registrations of clients, and the overlay if it has changed."""
        record = self._parts.overlay.kept_record
        return {**self._registry.entries(), **({} if record is None else {OVERLAY_KEY: record})}

    def overlay_state(self) -> OverlayState:
        """The present state of the overlay."""
        return self._parts.overlay.state

    def overlay_record(self) -> OverlayRecord:
        """The present state of the overlay, with the guests and the contact of this broker."""
        return self._parts.overlay.record

    def overlay_status(self) -> OverlayStatus:
        """The state of this broker in a change of the overlay."""
        return self._parts.overlay.status()

    @property
    def is_isolated(self) -> bool:
        """Whether no other broker is linked to it: publications of its clients would reach nobody else."""
        return self._parts.overlay.is_isolated

    def neighbour_kinds(self) -> dict[str, LinkKind]:
        """The neighbours with the kinds of their links, connected or not."""
        return dict(self._neighbours)

    def migrations(self) -> dict[str, str]:
        """The clients that are moving away, and where to."""
        return self._parts.migration.targets()

    def story(self, id: str) -> list[Step]:
        """The stored steps of one advertisement, subscription or publication (``PUBLISHER:SEQUENCE``)."""
        return self._context.story.of(id)

    def validate(self) -> None:
        """Check the invariants of all parts."""
        self._parts.validate()
        if self._started:
            self._timers.validate()


def _latest_overlay(given: OverlayState, kept: object) -> OverlayRecord:
    """The later of the driver's state of the overlay and the journal's, with the guests and the contact in the journal."""
    if not isinstance(kept, OverlayRecord):
        return OverlayRecord(given, contact="")
    return kept if kept.state.rank > given.rank else OverlayRecord(given, kept.guests, kept.contact)


def _all_subscriptions(routing: Routing, batch: Batch, origin: str | None) -> int:  # noqa: ARG001
    """The match cost of a protocol that compares each publication with all subscriptions."""
    return routing.table_sizes()["subscriptions"]
