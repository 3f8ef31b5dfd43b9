"""The broker core: a stimulus goes in with the time, a list of effects comes out.

What holds at all times: a publication that came in stays unsettled at its sender until every copy of it that went on
is settled, so that whoever crashes, somebody still has it; what clients said is in the journal before it is
acknowledged; and publications are routed only when all neighbours in other directions have told what they want.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from overweave.broker.desk import Desk
from overweave.broker.patience import PATIENCE, PRESSED, Patience
from overweave.broker.pulse import Pulse
from overweave.broker.registry import Journal, Registry, kind_of
from overweave.broker.seen import Seen
from overweave.broker.session import Custody, Debts, Session
from overweave.broker.story import Step, Story
from overweave.broker.telling import Telling, TellingByRouting, TellingInCycles
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
from overweave.contract.modules import Heard, Module, Passed
from overweave.contract.stimuli import (
    FrameArrived,
    LoadMeasured,
    PeerConnected,
    PeerDisconnected,
    PeerLeft,
    Stimulus,
    TimerFired,
)
from overweave.errors import InvalidInput
from overweave.language.headers import Priority
from overweave.language.messages import Advertise, Control, Unadvertise, Unsubscribe
from overweave.routing.base import Forward, Routing, Send

ACKNOWLEDGE, RESEND, PULSE = "acknowledge", "resend", "pulse"
#: So many sessions with neighbours have numbers of their own in a life of a broker, each of which may begin anew so often.
_SESSIONS_MAX, _ANEW_MAX = 1 << 20, 1 << 8


class _Held(NamedTuple):
    """What waits until it is known where it goes: who sent it, who keeps it, and since when."""

    what: Batch | Control
    peer: str
    custody: Custody | None
    since_s: float
    #: Whether it was routed before.
    again: bool = False


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
        self._telling = _telling(routing)
        self._pulse = Pulse(self.config, routing.watches_links)
        #: What a peer said before it came back, and has not said again.
        self._stale: dict[str, dict[tuple[str, str, str | None], Control]] = {}
        self._held: deque[_Held] = deque()
        #: Duplicates that wait for the copies that came first, and since when: after crashes they might do so in a circle.
        self._following: deque[tuple[float, Custody, Custody]] = deque()
        self._seen = Seen(2 * self.config.session.window)
        self._timers: set[str] = set()
        self._patience = Patience(self.config)
        self._story = Story(self.config.story_length)
        self._publications_in = self._publications_out = self._deliveries = self._duplicates = 0
        self._control_in = self._control_out = 0
        self._desk = Desk(id, modules or {}, self._module_says, self._module_publishes)
        self._has_modules = bool(modules)
        #: Whether somebody wants to know of each batch where it goes.
        self._observed = self._story.length > 0 or self._desk.watches_passed
        self._doors = {
            TimerFired: self._timer,
            PeerConnected: self._connected,
            PeerDisconnected: self._disconnected,
            PeerLeft: self._left,
            LoadMeasured: self._desk.measured,
        }
        self._effects: list[Effect] = []
        self._now_s = 0.0
        for neighbour in neighbours:
            self._add_neighbour(neighbour)
        for client, message in self._registry.restore(journal or {}):
            if client not in self._sessions:
                self._add_client(client)
            self._heard(message, client)
        self._started = False

    # ---- the door, and what can be looked at

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one door: whatever happens to the broker happens here."""
        self._now_s = now_s
        effects = self._effects = []
        if self._has_modules:
            self._desk.at(now_s, effects)
            if not self._started:
                self._desk.start(self._routing.overlay())
                self._started = True
        if isinstance(stimulus, FrameArrived):
            self._frame(stimulus.peer, stimulus.frame)
        else:
            self._doors[type(stimulus)](stimulus)  # type: ignore[operator]
        self._watch()
        return effects

    def statistics(self) -> Statistics:
        """A snapshot of what was done and is held."""
        return Statistics(
            publications_in=self._publications_in,
            publications_out=self._publications_out,
            deliveries=self._deliveries,
            duplicates=self._duplicates,
            control_in=self._control_in,
            control_out=self._control_out,
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
            self._pulse.heard(peer, self._now_s)
        if isinstance(frame, BatchFrame):
            batch = frame.batch
            count = batch.count
            if session.accepts(frame, count, self._effects):
                self._publications(batch, peer, Custody(session, frame.sequence, count))
        elif isinstance(frame, WordFrame):
            if session.accepts(frame, 1, self._effects):
                custody = Custody(session, frame.sequence, 1)
                self._word(peer, frame.word, custody)
                custody.release()
        elif isinstance(frame, Acknowledgement):
            session.acknowledgement(frame, self._effects)
        elif isinstance(frame, Hello):
            was_established = session.established
            session.hello(frame, self._greeting(peer) if session.is_new(frame) else (), self._effects)
            if session.established and not was_established and peer in self._neighbours:
                self._link_works(peer)

    def _word(self, peer: str, word: Word, custody: Custody) -> None:
        if isinstance(word, Announced):
            self._telling.announced(peer)
            self._tell_on()
            self._let_go()
        elif isinstance(word, Synced):
            self._peer_has_told_all(peer)
        else:
            self._control(peer, word, custody)

    # ---- publications

    def _publications(self, batch: Batch, peer: str, custody: Custody) -> None:
        if self._has_modules and self._is_control(batch):
            self._control_in += batch.count
        else:
            self._publications_in += batch.count
        here, passing = self._routing.arriving(batch, peer if peer in self._neighbours else None)
        if passing is not None:
            custody.hold()
            if here is not None and self._desk.watches_passed:
                self._route_apart(passing, here, peer, custody)
            else:
                self._route_or_hold(passing, peer, custody)
        if here is None:
            custody.release()
            return
        new = here.new(self._seen)
        if new is not None:
            self._follow_first_copies(here, new, peer, custody)
            if not len(new):
                custody.release()
                return
            here = here.take(new)
        self._route_or_hold(here, peer, custody)

    def _route_apart(self, passing: Batch, here: Batch, peer: str, custody: Custody) -> None:
        """Route what passes so that modules see each publication come once: those that are looked at here too, they see then."""
        known = set(here.identities())
        only = np.array([row for row, identity in enumerate(passing.identities()) if identity not in known], np.int64)
        both = np.setdiff1d(np.arange(passing.count), only)
        for rows, again in ((only, False), (both, True)):
            if len(rows):
                custody.hold()
                some = passing.take(rows)
                self._route_or_hold(some.hopped() if again else some, peer, custody, again)
        custody.release()

    def _follow_first_copies(self, batch: Batch, new: NDArray[np.int64], peer: str, custody: Custody) -> None:
        """Keep duplicates unsettled as long as the copies that came first are; they are few, so the search may take long.

        A copy from a neighbour does not wait for those that only passed here: it may be one of them, come back.
        """
        known = set(batch.identities()) - set(batch.take(new).identities() if len(new) else ())
        self._duplicates += len(known)
        waiting = [entry for session in self._sessions.values() for entry in session.batches()]
        held = [(held.what, held.custody) for held in self._held if not isinstance(held.what, Control)]
        for other, first in [*waiting, *held]:
            if first is None or first is custody or (other.is_bound() and peer in self._neighbours):
                continue
            if not known.isdisjoint(other.identities()) and custody.follow(first):
                self._following.append((self._now_s, custody, first))
        while self._following and self._following[0][2].done:
            self._following.popleft()

    def _route_or_hold(self, batch: Batch, peer: str, custody: Custody | None, again: bool = False) -> None:
        if not self._telling.unsynced or self._telling.knows_all_but(peer):
            self._route(batch, peer, custody, again)
        else:
            self._held.append(_Held(batch, peer, custody, self._now_s, again))

    def _route(self, batch: Batch, peer: str, custody: Custody | None, again: bool) -> None:
        sessions, neighbours, effects = self._sessions, self._neighbours, self._effects
        after, from_neighbour = batch if again else batch.hopped(), peer in neighbours
        try:
            forwards = self._routing.route(after, peer if from_neighbour else None)
        except InvalidInput as error:
            self._effects.append(Refuse(peer, "not-advertised", str(error)))
            forwards = []
        if self._observed:
            self._observe(Passed(batch, peer, forwards, again), after)
        if after.ttl <= 0:
            forwards = list(self._without_the_tired(forwards))
        if custody is not None:
            custody.spread(len(forwards))
        # What is under way never waits for room between brokers: they might wait for each other in a circle.
        under_way = again or from_neighbour
        for to, some in forwards:
            if to is None:
                self._hold(some, peer, custody)
                continue
            session = sessions.get(to)
            if session is None:
                self._desk.receive(to, some)
                if custody is not None:
                    custody.release()
                continue
            if to not in neighbours:
                session.send(some, custody, effects)
                self._deliveries += some.count
                if self._patience.needed:
                    self._patience.watch(session, self._now_s)
                continue
            session.send(some, custody, effects, under_way)
            if self._has_modules and self._is_control(some):
                self._control_out += some.count
            else:
                self._publications_out += some.count

    def _observe(self, passed: Passed, after: Batch) -> None:
        """Show where a batch goes to those who want to know."""
        if self._story.length and not passed.again:
            self._story.routed(self._now_s, passed.peer, after, passed.to)
        if self._desk.watches_passed:
            self._desk.watch(passed)

    def _hold(self, what: Batch | Control, peer: str, custody: Custody | None) -> None:
        """Keep what has nowhere to go at present."""
        self._held.append(_Held(what, peer, custody, self._now_s, again=True))

    def _is_control(self, batch: Batch) -> bool:
        """Whether modules talk to each other; where there are none, nobody needs to ask."""
        return batch.priority() is Priority.CONTROL

    def _without_the_tired(self, forwards: list[Forward]) -> Iterator[Forward]:
        """Publications that took too many hops go to clients only."""
        for to, some in forwards:
            alive = some.alive() if to in self._neighbours else some
            if alive is not None:
                yield to, alive

    # ---- control

    def _control(self, peer: str, message: Control, custody: Custody) -> None:
        self._control_in += 1
        stale = self._stale.get(peer)
        if stale:
            stale.pop(_key(message), None)
        if peer in self._neighbours or self._registry.take(peer, message, self._effects):
            self._heard(message, peer, custody)
            if self._routing.watches_links:
                self._look_again()

    def _heard(self, message: Control, peer: str, custody: Custody | None = None) -> None:
        """Take in what a peer says, and tell on what others must know."""
        if self._story.length:
            self._story.heard(self._now_s, peer, message)
        if self._has_modules:
            self._desk.watch(Heard(message, peer, peer not in self._neighbours))
        self._tell(self._routing.handle(message, peer), peer, custody, message)

    def _tell(self, sends: Iterable[Send], peer: str = "", custody: Custody | None = None, heard: Control | None = None) -> None:
        """Send words; the copies of what was ``heard`` that are addressed stay with their sender until they are settled."""
        for neighbour, message in sends:
            keeper = custody if is_addressed(message) and type(message) is type(heard) and message.id == heard.id else None
            if keeper is not None:
                keeper.hold()
            if neighbour is None:
                self._hold(message, peer, keeper)
                continue
            self._control_out += 1
            self._sessions[neighbour].say(message, self._effects, keeper)

    def _module_says(self, module: str, message: Control) -> None:
        self._tell(self._routing.handle(message, module))

    def _module_publishes(self, module: str, batch: Batch) -> None:
        for identity in batch.identities():
            self._seen.add(*identity)
        self._route_or_hold(batch, module, None)

    # ---- peers that come, come back and go

    def _connected(self, stimulus: PeerConnected) -> None:
        peer = stimulus.peer
        if peer not in self._sessions:
            if stimulus.client:
                self._add_client(peer)
            else:
                self._add_neighbour(peer)
        elif stimulus.client:
            self._patience.came_back(self._sessions[peer], self._now_s)
        self._sessions[peer].connect(self._effects)

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
                    session.say(mark, self._effects)

    def _learned(self, peer: str) -> list[Control]:
        return list(self._routing.learned(peer)) if peer in self._neighbours else self._registry.withdrawals(peer)

    def _peer_has_told_all(self, peer: str) -> None:
        for message in self._stale.pop(peer, {}).values():
            self._withdraw(peer, _withdrawal(message))
        if peer in self._neighbours:
            self._telling.synced(peer)
        self._tell_on()
        self._let_go()

    def _let_go(self) -> None:
        """Route what was held, as far as it is known now where it goes."""
        held, self._held = self._held, deque()
        for entry in held:
            before = len(self._held)
            self._go_on(entry.what, entry.peer, entry.custody, entry.again)
            if len(self._held) > before:
                self._held[-1] = self._held[-1]._replace(since_s=entry.since_s)

    def _go_on(self, what: Batch | Control, peer: str, custody: Custody | None, again: bool) -> None:
        """What was held, or went a way that does not lead on, goes where it can."""
        if not isinstance(what, Control):
            self._route_or_hold(what, peer, custody, again)
            return
        self._tell(self._routing.handle(what, peer), peer, custody, what)
        if custody is not None:
            custody.release()

    def _give_up(self) -> None:
        """Let go of what is meant for brokers that could not be reached for too long, and of what waits as long for others."""
        late_s = self._now_s - self.config.unreachable_s
        while self._following and self._following[0][0] < late_s:
            _, custody, first = self._following.popleft()
            custody.leave(first)
        for entry in [entry for entry in self._held if entry.again and entry.since_s < late_s and _is_bound(entry.what)]:
            self._held.remove(entry)
            if entry.custody is not None:
                entry.custody.release()

    # ---- links that fail and work again

    def _link_works(self, neighbour: str) -> None:
        self._pulse.lives(neighbour)
        self._tell(self._routing.link_up(neighbour))
        self._look_again()

    def _link_fails(self, neighbour: str) -> None:
        self._tell(self._routing.link_down(neighbour))
        for what, custody in self._sessions[neighbour].take_back(self._effects):
            self._go_on(what, neighbour, custody, again=True)
        self._look_again()

    def _look_again(self) -> None:
        """Links, or what others want, have changed: some of what is under way may go where it could not."""
        instead = self._routing.instead()
        if instead is not None:
            self._go_instead(instead)
        if self._held:
            self._let_go()

    def _go_instead(self, instead: Callable[[Batch], list[Forward]]) -> None:
        sent = [entry for neighbour in self._neighbours for entry in self._sessions[neighbour].batches()]
        held = [(held.what, held.custody) for held in self._held if not isinstance(held.what, Control)]
        for batch, custody in [*sent, *held]:
            if custody is None or not batch.is_bound():
                continue
            for to, some in instead(batch):
                custody.hold()
                if to is None:
                    self._hold(some, self.id, custody)
                else:
                    self._sessions[to].send(some, custody, self._effects, under_way=True)
                    self._publications_out += some.count

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
            self._tell(self._routing.remove_neighbour(peer))
            self._tell_on()
            for what, custody in taken:
                self._go_on(what, peer, custody, again=True)
        else:
            for message in self._learned(peer):
                self._withdraw(peer, message)
            self._registry.remove(peer)
            del self._sessions[peer]
        self._stale.pop(peer, None)
        self._debts.forget(session)
        self._patience.forget(session)
        session.abandon()
        self._let_go()

    def _withdraw(self, peer: str, message: Control) -> None:
        if peer in self._neighbours or self._registry.take(peer, message, self._effects):
            self._heard(message, peer)

    # ---- acknowledgements, repetition and patience

    def _watch(self) -> None:
        debts, config, timers = self._debts, self.config.session, self._timers
        if debts.now:
            debts.pay(self._effects)
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
        self._timers.discard(name)
        if name == ACKNOWLEDGE:
            self._debts.pay_all(self._effects)
        elif name == RESEND:
            for session in self._sessions.values():
                session.resend(self._effects)
        elif name in (PATIENCE, PRESSED):
            for session, why in self._patience.look(name, self._now_s):
                self._effects.append(Refuse(session.peer, "slow-consumer", why))
                self._left(PeerLeft(session.peer))
        elif name == PULSE:
            self._beat()
        else:
            self._desk.timer(name)

    def _beat(self) -> None:
        """Let neighbours hear from us, and see who has not been heard."""
        for neighbour in self._neighbours:
            self._sessions[neighbour].acknowledge(self._effects, ahead=True)
        for neighbour in self._pulse.fallen_silent(list(self._neighbours), self._now_s):
            self._link_fails(neighbour)
        self._give_up()

    def _set_timer(self, name: str, delay_s: float) -> None:
        if name not in self._timers:
            self._timers.add(name)
            self._effects.append(SetTimer(name, self._now_s + delay_s))


def _telling(routing: Routing) -> Telling:
    if routing.watches_links:
        return TellingByRouting()
    return Telling() if routing.acyclic else TellingInCycles()


def _is_bound(what: Batch | Control) -> bool:
    return isinstance(what, Control) or what.is_bound()


def _key(message: Control) -> tuple[str, str, str | None]:
    return kind_of(message), message.id, message.header.tree


def _withdrawal(message: Control) -> Control:
    if isinstance(message, Advertise | Unadvertise):
        return Unadvertise(message.id, message.header)
    return Unsubscribe(message.id, message.header)
