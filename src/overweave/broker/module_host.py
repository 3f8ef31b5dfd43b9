"""The host of a broker's modules: it dispatches stimuli to them and performs their effects.

To the rest of the broker a module is a client without a connection.
"""

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Protocol

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.broker.counters import Counters
from overweave.broker.step import StepContext
from overweave.broker.story import Story
from overweave.contract.effects import MigrationEnded, ModuleAnswer, RetireLink, SetTimer, TraceDecision
from overweave.contract.frames import ModuleMessage
from overweave.contract.modules import (
    BrokerView,
    ControlApplied,
    Decide,
    Delivered,
    Module,
    ModuleStimulus,
    NeighbourMessage,
    NeighboursChanged,
    OperatorRequest,
    OrderEnded,
    OrderMigration,
    PublishControl,
    PublishOverlay,
    Reply,
    Routed,
    SendControl,
    SendToNeighbour,
    Started,
    TopologyView,
    Unwatch,
    Watch,
)
from overweave.contract.overlay_state import OverlayState
from overweave.contract.records import Decision
from overweave.contract.stimuli import AskModule, LoadMeasured, MigrateClient, TimerFired
from overweave.language.headers import Header, Priority
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.relations import matches

#: Forged publications are recorded once for each publisher, up to this number of publishers.
_FORGERS_MAX = 256


class ModuleOutlet(Protocol):
    """The parts of a broker that modules act on."""

    def send_control(self, module: str, message: Control) -> None:
        """Apply a control message of a module."""

    def publish(self, module: str, batch: Batch) -> None:
        """Route a publication of a module."""

    def send_message(self, neighbour: str, message: ModuleMessage, urgent: bool) -> None:
        """Send a message to a module of a neighbour."""

    def retire_link(self, neighbour: str) -> None:
        """Retire a link."""

    def migrate(self, order: MigrateClient) -> None:
        """Order a client to move."""

    def publish_overlay(self, state: OverlayState) -> None:
        """Adopt a state of the overlay and send it to all brokers."""

    def on_watches_changed(self) -> None:
        """Modules watch other kinds of stimuli than before."""


class ModuleHost:
    """The modules of one broker, by name; ``life`` is their life id as publishers."""

    def __init__(
        self, broker: str, modules: Mapping[str, Module], step: StepContext, life: int, story: Story, counters: Counters
    ) -> None:
        self._broker = broker
        self._modules = {f"{broker}/{name}": module for name, module in modules.items()}
        self._step, self._story, self._counters = step, story, counters
        self._outlet: ModuleOutlet | None = None
        self._subscriptions: dict[str, dict[str, Subscribe]] = {peer: {} for peer in self._modules}
        self._advertisements: dict[str, dict[str, Advertise]] = {peer: {} for peer in self._modules}
        #: Publications of an earlier life have been seen: they differ in the life id, not in their numbers.
        self._life = life
        self._sequences = dict.fromkeys(self._modules, 0)
        #: The module and the own name of each timer, by its name outside.
        self._timers: dict[str, tuple[str, str]] = {}
        #: The modules that watch each kind of stimulus. Tuples, because a module may change them while they are notified.
        self._watching: dict[type, tuple[str, ...]] = {
            kind: tuple(peer for peer, module in self._modules.items() if kind in module.watches)
            for kind in (Routed, ControlApplied)
        }
        #: Whether any module watches: the only cost on the data path while none does.
        self.watches_routed = bool(self._watching[Routed])
        self.watches_control = bool(self._watching[ControlApplied])
        self._forgers: set[str] = set()
        #: The module of each order in progress and its name there, by token.
        self._orders: dict[str, tuple[str, str]] = {}
        self._order_count = 0
        #: Ended orders: a module that is handling a stimulus gets the end of an order after it.
        self._ended: deque[MigrationEnded] = deque()
        self._depth = 0

    def connect(self, outlet: ModuleOutlet) -> None:
        """Perform the effects of modules on these parts."""
        self._outlet = outlet

    def start(self, topology: TopologyView | None, neighbours: tuple[str, ...], broker: BrokerView | None = None) -> None:
        """Start all modules."""
        for peer in self._modules:
            self._handle(peer, Started(topology, neighbours, broker))

    def on_neighbours_changed(self, neighbours: tuple[str, ...]) -> None:
        """Notify all modules of the present neighbours."""
        for peer in self._modules:
            self._handle(peer, NeighboursChanged(neighbours))

    def notify_watchers(self, stimulus: Routed | ControlApplied) -> None:
        """Show a stimulus to the modules that watch its kind."""
        for peer in self._watching[type(stimulus)]:
            self._handle(peer, stimulus)

    def on_load(self, stimulus: LoadMeasured) -> None:
        """Show a load measurement to all modules."""
        for peer in self._modules:
            self._handle(peer, stimulus)

    def on_timer(self, name: str) -> None:
        """A timer has fired; one of no module is ignored."""
        peer, own = self._timers.pop(name, ("", ""))
        if peer:
            self._handle(peer, TimerFired(own))

    def on_message(self, neighbour: str, message: ModuleMessage) -> None:
        """Deliver a message of a neighbour's module to the same module here; one to a missing module is dropped."""
        peer = f"{self._broker}/{message.module}"
        self._counters.control_in += 1
        if peer in self._modules:
            self._counters.traffic.count(message.module, message.kind, received=1)
            self._handle(peer, NeighbourMessage(neighbour, message.kind, message.body))

    def on_request(self, stimulus: AskModule) -> None:
        """Pass a request of an operator to its module."""
        peer = f"{self._broker}/{stimulus.module}"
        if peer in self._modules:
            self._handle(peer, OperatorRequest(stimulus.token, stimulus.kind, stimulus.body))
        else:
            names = ", ".join(sorted(self._name(each) for each in self._modules)) or "none"
            error = f"module {stimulus.module!r}: expected one of broker {self._broker}, which has {names}"
            self._step.effects.append(ModuleAnswer(stimulus.token, error=error))

    def on_migration_ended(self, ended: MigrationEnded) -> None:
        """Notify the module that ordered a migration, if one did."""
        if ended.token in self._orders:
            self._ended.append(ended)
            self._notify_ended()

    def deliver(self, peer: str, batch: Batch) -> None:
        """Deliver publications of modules to a module; a peer that is none is a client on its leave."""
        if peer not in self._modules:
            return
        for publish in batch.publishes():
            if not _is_of_module(publish.header):
                self._on_forged(peer, publish)
                continue
            for subscription in list(self._subscriptions[peer].values()):
                if matches(subscription.filter, publish.publication):
                    self._handle(peer, Delivered(publish, subscription.id))

    def status(self) -> dict[str, Mapping[str, object]]:
        """The state of each module, by name."""
        return {self._name(peer): module.status() for peer, module in self._modules.items()}

    def registrations(self) -> Iterator[tuple[str, Control]]:
        """The advertisements and subscriptions of all modules."""
        for several in (self._advertisements, self._subscriptions):
            yield from ((peer, message) for peer, messages in several.items() for message in messages.values())

    def validate(self) -> None:
        """Check the invariants: nothing is left of the step, and all state is of modules here."""
        assert not self._depth
        assert not self._ended
        owners = {peer for several in (self._timers, self._orders) for peer, _ in several.values()}
        assert owners.union(*self._watching.values()) <= self._modules.keys()
        assert self.watches_routed == bool(self._watching[Routed])
        assert self.watches_control == bool(self._watching[ControlApplied])
        assert len(self._forgers) <= _FORGERS_MAX

    # ---- effects

    def _handle(self, peer: str, stimulus: ModuleStimulus) -> None:
        self._depth += 1
        try:
            self._perform(peer, stimulus)
        finally:
            self._depth -= 1
        self._notify_ended()

    def _notify_ended(self) -> None:
        while self._ended and not self._depth:
            ended = self._ended.popleft()
            peer, name = self._orders.pop(ended.token)
            self._handle(peer, OrderEnded(name, ended.client, ended.error))

    def _perform(self, peer: str, stimulus: ModuleStimulus) -> None:
        outlet = self._outlet
        assert outlet is not None
        for effect in self._modules[peer].handle(stimulus, self._step.now_s):
            match effect:
                case SendControl(message):
                    self._register(peer, message)
                    outlet.send_control(peer, message)
                case PublishControl():
                    outlet.publish(peer, Rows((self._publish(peer, effect),)))
                case SendToNeighbour(neighbour, kind, body, urgent):
                    outlet.send_message(neighbour, ModuleMessage(self._name(peer), kind, body), urgent)
                case SetTimer(name, at_s):
                    full = f"{peer}:{name}"
                    self._timers[full] = peer, name
                    self._step.effects.append(SetTimer(full, at_s))
                case OrderMigration():
                    outlet.migrate(self._order(peer, effect))
                case RetireLink(neighbour):
                    outlet.retire_link(neighbour)
                case Watch(kinds) | Unwatch(kinds):
                    self._set_watching(peer, kinds, isinstance(effect, Watch))
                case Decide():
                    self._decide(peer, effect)
                case Reply(token, body, error, more):
                    self._step.effects.append(ModuleAnswer(token, body, error, more))
                case PublishOverlay(state):
                    outlet.publish_overlay(state)
                case _:
                    self._step.effects.append(effect)

    def _publish(self, peer: str, effect: PublishControl) -> Publish:
        priority = Priority.URGENT if effect.urgent else Priority.CONTROL
        header = Header(peer, self._sequences[peer], self._step.now_s, self._life, ttl=effect.ttl, priority=priority)
        self._sequences[peer] += 1
        return Publish(effect.publication, header, effect.payload)

    def _order(self, peer: str, effect: OrderMigration) -> MigrateClient:
        """An order with a token that no other incarnation or module of the network has."""
        token = f"{peer}:{self._life:x}:{self._order_count}"
        self._order_count += 1
        self._orders[token] = peer, effect.name
        return MigrateClient(token, effect.client, effect.to, effect.subscriptions, effect.publishing)

    def _register(self, peer: str, message: Control) -> None:
        if isinstance(message, Subscribe):
            self._subscriptions[peer][message.id] = message
        elif isinstance(message, Unsubscribe):
            self._subscriptions[peer].pop(message.id, None)
        elif isinstance(message, Advertise):
            self._advertisements[peer][message.id] = message
        elif isinstance(message, Unadvertise):
            self._advertisements[peer].pop(message.id, None)

    def _set_watching(self, peer: str, kinds: tuple[type, ...], watches: bool) -> None:
        for kind in kinds:
            chosen = {*self._watching[kind], peer} if watches else {*self._watching[kind]} - {peer}
            self._watching[kind] = tuple(each for each in self._modules if each in chosen)
        self.watches_routed, self.watches_control = bool(self._watching[Routed]), bool(self._watching[ControlApplied])
        assert self._outlet is not None
        self._outlet.on_watches_changed()

    def _decide(self, peer: str, effect: Decide) -> None:
        decision = Decision(
            self._step.now_s, self._broker, self._name(peer), effect.what, effect.about, effect.reason, effect.figures
        )
        self._story.decided(decision)
        self._step.effects.append(TraceDecision(decision))

    def _on_forged(self, peer: str, publish: Publish) -> None:
        """Ignore a client's publication that a module has subscribed to, and record the first of each client."""
        publisher = publish.header.publisher
        self._counters.forged += 1
        if publisher not in self._forgers and len(self._forgers) < _FORGERS_MAX:
            self._forgers.add(publisher)
            kind = publish.publication.get("class", "")
            self._decide(
                peer, Decide("ignore", publisher, f"class {kind!r}: expected a publication of a module, not of a client")
            )

    def _name(self, peer: str) -> str:
        return peer.removeprefix(f"{self._broker}/")


def _is_of_module(header: Header) -> bool:
    """Whether a module published it: no client has a name with a slash, or may publish control."""
    return header.priority is not Priority.PUBLICATION and "/" in header.publisher
