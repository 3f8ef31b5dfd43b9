"""The host of a broker's modules: it dispatches stimuli to them and performs their effects.

To the rest of the broker a module is a client without a connection.
"""

from collections.abc import Mapping
from typing import Protocol

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.broker.step import StepContext
from overweave.contract.effects import RetireLink, SetTimer
from overweave.contract.modules import (
    ControlApplied,
    Delivered,
    Module,
    ModuleStimulus,
    PublishControl,
    Routed,
    SendControl,
    Started,
    TopologyView,
)
from overweave.contract.stimuli import LoadMeasured, TimerFired
from overweave.language.headers import Header, Priority
from overweave.language.messages import Control, Publish, Subscribe, Unsubscribe
from overweave.language.relations import matches


class ModuleOutlet(Protocol):
    """The parts of a broker that modules act on."""

    def send_control(self, module: str, message: Control) -> None:
        """Apply a control message of a module."""

    def publish(self, module: str, batch: Batch) -> None:
        """Route a publication of a module."""

    def retire_link(self, neighbour: str) -> None:
        """Retire a link."""


class ModuleHost:
    """The modules of one broker, by name; ``life`` is their incarnation as publishers."""

    def __init__(self, broker: str, modules: Mapping[str, Module], step: StepContext, life: int) -> None:
        self._modules = {f"{broker}/{name}": module for name, module in modules.items()}
        self.has_modules = bool(modules)
        self._step = step
        self._outlet: ModuleOutlet | None = None
        self._subscriptions: dict[str, dict[str, Subscribe]] = {peer: {} for peer in self._modules}
        #: Publications of an earlier incarnation have been seen: they differ in the life, not in their numbers.
        self._life = life
        self._sequences = dict.fromkeys(self._modules, 0)
        #: The module and the own name of each timer, by its name outside.
        self._timers: dict[str, tuple[str, str]] = {}
        self._watching = {
            kind: [peer for peer, module in self._modules.items() if kind in module.watches] for kind in (Routed, ControlApplied)
        }
        self.watches_routed = bool(self._watching[Routed])

    def connect(self, outlet: ModuleOutlet) -> None:
        """Perform the effects of modules on these parts."""
        self._outlet = outlet

    def start(self, topology: TopologyView | None) -> None:
        """Start all modules."""
        for peer in self._modules:
            self._handle(peer, Started(topology))

    def watch(self, stimulus: Routed | ControlApplied) -> None:
        """Show a stimulus to the modules that watch its kind."""
        for peer in self._watching[type(stimulus)]:
            self._handle(peer, stimulus)

    def measured(self, stimulus: LoadMeasured) -> None:
        """Show a load measurement to all modules."""
        for peer in self._modules:
            self._handle(peer, stimulus)

    def on_timer(self, name: str) -> None:
        """A timer has fired; one of no module is ignored."""
        peer, own = self._timers.pop(name, ("", ""))
        if peer:
            self._handle(peer, TimerFired(own))

    def receive(self, peer: str, batch: Batch) -> None:
        """Deliver publications of modules to a module; a peer that is none is a client on its leave."""
        if peer not in self._modules:
            return
        for publish in batch.publishes():
            if not _is_of_module(publish.header):
                continue
            for subscription in list(self._subscriptions[peer].values()):
                if matches(subscription.filter, publish.publication):
                    self._handle(peer, Delivered(publish, subscription.id))

    def _handle(self, peer: str, stimulus: ModuleStimulus) -> None:
        outlet = self._outlet
        assert outlet is not None
        for effect in self._modules[peer].handle(stimulus, self._step.now_s):
            match effect:
                case SendControl(message):
                    self._register(peer, message)
                    outlet.send_control(peer, message)
                case PublishControl():
                    outlet.publish(peer, Rows((self._publish(peer, effect),)))
                case SetTimer(name, at_s):
                    full = f"{peer}:{name}"
                    self._timers[full] = peer, name
                    self._step.effects.append(SetTimer(full, at_s))
                case RetireLink(neighbour):
                    outlet.retire_link(neighbour)
                case _:
                    self._step.effects.append(effect)

    def _publish(self, peer: str, effect: PublishControl) -> Publish:
        priority = Priority.URGENT if effect.urgent else Priority.CONTROL
        header = Header(peer, self._sequences[peer], self._step.now_s, self._life, priority=priority)
        self._sequences[peer] += 1
        return Publish(effect.publication, header)

    def _register(self, peer: str, message: Control) -> None:
        if isinstance(message, Subscribe):
            self._subscriptions[peer][message.id] = message
        elif isinstance(message, Unsubscribe):
            self._subscriptions[peer].pop(message.id, None)


def _is_of_module(header: Header) -> bool:
    """Whether a module published it: no client has a name with a slash, or may publish control."""
    return header.priority is not Priority.PUBLICATION and "/" in header.publisher
