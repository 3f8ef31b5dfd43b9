"""The broker core: a stimulus goes in with the time, a list of effects comes out.

What holds at all times: a publication that came in stays unsettled at its sender until every copy of it that went on
is settled, so that whoever crashes, somebody still has it; what clients said is in the journal before it is
acknowledged; and publications are routed only when all neighbours in other directions have told what they want.
"""

from collections.abc import Iterable, Mapping

import msgspec

from overweave.broker.custody import Custody
from overweave.broker.desk import Desk
from overweave.broker.durability import Durability
from overweave.broker.leaving import LEAVE, Leaving
from overweave.broker.patience import PATIENCE, PRESSED
from overweave.broker.pulse import Pulse
from overweave.broker.registry import Journal, Registry, kind_of
from overweave.broker.session import Debts, Session
from overweave.broker.settlement import ControlSettlement
from overweave.broker.story import Step
from overweave.broker.telling import Telling, TellingByRouting, TellingInCycles
from overweave.broker.traffic import Traffic
from overweave.broker.turn import Turn
from overweave.contract.batches import Batch
from overweave.contract.config import BrokerConfig
from overweave.contract.effects import Effect, Refuse, Restart, SetTimer
from overweave.contract.frames import (
    Acknowledgement,
    Announced,
    BatchFrame,
    Frame,
    Hello,
    Rejected,
    Synced,
    Word,
    WordFrame,
    is_addressed,
)
from overweave.contract.modules import Heard, Module
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
from overweave.language.messages import Advertise, Control, LinkState, Subscribe, Unadvertise, Unsubscribe
from overweave.routing.base import Routing, Send

ACKNOWLEDGE, ACKNOWLEDGE_CONTROL, RESEND, PULSE = "acknowledge", "acknowledge-control", "resend", "pulse"
#: The timer at which publications are tried again that were in flight on a closed link.
ORPHANS, _ORPHANS_S = "orphans", 0.5
#: So many sessions with neighbours have numbers of their own in a life of a broker, each of which may begin anew so often.
_SESSIONS_MAX, _ANEW_MAX = 1 << 20, 1 << 8
#: Incarnations are below this, so that the numbers of sessions have 64 bits: milliseconds until the year 2248.
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
    whether the driver says `Persisted`, and ``unsynced`` how many `Keep` effects of an earlier core it will count first.
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
        self._debts = Debts(ahead=not routing.acyclic)
        self._sessions: dict[str, Session] = {}
        self._neighbours: dict[str, None] = {}
        self._sessions_made = 0
        self._registry = Registry(unsynced)
        self._durability = Durability(durable)
        routing.begin(incarnation)
        self._pulse = Pulse(self.config, routing.watches_links or routing.wants_ticks)
        self._telling = _telling(routing, ticks=self._pulse.beat_s is not None)
        #: What a peer said before it came back, and has not said again.
        self._stale: dict[str, dict[tuple[str, str, str | None], Control]] = {}
        self._leaving = Leaving()
        #: When each timer that is set is due.
        self._timers: dict[str, float] = {}
        self._control_in = self._control_out = 0
        self._turn = Turn()
        self._desk = Desk(
            id,
            modules or {},
            self._turn,
            self._module_says,
            self._module_publishes,
            incarnation,
            incarnation if life is None else life,
        )
        self._traffic = Traffic(
            self._turn, self.config, routing, self._telling, self._sessions, self._neighbours, self._desk, self._tell_again
        )
        if routing.needs_advertisements:
            self._traffic.advertised = self._registry.advertised
        self._patience, self._story = self._traffic.patience, self._traffic.story
        #: Where routing goes by destination, it finds out itself whom control has reached.
        self._settlement = (
            None if routing.watches_links else ControlSettlement(self._telling, self._sessions, self._neighbours, routing.acyclic)
        )
        self._doors = {
            TimerFired: self._timer,
            PeerConnected: self._connected,
            PeerDisconnected: self._disconnected,
            PeerLeft: self._left,
            LoadMeasured: self._desk.measured,
            Persisted: self._durability.persisted,
            JournalFailed: self._durability.failed,
        }
        for neighbour in neighbours:
            self._add_neighbour(neighbour)
        for client, message in self._registry.restore(journal or {}):
            if client not in self._sessions:
                self._add_client(client)
            self._heard(message, client)
        if self._pulse.beat_s is not None and not routing.watches_links:
            routing.beat()  # so that it knows that there are ticks
        self._started = False

    # ---- the door, and what can be looked at

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one door: whatever happens to the broker happens here."""
        turn = self._turn
        away_s = now_s - turn.now_s
        turn.now_s = now_s
        effects: list[Effect] = []
        turn.effects = effects
        if away_s > self._pulse.away_s and self._started:
            self._was_away(away_s)
        if not self._started:
            self._started = True
            self._desk.start(self._routing.overlay())
        if isinstance(stimulus, FrameArrived):
            self._frame(stimulus.peer, stimulus.frame)
        else:
            self._doors[type(stimulus)](stimulus)  # type: ignore[operator]
        self._watch()
        return effects

    def statistics(self) -> Statistics:
        """A snapshot of what was done and is held."""
        traffic = self._traffic
        return Statistics(
            publications_in=traffic.rows_in,
            publications_out=traffic.rows_out,
            publications_to_clients=traffic.rows_to_clients,
            duplicates=traffic.duplicates,
            control_in=self._control_in + traffic.control_in,
            control_out=self._control_out + traffic.control_out,
            tables=self._routing.sizes(),
            unsettled={peer: session.unsettled() for peer, session in self._sessions.items() if session.unsettled()},
            undeliverable=traffic.undeliverable,
            unadvertised=traffic.unadvertised,
        )

    def compared_with(self, peer: str, batch: Batch) -> int:
        """How many subscriptions each publication from a peer is compared with."""
        return self._routing.compared_with(batch, peer if peer in self._neighbours else None)

    def unsettled_rows(self, peer: str) -> int:
        """How many rows of a peer are not settled here: as many as it may still have to send again."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.unsettled_in()

    def registered(self, kind: str, client: str | None = None) -> int:
        """How many subscriptions or advertisements one client of this broker has, or all have together."""
        return self._registry.count(kind, client)

    def is_registered(self, client: str, message: Control) -> bool:
        """Whether a client has said something under this id."""
        return self._registry.has(client, message)

    def waiting_rows(self, peer: str) -> int:
        """How many rows, and words, for a peer it has not settled."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.unsettled_rows()

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
        self._traffic.validate()
        clients = self._sessions.keys() - self._neighbours.keys()
        assert all(self._registry.knows(client) for client in clients)
        assert self._neighbours.keys() <= self._sessions.keys()
        assert self._stale.keys() <= self._sessions.keys()
        assert self._telling.unsynced <= self._neighbours.keys()

    # ---- frames

    def _frame(self, peer: str, frame: Frame) -> None:
        session = self._sessions.get(peer)
        if session is None:
            return
        if self._pulse.beat_s is not None and peer in self._neighbours:
            self._pulse.heard(peer, self._turn.now_s)
        if isinstance(frame, BatchFrame):
            self._traffic.take(frame, peer, session)
        elif isinstance(frame, WordFrame):
            if session.accepts(frame, 1, self._turn.effects):
                custody = Custody(session, frame.sequence, 1, control=True)
                self._word(peer, frame.word, custody)
                custody.release()
        elif isinstance(frame, Acknowledgement):
            session.acknowledgement(frame, self._turn.effects)
        elif isinstance(frame, Hello):
            if peer in self._neighbours and frame.peer_incarnation > session.incarnation:
                # It has met a later life of ours, and does not listen to this one: our clock must have gone back.
                self._outlived_by(frame.peer_incarnation // _SESSIONS_MAX)
            was_established = session.established
            session.hello(frame, self._greeting(peer) if session.is_new(frame) else (), self._turn.effects)
            if session.established and not was_established and peer in self._neighbours:
                self._link_works(peer)

    def _word(self, peer: str, word: Word, custody: Custody) -> None:
        if isinstance(word, Announced):
            self._telling.announced(peer)
            self._synchronised()
        elif isinstance(word, Synced):
            self._peer_has_told_all(peer)
            if peer not in self._neighbours:
                self._durability.hold(custody, self._registry.last_kept(peer))
        elif not isinstance(word, Rejected):
            self._control(peer, word, custody)

    # ---- control

    def _control(self, peer: str, message: Control, custody: Custody) -> None:
        self._control_in += 1
        stale = self._stale.get(peer)
        if stale:
            stale.pop(_key(message), None)
        if self._leaving:
            self._leaving.keep(peer, (kind_of(message), message.id))
        if peer in self._neighbours:
            if isinstance(message, LinkState) and message.id == self.id and message.incarnation > self._incarnation:
                self._outlived_by(message.incarnation)
            self._heard(message, peer, custody)
        else:
            self._said(peer, message, custody)
        if self._routing.watches_links:
            self._traffic.look_again()

    def _said(self, client: str, message: Control, custody: Custody) -> None:
        """A client says something, after all that it published before: that goes by what it had said then."""
        if self._traffic.holds_of(client):
            custody.hold()
            self._traffic.hold(message, client, custody)
            return
        if self._durability.failing and self._registry.is_change(client, message):
            custody.hold()  # it is settled when the client knows that it is rejected
            self._sessions[client].say(self._durability.rejection(message), self._turn.effects, custody)
            return
        if self._registry.is_other(client, message):
            self._heard(_withdrawal(message), client)
        if self._registry.take(client, message, self._turn.effects):
            self._heard(message, client, custody)
        self._durability.hold(custody, self._registry.last_kept(client))

    def _heard(self, message: Control, peer: str, custody: Custody | None = None) -> None:
        """Take in what a peer says, and tell on what others must know."""
        if self._story.length:
            self._story.heard(self._turn.now_s, peer, message)
        if self._desk.staffed:
            self._desk.watch(Heard(message, peer, peer not in self._neighbours))
        self._tell(self._routing.handle(message, peer), peer, custody, message)
        if custody is not None and self._settlement is not None:
            self._settlement.add(message, peer, custody, self._turn.now_s)

    def _tell(self, sends: Iterable[Send], peer: str = "", custody: Custody | None = None, heard: Control | None = None) -> None:
        """Send words; advertisements that were ``heard``, and what is addressed, wait for their copies to be settled."""
        for neighbour, message in sends:
            keeper = custody if heard is not None and _delays(message, heard) else None
            if keeper is not None:
                keeper.hold()
            if neighbour is None:
                self._traffic.hold(message, peer, keeper)
                continue
            self._control_out += 1
            self._sessions[neighbour].say(message, self._turn.effects, keeper)
            if self._settlement is not None:
                self._settlement.withdrawn(message, neighbour)

    def _module_says(self, module: str, message: Control) -> None:
        self._tell(self._routing.handle(message, module))

    def _module_publishes(self, module: str, batch: Batch) -> None:
        self._traffic.take_own(batch, module)

    def _tell_again(self, message: Control, peer: str, custody: Custody | None) -> None:
        """Control that was held, or went a way that does not lead on."""
        if not is_addressed(message) and peer not in self._neighbours:
            if custody is not None and peer in self._sessions:  # a client's, which waited for what it had published before
                self._said(peer, message, custody)
            return
        self._tell(self._routing.handle(message, peer), peer, custody, message)

    # ---- peers that come, come back and go

    def _connected(self, stimulus: PeerConnected) -> None:
        peer = stimulus.peer
        if peer not in self._sessions:
            if stimulus.client:
                self._add_client(peer)
            else:
                self._add_neighbour(peer)
        elif stimulus.client:
            self._patience.came_back(self._sessions[peer], self._turn.now_s)
        self._sessions[peer].connect(self._turn.effects)

    def _disconnected(self, stimulus: PeerDisconnected) -> None:
        session = self._sessions.get(stimulus.peer)
        if session is not None:
            session.disconnect()

    def _add_neighbour(self, neighbour: str) -> None:
        # A session that began later, or began anew, has the higher number, whatever the other end remembers.
        self._sessions_made += 1
        number = self._incarnation * _SESSIONS_MAX + self._sessions_made * _ANEW_MAX
        self._sessions[neighbour] = Session(neighbour, number, self.config.session, self._debts)
        self._neighbours[neighbour] = None
        self._telling.add(neighbour)
        self._routing.add_neighbour(neighbour)
        self._traffic.links_change()

    def _add_client(self, client: str) -> None:
        self._sessions[client] = Session(client, self._incarnation, self.config.session, self._debts)
        self._registry.add(client)

    def _greeting(self, peer: str) -> list[Word]:
        """What a peer that has forgotten everything must hear first; what it said itself has to be said again."""
        learned = self._learned(peer)
        if learned:
            self._stale[peer] = {_key(message): message for message in learned}
        if peer not in self._neighbours:
            self._leaving.cancel(peer)  # what it does not say again is withdrawn when it has said all
            return []
        self._telling.forgotten_by(peer)
        return [*self._routing.announce(peer), *self._telling.marks(peer)]

    def _tell_on(self) -> None:
        for neighbour in self._neighbours:
            session = self._sessions[neighbour]
            if session.peer_incarnation:
                for mark in self._telling.marks(neighbour):
                    session.say(mark, self._turn.effects)

    def _learned(self, peer: str) -> list[Control]:
        return list(self._routing.learned(peer)) if peer in self._neighbours else self._registry.withdrawals(peer)

    def _peer_has_told_all(self, peer: str) -> None:
        stale = self._stale.pop(peer, {})
        if peer in self._neighbours:
            for message in stale.values():
                self._withdraw(peer, _withdrawal(message))
            self._telling.synced(peer)
        elif stale:
            self._leave(peer, [(kind, id) for kind, id, _ in stale])
        self._synchronised()

    def _synchronised(self) -> None:
        """More is known of what neighbours have and want."""
        self._tell_on()
        self._traffic.let_go()
        if self._settlement is not None:
            self._settlement.synchronised()

    def _outlived_by(self, incarnation: int) -> None:
        """Others know a later incarnation of this broker."""
        if incarnation < INCARNATIONS_MAX:  # nothing but nonsense is beyond
            self._turn.effects.append(Restart(incarnation))

    # ---- links that fail and work again

    def _link_works(self, neighbour: str) -> None:
        self._pulse.lives(neighbour)
        self._traffic.listens = self._pulse.listens
        self._tell(self._routing.link_up(neighbour))
        self._traffic.look_again()

    def _link_fails(self, neighbour: str) -> None:
        self._tell(self._routing.link_down(neighbour))
        for what, custody in self._sessions[neighbour].take_back(self._turn.effects):
            self._traffic.go_on(what, neighbour, custody)
        self._traffic.look_again()

    def _was_away(self, away_s: float) -> None:
        """Nothing has happened here for too long: the broker was paused, and its neighbours may have given it up."""
        self._traffic.was_away(away_s)
        if not self._routing.watches_links:
            return
        there = [neighbour for neighbour in self._neighbours if self._sessions[neighbour].established]
        self._pulse.listen(there, self._turn.now_s)
        self._traffic.listens = self._pulse.listens
        for neighbour in there:
            self._link_fails(neighbour)

    def _left(self, stimulus: PeerLeft) -> None:
        peer = stimulus.peer
        session = self._sessions.get(peer)
        if session is None:
            return
        session.disconnect()
        if peer in self._neighbours:
            taken = session.take_back([])
            del self._sessions[peer], self._neighbours[peer]
            self._telling.remove(peer)
            self._pulse.forget(peer)
            self._traffic.listens = self._pulse.listens
            self._tell(self._routing.remove_neighbour(peer))
            self._traffic.links_change()
            self._tell_on()
            for what, custody in taken:
                if self._routing.watches_links:
                    self._traffic.go_on(what, peer, custody)
                elif not isinstance(what, Control):
                    self._traffic.redirect(what, custody)
        else:
            del self._sessions[peer]
            self._leave(peer, self._registry.said(peer))
        self._stale.pop(peer, None)
        self._debts.forget(session)
        self._patience.forget(session)
        session.abandon()
        self._traffic.let_go()
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
        if peer in self._neighbours or self._registry.take(peer, message, self._turn.effects):
            self._heard(message, peer)

    # ---- acknowledgements, repetition and patience

    def _watch(self) -> None:
        debts, config, timers = self._debts, self.config.session, self._timers
        if debts.now:
            debts.pay(self._turn.effects)
        if self._traffic.has_orphans:
            self._set_timer(ORPHANS, _ORPHANS_S)
        if debts.soon:
            self._set_timer(ACKNOWLEDGE_CONTROL, 0.0)
        if debts.later and ACKNOWLEDGE not in timers:
            self._set_timer(ACKNOWLEDGE, config.acknowledge_delay_s)
        if config.resend_s is not None:
            self._set_timer(RESEND, config.resend_s)
        if self._patience.needed:
            for name, delay_s in self._patience.looks():
                self._set_timer(name, delay_s)
        if self._pulse.beat_s is not None:
            self._set_timer(PULSE, self._pulse.beat_s)

    def _timer(self, stimulus: TimerFired) -> None:
        name = stimulus.name
        late_s = self._turn.now_s - self._timers.pop(name, self._turn.now_s)
        if name == ACKNOWLEDGE:
            self._debts.pay_all(self._turn.effects)
        elif name == ACKNOWLEDGE_CONTROL:
            self._debts.pay_soon(self._turn.effects)
        elif name == ORPHANS:
            self._traffic.retry_orphans()
        elif name == RESEND:
            for session in self._sessions.values():
                session.resend(self._turn.effects)
        elif name in (PATIENCE, PRESSED):
            if late_s > _LATE_S:
                self._patience.was_away(late_s)
            for session, why in self._patience.look(name, self._turn.now_s):
                self._turn.effects.append(Refuse(session.peer, "slow-consumer", why, session.unsettled_rows()))
                self._left(PeerLeft(session.peer))
        elif name == PULSE:
            self._beat()
        elif name == LEAVE:
            self._withdraw_slice()
        else:
            self._desk.timer(name)

    def _beat(self) -> None:
        """Let neighbours hear from us, and see who has not been heard."""
        if not self._routing.watches_links:
            self._telling.tick()
            self._synchronised()
            self._tell(self._routing.beat())
            self._traffic.give_up()
            if self._settlement is not None:
                self._settlement.expire(self._turn.now_s - self.config.unreachable_s)
            return
        for neighbour in self._neighbours:
            self._sessions[neighbour].acknowledge(self._turn.effects, ahead=True)
        for neighbour in self._pulse.fallen_silent(list(self._neighbours), self._turn.now_s):
            self._link_fails(neighbour)
        if self._pulse.stop_listening(self._turn.now_s):
            self._traffic.listens = False
            self._traffic.look_again()
        self._tell(self._routing.beat())
        self._traffic.give_up()

    def _set_timer(self, name: str, delay_s: float) -> None:
        if name not in self._timers:
            self._timers[name] = at_s = self._turn.now_s + delay_s
            self._turn.effects.append(SetTimer(name, at_s))


def _telling(routing: Routing, ticks: bool) -> Telling:
    if routing.watches_links:
        return TellingByRouting()
    return Telling() if routing.acyclic else TellingInCycles(ticks)


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
