"""The broker core: a stimulus goes in with the time, a list of effects comes out.

What holds at all times: a publication that came in stays unsettled at its sender until every copy of it that went on
is settled, so that whoever crashes, somebody still has it; what clients said is in the journal before it is
acknowledged; and publications are routed only when all neighbours in other directions have told what they want.
"""

from collections.abc import Iterable, Mapping

import msgspec

from overweave.broker.custody import Custody
from overweave.broker.desk import Desk
from overweave.broker.patience import PATIENCE, PRESSED
from overweave.broker.pulse import Pulse
from overweave.broker.registry import Journal, Registry, kind_of
from overweave.broker.session import Debts, Session
from overweave.broker.story import Step
from overweave.broker.telling import Telling, TellingByRouting, TellingInCycles
from overweave.broker.traffic import Traffic
from overweave.broker.turn import Turn
from overweave.contract.batches import Batch
from overweave.contract.config import BrokerConfig
from overweave.contract.effects import Effect, Refuse, SetTimer
from overweave.contract.frames import (
    Acknowledgement,
    Announced,
    BatchFrame,
    Frame,
    Hello,
    Synced,
    Word,
    WordFrame,
    is_addressed,
)
from overweave.contract.modules import Heard, Module
from overweave.contract.stimuli import (
    FrameArrived,
    LoadMeasured,
    PeerConnected,
    PeerDisconnected,
    PeerLeft,
    Stimulus,
    TimerFired,
)
from overweave.language.messages import Advertise, Control, Unadvertise, Unsubscribe
from overweave.routing.base import Routing, Send

ACKNOWLEDGE, RESEND, PULSE = "acknowledge", "resend", "pulse"
#: So many sessions with neighbours have numbers of their own in a life of a broker, each of which may begin anew so often.
_SESSIONS_MAX, _ANEW_MAX = 1 << 20, 1 << 8
#: A timer that fires so late shows that the broker was paused, or as busy: then clients could not be heard either.
_LATE_S = 0.5


class Statistics(msgspec.Struct, frozen=True):
    """What a broker has done so far, and what it holds now. Publications are counted by rows, those of modules as control."""

    publications_in: int
    publications_out: int
    deliveries: int
    duplicates: int
    control_in: int
    control_out: int
    tables: dict[str, int]
    unsettled: dict[str, int]


class BrokerCore:
    """One broker; ``journal`` is what an earlier incarnation kept."""

    def __init__(
        self,
        id: str,
        routing: Routing,
        neighbours: Iterable[str],
        config: BrokerConfig | None = None,
        incarnation: int = 1,
        journal: Journal | None = None,
        modules: Mapping[str, Module] | None = None,
    ) -> None:
        self.id = id
        self.config = config or BrokerConfig()
        self._routing = routing
        self._incarnation = incarnation
        self._debts = Debts(ahead=not routing.acyclic)
        self._sessions: dict[str, Session] = {}
        self._neighbours: dict[str, None] = {}
        self._sessions_made = 0
        self._registry = Registry()
        routing.begin(incarnation)
        self._pulse = Pulse(self.config, routing.watches_links or routing.wants_ticks)
        self._telling = _telling(routing, ticks=self._pulse.beat_s is not None)
        #: What a peer said before it came back, and has not said again.
        self._stale: dict[str, dict[tuple[str, str, str | None], Control]] = {}
        #: When each timer that is set is due.
        self._timers: dict[str, float] = {}
        self._control_in = self._control_out = 0
        self._turn = Turn()
        self._desk = Desk(id, modules or {}, self._turn, self._module_says, self._module_publishes, incarnation)
        self._traffic = Traffic(
            self._turn, self.config, routing, self._telling, self._sessions, self._neighbours, self._desk, self._tell_again
        )
        self._patience, self._story = self._traffic.patience, self._traffic.story
        self._doors = {
            TimerFired: self._timer,
            PeerConnected: self._connected,
            PeerDisconnected: self._disconnected,
            PeerLeft: self._left,
            LoadMeasured: self._desk.measured,
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
            deliveries=traffic.deliveries,
            duplicates=traffic.duplicates,
            control_in=self._control_in + traffic.control_in,
            control_out=self._control_out + traffic.control_out,
            tables=self._routing.sizes(),
            unsettled={peer: session.unsettled() for peer, session in self._sessions.items() if session.unsettled()},
        )

    def compared_with(self, peer: str, batch: Batch) -> int:
        """How many subscriptions each publication from a peer is compared with."""
        return self._routing.compared_with(batch, peer if peer in self._neighbours else None)

    def unsettled_rows(self, peer: str) -> int:
        """How many rows of a peer are not settled here: as many as it may still have to send again."""
        session = self._sessions.get(peer)
        return 0 if session is None else session.unsettled_in()

    def clients(self) -> list[str]:
        """All clients, connected or not."""
        return self._registry.clients()

    def story(self, id: str) -> list[Step]:
        """All that happened here to one advertisement, subscription or publication (``PUBLISHER:SEQUENCE``), as far as kept."""
        return self._story.of(id)

    def validate(self) -> None:
        """Check what must always hold."""
        for session in self._sessions.values():
            session.validate()
        self._registry.validate()

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
                custody = Custody(session, frame.sequence, 1)
                self._word(peer, frame.word, custody)
                custody.release()
        elif isinstance(frame, Acknowledgement):
            session.acknowledgement(frame, self._turn.effects)
        elif isinstance(frame, Hello):
            was_established = session.established
            session.hello(frame, self._greeting(peer) if session.is_new(frame) else (), self._turn.effects)
            if session.established and not was_established and peer in self._neighbours:
                self._link_works(peer)

    def _word(self, peer: str, word: Word, custody: Custody) -> None:
        if isinstance(word, Announced):
            self._telling.announced(peer)
            self._tell_on()
            self._traffic.let_go()
        elif isinstance(word, Synced):
            self._peer_has_told_all(peer)
        else:
            self._control(peer, word, custody)

    # ---- control

    def _control(self, peer: str, message: Control, custody: Custody) -> None:
        self._control_in += 1
        stale = self._stale.get(peer)
        if stale:
            stale.pop(_key(message), None)
        if peer in self._neighbours:
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
        if self._registry.is_other(client, message):
            self._heard(_withdrawal(message), client)
        if self._registry.take(client, message, self._turn.effects):
            self._heard(message, client, custody)

    def _heard(self, message: Control, peer: str, custody: Custody | None = None) -> None:
        """Take in what a peer says, and tell on what others must know."""
        if self._story.length:
            self._story.heard(self._turn.now_s, peer, message)
        if self._desk.staffed:
            self._desk.watch(Heard(message, peer, peer not in self._neighbours))
        self._tell(self._routing.handle(message, peer), peer, custody, message)

    def _tell(self, sends: Iterable[Send], peer: str = "", custody: Custody | None = None, heard: Control | None = None) -> None:
        """Send words; the copies of what was ``heard`` that are addressed stay with their sender until they are settled."""
        for neighbour, message in sends:
            keeper = custody if is_addressed(message) and type(message) is type(heard) and message.id == heard.id else None
            if keeper is not None:
                keeper.hold()
            if neighbour is None:
                self._traffic.hold(message, peer, keeper)
                continue
            self._control_out += 1
            self._sessions[neighbour].say(message, self._turn.effects, keeper)

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
        for message in self._stale.pop(peer, {}).values():
            self._withdraw(peer, _withdrawal(message))
        if peer in self._neighbours:
            self._telling.synced(peer)
        self._tell_on()
        self._traffic.let_go()

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
            taken = session.take_back([]) if self._routing.watches_links else []
            del self._sessions[peer], self._neighbours[peer]
            self._telling.remove(peer)
            self._pulse.forget(peer)
            self._traffic.listens = self._pulse.listens
            self._tell(self._routing.remove_neighbour(peer))
            self._traffic.links_change()
            self._tell_on()
            for what, custody in taken:
                self._traffic.go_on(what, peer, custody)
        else:
            for message in self._learned(peer):
                self._withdraw(peer, message)
            self._registry.remove(peer)
            del self._sessions[peer]
        self._stale.pop(peer, None)
        self._debts.forget(session)
        self._patience.forget(session)
        session.abandon()
        self._traffic.let_go()

    def _withdraw(self, peer: str, message: Control) -> None:
        if peer in self._neighbours or self._registry.take(peer, message, self._turn.effects):
            self._heard(message, peer)

    # ---- acknowledgements, repetition and patience

    def _watch(self) -> None:
        debts, config, timers = self._debts, self.config.session, self._timers
        if debts.now:
            debts.pay(self._turn.effects)
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
        elif name == RESEND:
            for session in self._sessions.values():
                session.resend(self._turn.effects)
        elif name in (PATIENCE, PRESSED):
            if late_s > _LATE_S:
                self._patience.was_away(late_s)
            for session, why in self._patience.look(name, self._turn.now_s):
                self._turn.effects.append(Refuse(session.peer, "slow-consumer", why))
                self._left(PeerLeft(session.peer))
        elif name == PULSE:
            self._beat()
        else:
            self._desk.timer(name)

    def _beat(self) -> None:
        """Let neighbours hear from us, and see who has not been heard."""
        if not self._routing.watches_links:
            self._telling.tick()
            self._tell_on()
            self._tell(self._routing.beat())
            self._traffic.give_up()
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


def _key(message: Control) -> tuple[str, str, str | None]:
    return kind_of(message), message.id, message.header.tree


def _withdrawal(message: Control) -> Control:
    if isinstance(message, Advertise | Unadvertise):
        return Unadvertise(message.id, message.header)
    return Unsubscribe(message.id, message.header)
