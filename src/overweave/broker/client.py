"""The client core: what the client library and the simulator's clients run, as pure as the broker's.

It numbers what it publishes, keeps what its broker has not settled, and says all its advertisements and subscriptions again to
a broker that has forgotten them. Whatever comes twice is handed out once.
"""

from collections.abc import Iterable

from overweave.broker.seen import Seen
from overweave.broker.session import Session
from overweave.contract.config import SessionConfig
from overweave.contract.effects import Deliver, Effect, SendFrame, SetTimer
from overweave.contract.frames import Acknowledgement, Content, Data, Frame, Hello, Synced
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, Stimulus, TimerFired
from overweave.language.headers import Header
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication
from overweave.routing.base import SubscriptionTable

ACKNOWLEDGE, RESEND = "acknowledge", "resend"


class ClientCore:
    """One client of one broker."""

    def __init__(self, id: str, broker: str, config: SessionConfig | None = None, incarnation: int = 1) -> None:
        self.id = id
        self.broker = broker
        self._config = config or SessionConfig()
        self._dirty: dict[Session, None] = {}
        self._session = Session(broker, incarnation, self._config, self._dirty)
        self._said: dict[str, Advertise | Subscribe] = {}
        self._subscriptions = SubscriptionTable()
        self._seen = Seen()
        self._sequence = 0
        self._timers: set[str] = set()

    def say(self, message: Control, now_s: float) -> list[Effect]:
        """Advertise, subscribe, or withdraw either."""
        if isinstance(message, Advertise | Subscribe):
            self._said[message.id] = message
        elif isinstance(message, Unadvertise | Unsubscribe):
            self._said.pop(message.id, None)
        if isinstance(message, Subscribe):
            self._subscriptions.add(message.id, message.filter, None)
        elif isinstance(message, Unsubscribe):
            self._subscriptions.remove(message.id, None)
        return self._finished(self._sent(self._session.send(message)), now_s)

    def publish(self, publication: Publication, now_s: float, payload: bytes = b"") -> list[Effect]:
        """Publish; settled when everybody who wants it has it."""
        header = Header(publisher=self.id, sequence=self._sequence, published_at_s=now_s)
        self._sequence += 1
        return self._finished(self._sent(self._session.send(Publish(publication, header, payload))), now_s)

    def unsettled(self) -> int:
        """How much of what was said is not settled."""
        return self._session.unsettled()

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one door for what happens to the client."""
        effects: list[Effect] = []
        match stimulus:
            case FrameArrived(_, frame):
                effects = self._frame(frame)
            case TimerFired(name):
                self._timers.discard(name)
                effects = self._sent(self._session.acknowledge() if name == ACKNOWLEDGE else self._session.resend())
                if name == ACKNOWLEDGE:
                    self._dirty.clear()
            case PeerConnected():
                effects = self._sent(self._session.connect())
            case PeerDisconnected():
                self._session.disconnect()
        return self._finished(effects, now_s)

    def _frame(self, frame: Frame) -> list[Effect]:
        match frame:
            case Hello():
                greeting: list[Content] = [*self._said.values(), Synced()] if self._session.is_new(frame) else []
                return self._sent(self._session.hello(frame, greeting))
            case Acknowledgement():
                return self._sent(self._session.acknowledgement(frame))
            case Data():
                custody = self._session.data(frame)
                if custody is None:
                    return []
                custody.release()
                return self._delivered(frame.content)

    def _delivered(self, content: Content) -> list[Effect]:
        if not isinstance(content, Publish) or not self._seen.add(content.header.publisher, content.header.sequence):
            return []
        return [Deliver(content, subscription) for subscription in self._subscriptions.route(content, None)[1]]

    def _sent(self, frames: Iterable[Frame]) -> list[Effect]:
        return [SendFrame(self.broker, frame) for frame in frames]

    def _finished(self, effects: list[Effect], now_s: float) -> list[Effect]:
        if self._dirty:
            if self._session.unacknowledged() >= self._config.acknowledge_every:
                effects += self._sent(self._session.acknowledge())
                self._dirty.clear()
            else:
                self._set_timer(effects, ACKNOWLEDGE, now_s + self._config.acknowledge_delay_s)
        if self._config.resend_s is not None:
            self._set_timer(effects, RESEND, now_s + self._config.resend_s)
        return effects

    def _set_timer(self, effects: list[Effect], name: str, at_s: float) -> None:
        if name not in self._timers:
            self._timers.add(name)
            effects.append(SetTimer(name, at_s))
