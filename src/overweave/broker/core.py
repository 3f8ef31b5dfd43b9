"""The broker core: a stimulus goes in with the time, a list of effects comes out. This file dispatches; the parts do the work.

Invariants: an incoming publication is unsettled at its sender until every forwarded copy is settled, so that some peer still has
it whoever crashes. Control messages of clients are in the journal before they are acknowledged. Publications are routed only when
all neighbours in other directions are synchronised.
"""

from collections.abc import Callable, Iterable, Mapping

from overweave.batches.base import Batch
from overweave.broker.client_control import ClientControl
from overweave.broker.context import BrokerContext
from overweave.broker.control_plane import ControlPlane
from overweave.broker.counters import Counters, Statistics
from overweave.broker.deferred import DeferredMessages
from overweave.broker.durability import Durability
from overweave.broker.failure_detector import FailureDetector
from overweave.broker.forwarder import Forwarder
from overweave.broker.leaving import LEAVE
from overweave.broker.module_host import ModuleHost
from overweave.broker.module_outlet import BrokerOutlet
from overweave.broker.orphans import ORPHANS, ORPHANS_S, Orphans
from overweave.broker.peers import Peers
from overweave.broker.pending_ack import PendingAck
from overweave.broker.recovery import make_recovery
from overweave.broker.registry import Journal, Registry
from overweave.broker.retirement import RETIRE, LinkRetirement
from overweave.broker.session import AckScheduler, Session
from overweave.broker.slow_consumers import CHECK_SLOW, CHECK_SLOW_FAST, SlowConsumerPolicy
from overweave.broker.step import StepContext
from overweave.broker.story import Step, Story
from overweave.broker.timers import Timers
from overweave.broker.urgent_lane import UrgentLane
from overweave.contract.config import BrokerConfig
from overweave.contract.effects import Effect, Reject
from overweave.contract.frames import Acknowledgement, BatchFrame, ControlFrame, Hello, LinkRetired, UrgentFrame
from overweave.contract.modules import Module, TopologyView
from overweave.contract.stimuli import (
    FrameArrived,
    JournalFailed,
    LoadMeasured,
    PeerConnected,
    PeerDisconnected,
    PeerLeft,
    Persisted,
    Stimulus,
    TimerFired,
)
from overweave.language.messages import Control
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Engine, Routing
from overweave.routing.sync import SyncKind

ACKNOWLEDGE, ACKNOWLEDGE_CONTROL, RESEND, HEARTBEAT = "acknowledge", "acknowledge-control", "resend", "pulse"
#: A timer that is this late shows that the broker was paused or busy: it could not read acknowledgements either.
_LATE_S = 0.5


class BrokerCore:
    """One broker; ``journal`` is that of an earlier incarnation, ``life`` the incarnation of its modules as publishers,
    ``durable`` whether the driver reports `Persisted`, and ``unsynced`` the number of `Persist` effects of an earlier core that
    it will count first.
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
        life: int | None = None,
        durable: bool = False,
        unsynced: int = 0,
    ) -> None:
        self.id, self.config = id, config or BrokerConfig()
        step, detector = StepContext(), FailureDetector(self.config, engine.links is not None or engine.ticks is not None)
        sync = engine.sync(detector.tick_s is not None)
        acks = AckScheduler(selective=sync.kind is not SyncKind.TREE)
        peers = Peers(self.config.session, incarnation, acks)
        host = ModuleHost(id, modules or {}, step, incarnation if life is None else life)
        self._context = context = BrokerContext(
            id=id, incarnation=incarnation, config=self.config, engine=engine, step=step, timers=Timers(step), peers=peers,
            sync=sync, detector=detector, deferred=DeferredMessages(step), modules=host, story=Story(self.config.story_length),
            counters=Counters(),
        )  # fmt: skip
        self._step, self._timers, self._sessions, self._acks = step, context.timers, peers.sessions, acks
        self._neighbours, self._detector, self._modules = peers.neighbours, detector, host
        self._consumers = SlowConsumerPolicy(self.config)
        self._registry, self._durability = Registry(unsynced), Durability(durable)
        self._forwarder = Forwarder(context, self._registry.advertised if engine.needs_advertisements else None, self._consumers)
        self._urgent = UrgentLane(context)
        self._control = ControlPlane(context)
        self._clients = ClientControl(context, self._control, self._registry, self._durability)
        self._orphans = Orphans(context)
        self._recovery = make_recovery(context, self._control, self._forwarder.duplicate_acks, self._orphans)
        self._retirement = LinkRetirement(context, self._recovery)
        context.deferred.connect(self._forwarder.resume, self._clients.resume)
        host.connect(BrokerOutlet(self._control, self._forwarder, self._urgent, self._retirement))
        self._match_cost = engine.match_cost or (lambda _, __: engine.routing.table_sizes()["subscriptions"])
        self._load_handler = engine.load or (lambda _: ())
        self._handlers = self._make_handlers()
        self._timer_handlers = self._make_timer_handlers()
        for neighbour in neighbours:
            self._control.add_neighbour(neighbour, LinkKind.PRIMARY)
        self._clients.restore(journal or {})
        self._recovery.start()
        self._started = False

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one entry point: a broker changes only here."""
        step = self._step
        away_s = now_s - step.now_s
        step.now_s = now_s
        effects: list[Effect] = []
        step.effects = effects
        if away_s > self._detector.away_s and self._started:
            self._recovery.on_paused(away_s)
        if not self._started:
            self._started = True
            self._modules.start(self.topology)
        if isinstance(stimulus, FrameArrived):
            self._on_frame(stimulus)
        else:
            self._handlers[type(stimulus)](stimulus)
        self._arm_timers()
        return effects

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

    @property
    def incarnation(self) -> int:
        """The incarnation of the broker."""
        return self._context.incarnation

    def statistics(self) -> Statistics:
        """A snapshot of counters and tables."""
        return self._context.counters.statistics(self.routing.table_sizes(), self._context.peers.unsettled())

    def match_cost(self, peer: str, batch: Batch) -> int:
        """The number of filters that each publication of a peer is matched against."""
        return self._match_cost(batch, self._context.peers.origin_of(peer))

    def unsettled_rows(self, peer: str) -> int:
        """The number of a peer's rows that are not settled here: the most that it may have to send again."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.inbound.unsettled_rows()

    def waiting_rows(self, peer: str) -> int:
        """The number of rows and control messages that a peer has not settled."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.outbound.unsettled_rows()

    def registered(self, kind: str, client: str | None = None) -> int:
        """The number of subscriptions or advertisements of one client, or of all."""
        return self._registry.count(kind, client)

    def is_registered(self, client: str, message: Control) -> bool:
        """Whether a client has a registration under the id of this message."""
        return self._registry.has(client, message)

    def clients(self) -> list[str]:
        """All clients with a session or registrations, connected or not."""
        return self._registry.clients()

    def knows(self, client: str) -> bool:
        """Whether a client has a session or registrations, perhaps from the journal."""
        return self._registry.knows(client)

    def journal(self) -> Journal:
        """All registrations of clients, as the journal has them or will have them."""
        return self._registry.entries()

    def story(self, id: str) -> list[Step]:
        """The stored steps of one advertisement, subscription or publication (``PUBLISHER:SEQUENCE``)."""
        return self._context.story.of(id)

    def validate(self) -> None:
        """Check the invariants of all parts."""
        for part in (self._context.peers, self.routing, self._forwarder, self._control, self._clients, self._orphans):
            part.validate()

    # ---- dispatch

    def _make_handlers(self) -> dict[type, Callable[..., None]]:
        return {
            TimerFired: self._on_timer,
            PeerConnected: self._on_connected,
            PeerDisconnected: self._on_disconnected,
            PeerLeft: self._on_left,
            LoadMeasured: self._on_load,
            Persisted: self._durability.persisted,
            JournalFailed: self._durability.failed,
        }

    def _make_timer_handlers(self) -> dict[str, Callable[[], None]]:
        return {
            ACKNOWLEDGE: lambda: self._acks.flush_all(self._step.effects),
            ACKNOWLEDGE_CONTROL: lambda: self._acks.flush_control(self._step.effects),
            RESEND: self._retransmit,
            ORPHANS: self._orphans.retry,
            HEARTBEAT: self._recovery.on_heartbeat,
            RETIRE: self._retirement.on_timer,
            LEAVE: self._clients.withdraw_slice,
        }

    def _on_frame(self, stimulus: FrameArrived) -> None:
        peer, frame = stimulus.peer, stimulus.frame
        session = self._sessions.get(peer)
        if session is None:
            return
        if peer in self._neighbours:
            self._detector.heard(peer, self._step.now_s)
        if isinstance(frame, BatchFrame):
            self._forwarder.on_batch(frame, peer, session)
        elif isinstance(frame, ControlFrame):
            if session.receive(frame, 1, self._step.effects):
                self._on_control(frame, peer, session)
        elif isinstance(frame, Acknowledgement):
            session.on_acknowledgement(frame, self._step.effects)
        elif isinstance(frame, UrgentFrame):
            self._urgent.on_frame(frame, peer, session)
        else:
            self._on_hello(frame, peer, session)

    def _on_control(self, frame: ControlFrame, peer: str, session: Session) -> None:
        message, ack = frame.message, PendingAck(session, frame.sequence, 1, control=True)
        if peer not in self._neighbours:
            self._clients.on_message(peer, message, ack)
        elif isinstance(message, LinkRetired):
            self._retirement.on_message(peer, message)
        else:
            self._control.on_message(peer, message, ack)
        if isinstance(message, Control):
            self._recovery.on_routes_changed()
        ack.release()

    def _on_hello(self, frame: Hello, peer: str, session: Session) -> None:
        is_neighbour, was_established = peer in self._neighbours, session.established
        if is_neighbour and frame.peer_epoch > session.epoch:
            self._control.restart_above(frame.peer_epoch.incarnation)
        greeting = self._control.greeting_for(peer) if is_neighbour and session.is_new(frame) else []
        if not is_neighbour and session.is_new(frame):
            self._clients.on_new_epoch(peer)
        session.on_hello(frame, greeting, self._step.effects)
        if not is_neighbour or was_established or not session.established:
            return
        if peer in self._retirement:
            self._retirement.on_link_up(peer)
        else:
            self._recovery.on_link_up(peer)

    def _on_connected(self, stimulus: PeerConnected) -> None:
        peer = stimulus.peer
        if peer not in self._sessions:
            if stimulus.client:
                self._clients.add(peer)
            else:
                self._control.add_neighbour(peer, stimulus.kind)
        elif stimulus.client:
            self._consumers.reconnected(self._sessions[peer], self._step.now_s)
        self._sessions[peer].connect(self._step.effects)

    def _on_disconnected(self, stimulus: PeerDisconnected) -> None:
        session = self._sessions.get(stimulus.peer)
        if session is not None:
            session.disconnect()

    def _on_left(self, stimulus: PeerLeft) -> None:
        peer = stimulus.peer
        session = self._sessions.get(peer)
        if session is None:
            return
        session.disconnect()
        if peer in self._neighbours:
            reclaimed = session.reclaim([])
            self._detector.forget(peer)
            self._retirement.forget(peer)
            self._control.remove_neighbour(peer)
            self._recovery.on_link_removed(peer, reclaimed)
        else:
            self._clients.remove(peer)
        self._acks.forget(session)
        self._consumers.forget(session)
        session.close()
        self._control.on_sync_progress()

    def _on_load(self, stimulus: LoadMeasured) -> None:
        self._modules.measured(stimulus)
        self._control.send_all(self._load_handler(stimulus))

    # ---- timers

    def _on_timer(self, stimulus: TimerFired) -> None:
        name = stimulus.name
        late_s = self._timers.fired(name)
        handler = self._timer_handlers.get(name)
        if handler is not None:
            handler()
        elif name in (CHECK_SLOW, CHECK_SLOW_FAST):
            self._check_slow(name, late_s)
        elif not self._control.on_timer(name):
            self._modules.on_timer(name)

    def _retransmit(self) -> None:
        for session in self._sessions.values():
            session.retransmit(self._step.effects)

    def _check_slow(self, timer: str, late_s: float) -> None:
        """Disconnect slow consumers."""
        if late_s > _LATE_S:
            self._consumers.was_away(late_s)
        for session, why in self._consumers.check(timer, self._step.now_s):
            rows = session.outbound.unsettled_rows()
            self._step.effects.append(Reject(session.peer, "slow-consumer", why, rows, forget=True))
            self._on_left(PeerLeft(session.peer))

    def _arm_timers(self) -> None:
        """Retire and close links, send due acknowledgements, and set the timers that are needed."""
        acks, config, timers = self._acks, self.config.session, self._timers
        if self._control.retired:
            self._control.retired, retired = [], self._control.retired
            for neighbour in retired:
                self._retirement.retire(neighbour)
        if self._retirement:
            self._retirement.check()
        if acks.now:
            acks.flush(self._step.effects)
        if self._orphans:
            timers.set(ORPHANS, ORPHANS_S)
        if acks.soon:
            timers.set(ACKNOWLEDGE_CONTROL, 0.0)
        if acks.later:
            timers.set(ACKNOWLEDGE, config.acknowledge_delay_s)
        if config.retransmit_s is not None:
            timers.set(RESEND, config.retransmit_s)
        if self._consumers.needed:
            for name, delay_s in self._consumers.timers():
                timers.set(name, delay_s)
        if self._detector.tick_s is not None:
            timers.set(HEARTBEAT, self._detector.tick_s)
