"""The broker core: a stimulus goes in with the time, a list of effects comes out.

What holds at all times: a publication that came in stays unsettled at its sender until every copy of it that went on
is settled, so that whoever crashes, somebody still has it; what clients said is in the journal before it is
acknowledged; and publications are routed only when all neighbours in other directions have told what they want.
"""

from collections import deque
from collections.abc import Iterable, Mapping

import msgspec

from overweave.broker.seen import Seen
from overweave.broker.session import Custody, Session
from overweave.broker.telling import Telling
from overweave.contract.config import BrokerConfig
from overweave.contract.effects import Effect, Keep, Note, Refuse, SendFrame, SetTimer
from overweave.contract.frames import Acknowledgement, Announced, Content, Data, Frame, Hello, Synced
from overweave.contract.records import Record
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, PeerLeft, Stimulus, TimerFired
from overweave.errors import InvalidInput
from overweave.language.codec import encode_publication
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.routing.base import Origin, Routing

ACKNOWLEDGE, RESEND = "acknowledge", "resend"
#: The journal: what a client said, by kind and id, with the client's name.
Journal = Mapping[tuple[str, str], tuple[str, Filter]]


class Statistics(msgspec.Struct, frozen=True):
    """What a broker has done so far, and what it holds now."""

    publications_in: int
    publications_out: int
    deliveries: int
    pure_forwards: int
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
    ) -> None:
        self.id = id
        self.config = config or BrokerConfig()
        self._routing = routing
        self._incarnation = incarnation
        self._dirty: dict[Session, None] = {}
        self._sessions: dict[str, Session] = {}
        self._neighbours: dict[str, None] = {}
        self._telling = Telling()
        #: What a peer said before it came back, and has not said again.
        self._stale: dict[str, dict[tuple[str, str, str | None], Control]] = {}
        #: Publications that wait until we know where they go.
        self._held: deque[tuple[Publish, str, Custody]] = deque()
        self._clients: dict[str, dict[tuple[str, str], None]] = {}
        self._client_of: dict[str, str] = {}
        self._seen = Seen()
        self._in_custody: dict[tuple[str, int], Custody] = {}
        self._timers: set[str] = set()
        self._counts = dict.fromkeys(
            ("publications_in", "publications_out", "deliveries", "pure_forwards", "duplicates", "control_in", "control_out"), 0
        )
        self._effects: list[Effect] = []
        self._now_s = 0.0
        for neighbour in neighbours:
            self._add_neighbour(neighbour)
        for (kind, key), value in (journal or {}).items():
            self._restore(kind, key, value)

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one door: whatever happens to the broker happens here."""
        self._now_s = now_s
        self._effects = []
        match stimulus:
            case FrameArrived():
                self._frame(stimulus.peer, stimulus.frame)
            case TimerFired(name):
                self._timer(name)
            case PeerConnected(peer, client):
                self._connected(peer, client)
            case PeerDisconnected(peer):
                self._sessions[peer].disconnect()
            case PeerLeft(peer):
                self._left(peer)
        self._acknowledge_and_watch()
        return self._effects

    def statistics(self) -> Statistics:
        """A snapshot of what was done and is held."""
        return Statistics(
            **self._counts,
            tables=self._routing.sizes(),
            unsettled={peer: session.unsettled() for peer, session in self._sessions.items() if session.unsettled()},
        )

    def subscriptions(self) -> int:
        """How many subscriptions a publication is matched against."""
        return self._routing.sizes().get("subscriptions", 0)

    def validate(self) -> None:
        """Check what must always hold."""
        for session in self._sessions.values():
            session.validate()
        assert all(client in self._clients for client in self._client_of.values())

    # ---- frames

    def _frame(self, peer: str, frame: Frame) -> None:
        session = self._sessions.get(peer)
        if session is None:
            return
        match frame:
            case Data():
                custody = session.data(frame)
                if custody is not None:
                    self._content(peer, frame.content, custody)
            case Acknowledgement():
                self._send(peer, session.acknowledgement(frame))
            case Hello():
                greeting = self._greeting(peer) if session.is_new(frame) else ()
                self._send(peer, session.hello(frame, greeting))

    def _content(self, peer: str, content: Content, custody: Custody) -> None:
        if isinstance(content, Publish):
            self._publication(content, peer, custody)
            return
        if isinstance(content, Announced):
            self._telling.announced(peer)
            self._tell_on()
        elif isinstance(content, Synced):
            self._peer_has_told_all(peer)
        else:
            self._control(peer, content)
        custody.release()

    # ---- publications

    def _publication(self, publish: Publish, peer: str, custody: Custody) -> None:
        self._counts["publications_in"] += 1
        header = publish.header
        identity = (header.publisher, header.sequence)
        if not self._seen.add(*identity):
            self._counts["duplicates"] += 1
            first = self._in_custody.get(identity)
            if first is None or first.done:
                custody.release()
            else:
                custody.follow(first)
            return
        self._in_custody[identity] = custody
        if len(self._in_custody) > 2 * self.config.session.window:
            self._in_custody = {key: kept for key, kept in self._in_custody.items() if not kept.done}
        self._route_or_hold(publish, peer, custody)

    def _route_or_hold(self, publish: Publish, peer: str, custody: Custody) -> None:
        if self._telling.knows_all_but(peer):
            self._route(publish, peer, custody)
        else:
            self._held.append((publish, peer, custody))

    def _route(self, publish: Publish, peer: str, custody: Custody) -> None:
        origin: Origin = peer if peer in self._neighbours else None
        try:
            route = self._routing.route(publish, origin)
        except InvalidInput as error:
            self._effects.append(Refuse(peer, "not-advertised", str(error)))
            custody.release()
            return
        publish = Publish(publish.publication, route.publish.header.hopped(self.id), publish.payload)
        if publish.header.ttl > 0:
            for neighbour in route.neighbours:
                self._counts["publications_out"] += 1
                self._send(neighbour, self._sessions[neighbour].send(publish, custody.hold()))
        clients: dict[str, None] = {}
        for subscription in route.subscriptions:
            clients[self._client_of[subscription]] = None
            self._note(publish, subscription)
        for client in clients:
            self._counts["deliveries"] += 1
            self._send(client, self._sessions[client].send(publish, custody.hold()))
        if not clients:
            self._counts["pure_forwards"] += 1
            self._note(publish, None)
        custody.release()

    def _note(self, publish: Publish, subscription: str | None) -> None:
        if self.config.trace:
            header = publish.header
            client = None if subscription is None else self._client_of[subscription]
            size = len(encode_publication(publish.publication)) + len(publish.payload)
            self._effects.append(
                Note(
                    Record(
                        self.config.run, header.publisher, header.sequence, self.id, subscription, client,
                        header.hops - 1, header.published_at_s, self._now_s, size,
                    )
                )
            )  # fmt: skip

    # ---- control

    def _control(self, peer: str, message: Control) -> None:
        self._counts["control_in"] += 1
        stale = self._stale.get(peer)
        if stale:
            stale.pop(_key(message), None)
        if peer in self._neighbours:
            self._tell(self._routing.handle(message, peer))
        elif self._client_says(peer, message):
            self._tell(self._routing.handle(message, None))

    def _client_says(self, client: str, message: Control) -> bool:
        """Note in the journal what a client says; False when it speaks of what is not its own."""
        kind, id, _ = _key(message)
        owner = self._client_of.get(id)
        if isinstance(message, Advertise | Subscribe):
            if owner not in (None, client):
                self._effects.append(Refuse(client, "id-in-use", f"{kind} {id!r}: expected an id that nobody else uses"))
                return False
            self._client_of[id] = client
            self._clients[client][kind, id] = None
            self._effects.append(Keep((kind, id), (client, message.filter)))
            return True
        if owner != client:
            return False
        del self._client_of[id]
        del self._clients[client][kind, id]
        self._effects.append(Keep((kind, id), None))
        return True

    def _tell(self, sends: Iterable[tuple[str, Control]]) -> None:
        for neighbour, message in sends:
            self._counts["control_out"] += 1
            self._send(neighbour, self._sessions[neighbour].send(message))

    # ---- peers that come, come back and go

    def _connected(self, peer: str, client: bool) -> None:
        if peer not in self._sessions:
            if client:
                self._add_client(peer)
            else:
                self._add_neighbour(peer)
        self._send(peer, self._sessions[peer].connect())

    def _add_neighbour(self, neighbour: str) -> None:
        self._sessions[neighbour] = Session(neighbour, self._incarnation, self.config.session, self._dirty)
        self._neighbours[neighbour] = None
        self._telling.add(neighbour)
        self._routing.add_neighbour(neighbour)

    def _add_client(self, client: str) -> None:
        self._sessions[client] = Session(client, self._incarnation, self.config.session, self._dirty)
        self._clients[client] = {}

    def _greeting(self, peer: str) -> list[Content]:
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
                    self._send(neighbour, session.send(mark))

    def _learned(self, peer: str) -> list[Control]:
        if peer in self._neighbours:
            return list(self._routing.learned(peer))
        said = self._clients[peer]
        return [Unadvertise(id) if kind == "advertisement" else Unsubscribe(id) for kind, id in said]

    def _peer_has_told_all(self, peer: str) -> None:
        for message in self._stale.pop(peer, {}).values():
            gone = _withdrawal(message)
            if peer in self._neighbours:
                self._tell(self._routing.handle(gone, peer))
            else:
                self._withdraw(peer, gone)
        if peer in self._neighbours:
            self._telling.synced(peer)
        self._tell_on()
        self._let_go()

    def _let_go(self) -> None:
        """Route what was held, as far as it is known now where it goes."""
        held, self._held = self._held, deque()
        for publish, peer, custody in held:
            self._route_or_hold(publish, peer, custody)

    def _left(self, peer: str) -> None:
        session = self._sessions.pop(peer, None)
        if session is None:
            return
        session.disconnect()
        if peer in self._neighbours:
            del self._neighbours[peer]
            self._telling.remove(peer)
            self._tell(self._routing.remove_neighbour(peer))
            self._tell_on()
        else:
            for message in self._learned(peer):
                self._withdraw(peer, message)
            del self._clients[peer]
        self._stale.pop(peer, None)
        session.abandon()
        self._let_go()

    def _withdraw(self, client: str, message: Control) -> None:
        if self._client_says(client, message):
            self._tell(self._routing.handle(message, None))

    def _restore(self, kind: str, id: str, value: tuple[str, Filter]) -> None:
        """Take in what an earlier incarnation kept; neighbours hear of it when they are greeted."""
        client, filter = value
        if client not in self._sessions:
            self._add_client(client)
        self._client_of[id] = client
        self._clients[client][kind, id] = None
        message: Control = Advertise(id, filter) if kind == "advertisement" else Subscribe(id, filter)
        self._tell(self._routing.handle(message, None))

    # ---- sessions and timers

    def _send(self, peer: str, frames: Iterable[Frame]) -> None:
        self._effects += [SendFrame(peer, frame) for frame in frames]

    def _acknowledge_and_watch(self) -> None:
        config = self.config.session
        if self._dirty:
            for session in [session for session in self._dirty if session.unacknowledged() >= config.acknowledge_every]:
                self._send(session.peer, session.acknowledge())
                del self._dirty[session]
            if self._dirty:
                self._set_timer(ACKNOWLEDGE, config.acknowledge_delay_s)
        if config.resend_s is not None:
            self._set_timer(RESEND, config.resend_s)

    def _timer(self, name: str) -> None:
        self._timers.discard(name)
        if name == ACKNOWLEDGE:
            for session in self._dirty:
                if session.unacknowledged():
                    self._send(session.peer, session.acknowledge())
            self._dirty.clear()
        elif name == RESEND:
            for peer, session in self._sessions.items():
                self._send(peer, session.resend())

    def _set_timer(self, name: str, delay_s: float) -> None:
        if name not in self._timers:
            self._timers.add(name)
            self._effects.append(SetTimer(name, self._now_s + delay_s))


def _key(message: Control) -> tuple[str, str, str | None]:
    kind = "advertisement" if isinstance(message, Advertise | Unadvertise) else "subscription"
    return kind, message.id, message.header.tree


def _withdrawal(message: Control) -> Control:
    if isinstance(message, Advertise | Unadvertise):
        return Unadvertise(message.id, message.header)
    return Unsubscribe(message.id, message.header)
