"""The broker core: a stimulus goes in with the time, a list of effects comes out.

What holds at all times: a publication that came in stays unsettled at its sender until every copy of it that went on
is settled, so that whoever crashes, somebody still has it; what clients said is in the journal before it is
acknowledged; and publications are routed only when all neighbours in other directions have told what they want.
"""

from collections.abc import Iterable, Mapping

import msgspec

from overweave.batches.base import Batch
from overweave.broker.durability import Durability
from overweave.broker.failure_detector import FailureDetector
from overweave.broker.forwarder import Forwarder
from overweave.broker.leaving import LEAVE, Leaving
from overweave.broker.module_host import ModuleHost
from overweave.broker.neighbour_sync import GraphSync, NeighbourSync, NoSync
from overweave.broker.pending_ack import PendingAck
from overweave.broker.registry import Journal, Registry, kind_of
from overweave.broker.session import AckScheduler, EpochCounter, Session
from overweave.broker.settlement import ControlSettlement
from overweave.broker.slow_consumers import CHECK_SLOW, CHECK_SLOW_FAST
from overweave.broker.step import StepContext
from overweave.broker.story import Step
from overweave.broker.urgent_lane import UrgentLane
from overweave.contract.config import BrokerConfig
from overweave.contract.effects import Effect, Reject, Restart, SetTimer
from overweave.contract.frames import (
    NO_EPOCH,
    Acknowledgement,
    AdvertisementsEnd,
    BatchFrame,
    ControlFrame,
    ControlMessage,
    Frame,
    Hello,
    Rejected,
    SyncEnd,
    UrgentFrame,
    is_addressed,
)
from overweave.contract.modules import ControlApplied, Module
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
from overweave.language.headers import Priority
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.routing.base import Routing, Send
from overweave.routing.messages import LinkState

ACKNOWLEDGE, ACKNOWLEDGE_CONTROL, RESEND, HEARTBEAT = "acknowledge", "acknowledge-control", "resend", "pulse"
#: The timer at which publications are tried again that were in flight on a closed link.
ORPHANS, _ORPHANS_S = "orphans", 0.5
#: Incarnations are milliseconds below this, until the year 2248: neighbours with higher ones are not believed.
INCARNATIONS_MAX = 1 << 43
#: A timer that fires so late shows that the broker was paused, or as busy: then clients could not be heard either.
_LATE_S = 0.5


class Statistics(msgspec.Struct, frozen=True):
    """What a broker has done so far, and what it holds now. Publications are counted by rows, those of modules as control."""

    publications_in: int
    publications_out: int
    #: What was sent to clients, once for each, however many of its subscriptions match: brokers do not count deliveries.
    publications_to_clients: int
    duplicates: int
    control_in: int
    control_out: int
    tables: dict[str, int]
    unsettled: dict[str, int]
    #: Publications that were given up because the only link they could take is closed.
    undeliverable: int = 0
    #: Of the publications that arrived, those that no advertisement of their client covers: they reach nobody.
    unadvertised: int = 0


class BrokerCore:
    """One broker; ``journal`` is what an earlier incarnation kept, ``life`` that of its modules as publishers, ``durable``
    whether the driver says `Persisted`, and ``unsynced`` how many `Persist` effects of an earlier core it will count first.
    """

    def __init__(
        self,
        id: str,
        routing: Routing,
        neighbours: Iterable[str],
        config: BrokerConfig | None = None,
        incarnation: int = 1,
        journal: Journal | None = None,
        modules: Mapping[str, Module] | None = None,
        life: int | None = None,
        durable: bool = False,
        unsynced: int = 0,
    ) -> None:
        self.id = id
        self.config = config or BrokerConfig()
        self._routing = routing
        self._incarnation = incarnation
        self._ack_scheduler = AckScheduler(selective=not routing.acyclic)
        self._sessions: dict[str, Session] = {}
        self._neighbours: dict[str, None] = {}
        #: Epochs of sessions with neighbours: a later session, or a reset one, has a higher epoch, whatever its peer remembers.
        self._epochs = EpochCounter(incarnation)
        self._registry = Registry(unsynced)
        self._durability = Durability(durable)
        routing.begin(incarnation)
        self._failure_detector = FailureDetector(self.config, routing.watches_links or routing.wants_ticks)
        self._sync = _sync(routing, ticks=self._failure_detector.tick_s is not None)
        #: What a peer said before it came back, and has not said again.
        self._stale: dict[str, dict[tuple[str, str, str | None], Control]] = {}
        self._leaving = Leaving()
        #: When each timer that is set is due.
        self._timers: dict[str, float] = {}
        self._control_in = self._control_out = 0
        self._step = StepContext()
        self._modules = ModuleHost(
            id,
            modules or {},
            self._step,
            self._module_says,
            self._module_publishes,
            incarnation,
            incarnation if life is None else life,
        )
        self._forwarder = Forwarder(
            self._step, self.config, routing, self._sync, self._sessions, self._neighbours, self._modules, self._tell_again
        )
        window = 2 * max(self.config.session.window, self.config.publisher_window)
        self._urgent = UrgentLane(self._step, routing, self._sessions, self._neighbours, self._modules, window)
        if routing.needs_advertisements:
            self._forwarder.advertised = self._registry.advertised
        self._patience, self._story = self._forwarder.patience, self._forwarder.story
        #: Where routing goes by destination, it finds out itself whom control has reached.
        self._settlement = (
            None if routing.watches_links else ControlSettlement(self._sync, self._sessions, self._neighbours, routing.acyclic)
        )
        self._doors = {
            TimerFired: self._timer,
            PeerConnected: self._connected,
            PeerDisconnected: self._disconnected,
            PeerLeft: self._left,
            LoadMeasured: self._modules.measured,
            Persisted: self._durability.persisted,
            JournalFailed: self._durability.failed,
        }
        for neighbour in neighbours:
            self._add_neighbour(neighbour)
        for client, message in self._registry.restore(journal or {}):
            if client not in self._sessions:
                self._add_client(client)
            self._heard(message, client)
        if self._failure_detector.tick_s is not None and not routing.watches_links:
            routing.tick()  # so that it knows that there are ticks
        self._started = False

    # ---- the door, and what can be looked at

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one door: whatever happens to the broker happens here."""
        step = self._step
        away_s = now_s - step.now_s
        step.now_s = now_s
        effects: list[Effect] = []
        step.effects = effects
        if away_s > self._failure_detector.away_s and self._started:
            self._was_away(away_s)
        if not self._started:
            self._started = True
            self._modules.start(self._routing.overlay())
        if isinstance(stimulus, FrameArrived):
            self._frame(stimulus.peer, stimulus.frame)
        else:
            self._doors[type(stimulus)](stimulus)  # type: ignore[operator]
        self._watch()
        return effects

    def statistics(self) -> Statistics:
        """A snapshot of what was done and is held."""
        forwarder = self._forwarder
        return Statistics(
            publications_in=forwarder.rows_in,
            publications_out=forwarder.rows_out,
            publications_to_clients=forwarder.rows_to_clients,
            duplicates=forwarder.duplicates,
            control_in=self._control_in + forwarder.control_in + self._urgent.rows_in,
            control_out=self._control_out + forwarder.control_out + self._urgent.rows_out,
            tables=self._routing.table_sizes(),
            unsettled={
                peer: session.outbound.unsettled() for peer, session in self._sessions.items() if session.outbound.unsettled()
            },
            undeliverable=forwarder.undeliverable,
            unadvertised=forwarder.unadvertised,
        )

    def match_cost(self, peer: str, batch: Batch) -> int:
        """How many subscriptions each publication from a peer is compared with."""
        return self._routing.match_cost(batch, peer if peer in self._neighbours else None)

    def unsettled_rows(self, peer: str) -> int:
        """How many rows of a peer are not settled here: as many as it may still have to send again."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.inbound.unsettled_rows()

    def registered(self, kind: str, client: str | None = None) -> int:
        """How many subscriptions or advertisements one client of this broker has, or all have together."""
        return self._registry.count(kind, client)

    def is_registered(self, client: str, message: Control) -> bool:
        """Whether a client has said something under this id."""
        return self._registry.has(client, message)

    def waiting_rows(self, peer: str) -> int:
        """How many rows, and words, for a peer it has not settled."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.outbound.unsettled_rows()

    def knows(self, client: str) -> bool:
        """Whether a client, connected or not, has a session here, perhaps restored from the journal."""
        return self._registry.knows(client)

    def clients(self) -> list[str]:
        """All clients, connected or not."""
        return self._registry.clients()

    def journal(self) -> Journal:
        """All that its clients said and have not withdrawn, as the journal has it or will have it."""
        return self._registry.entries()

    def story(self, id: str) -> list[Step]:
        """All that happened here to one advertisement, subscription or publication (``PUBLISHER:SEQUENCE``), as far as kept."""
        return self._story.of(id)

    def validate(self) -> None:
        """Check what must always hold."""
        for session in self._sessions.values():
            session.validate()
        self._registry.validate()
        self._routing.validate()
        self._forwarder.validate()
        clients = self._sessions.keys() - self._neighbours.keys()
        assert all(self._registry.knows(client) for client in clients)
        assert self._neighbours.keys() <= self._sessions.keys()
        assert self._stale.keys() <= self._sessions.keys()
        assert self._sync.unsynced <= self._neighbours.keys()

    # ---- frames

    def _frame(self, peer: str, frame: Frame) -> None:
        session = self._sessions.get(peer)
        if session is None:
            return
        if self._failure_detector.tick_s is not None and peer in self._neighbours:
            self._failure_detector.heard(peer, self._step.now_s)
        if isinstance(frame, BatchFrame):
            self._forwarder.on_batch(frame, peer, session)
        elif isinstance(frame, ControlFrame):
            if session.receive(frame, 1, self._step.effects):
                ack = PendingAck(session, frame.sequence, 1, control=True)
                self._word(peer, frame.message, ack)
                ack.release()
        elif isinstance(frame, Acknowledgement):
            session.on_acknowledgement(frame, self._step.effects)
        elif isinstance(frame, UrgentFrame):
            self._urgent.on_frame(frame, peer, session)
        elif isinstance(frame, Hello):
            if peer in self._neighbours and frame.peer_epoch > session.epoch:
                # The neighbour knows a later incarnation of this broker and ignores this one: our clock has gone back.
                self._outlived_by(frame.peer_epoch.incarnation)
            was_established = session.established
            session.on_hello(frame, self._greeting(peer) if session.is_new(frame) else (), self._step.effects)
            if session.established and not was_established and peer in self._neighbours:
                self._link_works(peer)

    def _word(self, peer: str, word: ControlMessage, ack: PendingAck) -> None:
        if isinstance(word, AdvertisementsEnd):
            self._sync.announced(peer)
            self._synchronised()
        elif isinstance(word, SyncEnd):
            self._peer_has_told_all(peer)
            if peer not in self._neighbours:
                self._durability.hold(ack, self._registry.last_kept(peer))
        elif not isinstance(word, Rejected):
            self._control(peer, word, ack)

    # ---- control

    def _control(self, peer: str, message: Control, ack: PendingAck) -> None:
        self._control_in += 1
        stale = self._stale.get(peer)
        if stale:
            stale.pop(_key(message), None)
        if self._leaving:
            self._leaving.keep(peer, (kind_of(message), message.id))
        if peer in self._neighbours:
            if isinstance(message, LinkState) and message.id == self.id and message.incarnation > self._incarnation:
                self._outlived_by(message.incarnation)
            self._heard(message, peer, ack)
        else:
            self._said(peer, message, ack)
        if self._routing.watches_links:
            self._forwarder.on_routes_changed()

    def _said(self, client: str, message: Control, ack: PendingAck) -> None:
        """A client says something, after all that it published before: that goes by what it had said then."""
        if self._forwarder.has_deferred_from(client):
            ack.retain()
            self._forwarder.defer(message, client, ack)
            return
        if self._durability.failing and self._registry.is_change(client, message):
            ack.retain()  # it is settled when the client knows that it is rejected
            self._sessions[client].send_control(self._durability.rejection(message), self._step.effects, ack)
            return
        if self._registry.replaces(client, message):
            self._heard(_withdrawal(message), client)
        if self._registry.register(client, message, self._step.effects):
            self._heard(message, client, ack)
        self._durability.hold(ack, self._registry.last_kept(client))

    def _heard(self, message: Control, peer: str, ack: PendingAck | None = None) -> None:
        """Take in what a peer says, and tell on what others must know."""
        if self._story.length:
            self._story.heard(self._step.now_s, peer, message)
        if self._modules.has_modules:
            self._modules.watch(ControlApplied(message, peer, peer not in self._neighbours))
        self._tell(self._routing.handle(message, peer), peer, ack, message)
        if ack is not None and self._settlement is not None:
            self._settlement.add(message, peer, ack, self._step.now_s)

    def _tell(self, sends: Iterable[Send], peer: str = "", ack: PendingAck | None = None, heard: Control | None = None) -> None:
        """Send words; advertisements that were ``heard``, and what is addressed, wait for their copies to be settled."""
        for neighbour, message in sends:
            keeper = ack if heard is not None and _delays(message, heard) else None
            if keeper is not None:
                keeper.retain()
            if neighbour is None:
                self._forwarder.defer(message, peer, keeper)
                continue
            self._control_out += 1
            self._sessions[neighbour].send_control(message, self._step.effects, keeper)
            if self._settlement is not None:
                self._settlement.withdrawn(message, neighbour)

    def _module_says(self, module: str, message: Control) -> None:
        self._tell(self._routing.handle(message, module))

    def _module_publishes(self, module: str, batch: Batch) -> None:
        if batch.priority() is Priority.URGENT:
            self._urgent.publish(batch)
        else:
            self._forwarder.publish_local(batch, module)

    def _tell_again(self, message: Control, peer: str, ack: PendingAck | None) -> None:
        """Control that was held, or went a way that does not lead on."""
        if not is_addressed(message) and peer not in self._neighbours:
            if ack is not None and peer in self._sessions:  # a client's, which waited for what it had published before
                self._said(peer, message, ack)
            return
        self._tell(self._routing.handle(message, peer), peer, ack, message)

    # ---- peers that come, come back and go

    def _connected(self, stimulus: PeerConnected) -> None:
        peer = stimulus.peer
        if peer not in self._sessions:
            if stimulus.client:
                self._add_client(peer)
            else:
                self._add_neighbour(peer)
        elif stimulus.client:
            self._patience.reconnected(self._sessions[peer], self._step.now_s)
        self._sessions[peer].connect(self._step.effects)

    def _disconnected(self, stimulus: PeerDisconnected) -> None:
        session = self._sessions.get(stimulus.peer)
        if session is not None:
            session.disconnect()

    def _add_neighbour(self, neighbour: str) -> None:
        self._sessions[neighbour] = Session(neighbour, self._epochs, self.config.session, self._ack_scheduler)
        self._neighbours[neighbour] = None
        self._sync.add(neighbour)
        self._routing.add_neighbour(neighbour)
        self._forwarder.on_neighbours_changed()

    def _add_client(self, client: str) -> None:
        self._sessions[client] = Session(client, EpochCounter(self._incarnation), self.config.session, self._ack_scheduler)
        self._registry.add(client)

    def _greeting(self, peer: str) -> list[ControlMessage]:
        """What a peer that has forgotten everything must hear first; what it said itself has to be said again."""
        learned = self._learned(peer)
        if learned:
            self._stale[peer] = {_key(message): message for message in learned}
        if peer not in self._neighbours:
            self._leaving.cancel(peer)  # what it does not say again is withdrawn when it has said all
            return []
        self._sync.reset(peer)
        return [*self._routing.snapshot_for(peer), *self._sync.pending_markers(peer)]

    def _tell_on(self) -> None:
        for neighbour in self._neighbours:
            session = self._sessions[neighbour]
            if session.peer_epoch != NO_EPOCH:
                for mark in self._sync.pending_markers(neighbour):
                    session.send_control(mark, self._step.effects)

    def _learned(self, peer: str) -> list[Control]:
        return list(self._routing.learned_from(peer)) if peer in self._neighbours else self._registry.withdrawals(peer)

    def _peer_has_told_all(self, peer: str) -> None:
        stale = self._stale.pop(peer, {})
        if peer in self._neighbours:
            for message in stale.values():
                self._withdraw(peer, _withdrawal(message))
            self._sync.synced(peer)
        elif stale:
            self._leave(peer, [(kind, id) for kind, id, _ in stale])
        self._synchronised()

    def _synchronised(self) -> None:
        """More is known of what neighbours have and want."""
        self._tell_on()
        self._forwarder.flush_deferred()
        if self._settlement is not None:
            self._settlement.synchronised()

    def _outlived_by(self, incarnation: int) -> None:
        """Others know a later incarnation of this broker."""
        if incarnation < INCARNATIONS_MAX:  # nothing but nonsense is beyond
            self._step.effects.append(Restart(incarnation))

    # ---- links that fail and work again

    def _link_works(self, neighbour: str) -> None:
        self._failure_detector.alive(neighbour)
        self._forwarder.listens = self._failure_detector.listens
        self._tell(self._routing.link_up(neighbour))
        self._forwarder.on_routes_changed()

    def _link_fails(self, neighbour: str) -> None:
        self._tell(self._routing.link_down(neighbour))
        for what, ack in self._sessions[neighbour].reclaim(self._step.effects):
            self._forwarder.resume(what, neighbour, ack)
        self._forwarder.on_routes_changed()

    def _was_away(self, away_s: float) -> None:
        """Nothing has happened here for too long: the broker was paused, and its neighbours may have given it up."""
        self._forwarder.was_away(away_s)
        if not self._routing.watches_links:
            return
        there = [neighbour for neighbour in self._neighbours if self._sessions[neighbour].established]
        self._failure_detector.listen(there, self._step.now_s)
        self._forwarder.listens = self._failure_detector.listens
        for neighbour in there:
            self._link_fails(neighbour)

    def _left(self, stimulus: PeerLeft) -> None:
        peer = stimulus.peer
        session = self._sessions.get(peer)
        if session is None:
            return
        session.disconnect()
        if peer in self._neighbours:
            taken = session.reclaim([])
            del self._sessions[peer], self._neighbours[peer]
            self._sync.remove(peer)
            self._failure_detector.forget(peer)
            self._forwarder.listens = self._failure_detector.listens
            self._tell(self._routing.remove_neighbour(peer))
            self._forwarder.on_neighbours_changed()
            self._tell_on()
            for what, ack in taken:
                if self._routing.watches_links:
                    self._forwarder.resume(what, peer, ack)
                elif not isinstance(what, Control):
                    self._forwarder.redirect(what, ack)
        else:
            del self._sessions[peer]
            self._leave(peer, self._registry.said(peer))
        self._stale.pop(peer, None)
        self._ack_scheduler.forget(session)
        self._patience.forget(session)
        session.close()
        self._forwarder.flush_deferred()
        if self._settlement is not None:
            self._settlement.synchronised()

    def _leave(self, client: str, keys: list[tuple[str, str]]) -> None:
        """Withdraw what a client has said, the first slice at once."""
        self._leaving.add(client, keys)
        self._withdraw_slice()

    def _withdraw_slice(self) -> None:
        withdrawals, done = self._leaving.next_slice()
        for client, message in withdrawals:
            self._withdraw(client, message)
        for client in done:
            if client not in self._sessions:
                self._registry.remove(client)
        if self._leaving:
            self._set_timer(LEAVE, 0.0)

    def _withdraw(self, peer: str, message: Control) -> None:
        if peer in self._neighbours or self._registry.register(peer, message, self._step.effects):
            self._heard(message, peer)

    # ---- acknowledgements, repetition and patience

    def _watch(self) -> None:
        acks_due, config, timers = self._ack_scheduler, self.config.session, self._timers
        if acks_due.now:
            acks_due.flush(self._step.effects)
        if self._forwarder.has_orphans:
            self._set_timer(ORPHANS, _ORPHANS_S)
        if acks_due.soon:
            self._set_timer(ACKNOWLEDGE_CONTROL, 0.0)
        if acks_due.later and ACKNOWLEDGE not in timers:
            self._set_timer(ACKNOWLEDGE, config.acknowledge_delay_s)
        if config.retransmit_s is not None:
            self._set_timer(RESEND, config.retransmit_s)
        if self._patience.needed:
            for name, delay_s in self._patience.timers():
                self._set_timer(name, delay_s)
        if self._failure_detector.tick_s is not None:
            self._set_timer(HEARTBEAT, self._failure_detector.tick_s)

    def _timer(self, stimulus: TimerFired) -> None:
        name = stimulus.name
        late_s = self._step.now_s - self._timers.pop(name, self._step.now_s)
        if name == ACKNOWLEDGE:
            self._ack_scheduler.flush_all(self._step.effects)
        elif name == ACKNOWLEDGE_CONTROL:
            self._ack_scheduler.flush_control(self._step.effects)
        elif name == ORPHANS:
            self._forwarder.retry_orphans()
        elif name == RESEND:
            for session in self._sessions.values():
                session.retransmit(self._step.effects)
        elif name in (CHECK_SLOW, CHECK_SLOW_FAST):
            if late_s > _LATE_S:
                self._patience.was_away(late_s)
            for session, why in self._patience.check(name, self._step.now_s):
                self._step.effects.append(Reject(session.peer, "slow-consumer", why, session.outbound.unsettled_rows()))
                self._left(PeerLeft(session.peer))
        elif name == HEARTBEAT:
            self._beat()
        elif name == LEAVE:
            self._withdraw_slice()
        else:
            self._modules.timer(name)

    def _beat(self) -> None:
        """Let neighbours hear from us, and see who has not been heard."""
        if not self._routing.watches_links:
            self._sync.tick()
            self._synchronised()
            self._tell(self._routing.tick())
            self._forwarder.expire_deferred()
            if self._settlement is not None:
                self._settlement.expire(self._step.now_s - self.config.undeliverable_timeout_s)
            return
        for neighbour in self._neighbours:
            self._sessions[neighbour].acknowledge(self._step.effects, selective=True)
        for neighbour in self._failure_detector.expired(list(self._neighbours), self._step.now_s):
            self._link_fails(neighbour)
        if self._failure_detector.stop_listening(self._step.now_s):
            self._forwarder.listens = False
            self._forwarder.on_routes_changed()
        self._tell(self._routing.tick())
        self._forwarder.expire_deferred()

    def _set_timer(self, name: str, delay_s: float) -> None:
        if name not in self._timers:
            self._timers[name] = at_s = self._step.now_s + delay_s
            self._step.effects.append(SetTimer(name, at_s))


def _sync(routing: Routing, ticks: bool) -> NeighbourSync:
    if routing.watches_links:
        return NoSync()
    return NeighbourSync() if routing.acyclic else GraphSync(ticks)


def _delays(message: Control, heard: Control) -> bool:
    """Whether the one that was heard waits for a message that it causes: a copy, or a subscription that it attracts."""
    if type(message) is type(heard) and message.id == heard.id:
        return is_addressed(message) or isinstance(message, Advertise)
    return isinstance(heard, Advertise) and isinstance(message, Subscribe) and is_addressed(message)


def _key(message: Control) -> tuple[str, str, str | None]:
    return kind_of(message), message.id, message.header.tree


def _withdrawal(message: Control) -> Control:
    if isinstance(message, Advertise | Unadvertise):
        return Unadvertise(message.id, message.header)
    return Unsubscribe(message.id, message.header)
