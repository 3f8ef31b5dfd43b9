"""The desk: where modules sit in a broker. It hands them what concerns them, and does what they ask for.

To the rest of the broker a module is a client without a connection.
"""

from collections.abc import Callable, Mapping

from overweave.batches.base import Batch
from overweave.batches.objects import Rows
from overweave.broker.step import StepContext
from overweave.contract.effects import SetTimer
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

#: So many publications a module has in a life of its broker.
_PUBLICATIONS_MAX = 1 << 20


class ModuleHost:
    """The modules of one broker, by name."""

    def __init__(
        self,
        broker: str,
        modules: Mapping[str, Module],
        step: StepContext,
        say: Callable[[str, Control], None],
        publish: Callable[[str, Batch], None],
        incarnation: int = 1,
        life: int = 0,
    ) -> None:
        self._modules = {f"{broker}/{name}": module for name, module in modules.items()}
        #: Whether there are any.
        self.has_modules = bool(modules)
        self._step, self._say, self._publish = step, say, publish
        self._subscriptions: dict[str, dict[str, Subscribe]] = {peer: {} for peer in self._modules}
        #: What was published in an earlier life has been seen: none of it must have the same identity, nor number in traces.
        self._life = life
        self._sequences = dict.fromkeys(self._modules, incarnation * _PUBLICATIONS_MAX)
        self._watching = {
            kind: [peer for peer, module in self._modules.items() if kind in module.watches] for kind in (Routed, ControlApplied)
        }
        self.watches_passed = bool(self._watching[Routed])

    def start(self, overlay: TopologyView | None) -> None:
        """Tell all modules that they are in place."""
        for peer in self._modules:
            self._tell(peer, Started(overlay))

    def watch(self, stimulus: Routed | ControlApplied) -> None:
        """Show something to those who watch for it."""
        for peer in self._watching[type(stimulus)]:
            self._tell(peer, stimulus)

    def measured(self, stimulus: LoadMeasured) -> None:
        """Show a measurement to all."""
        for peer in self._modules:
            self._tell(peer, stimulus)

    def timer(self, name: str) -> None:
        """A timer of a module has fired; its name begins with the module's."""
        peer, _, rest = name.partition(":")
        if peer in self._modules:
            self._tell(peer, TimerFired(rest))

    def receive(self, peer: str, batch: Batch) -> None:
        """Publications for a module, not those of clients, whatever they look like; for a client that is leaving, nobody's."""
        if peer not in self._modules:
            return
        for publish in batch.publishes():
            if not _is_of_module(publish.header):
                continue
            for subscription in list(self._subscriptions[peer].values()):
                if matches(subscription.filter, publish.publication):
                    self._tell(peer, Delivered(publish, subscription.id))

    def _tell(self, peer: str, stimulus: ModuleStimulus) -> None:
        for effect in self._modules[peer].handle(stimulus, self._step.now_s):
            match effect:
                case SendControl(message):
                    self._note(peer, message)
                    self._say(peer, message)
                case PublishControl(publication, urgent):
                    priority = Priority.URGENT if urgent else Priority.CONTROL
                    header = Header(peer, self._sequences[peer], self._step.now_s, self._life, priority=priority)
                    self._sequences[peer] += 1
                    self._publish(peer, Rows((Publish(publication, header),)))
                case SetTimer(name, at_s):
                    self._step.effects.append(SetTimer(f"{peer}:{name}", at_s))
                case _:
                    self._step.effects.append(effect)

    def _note(self, peer: str, message: Control) -> None:
        if isinstance(message, Subscribe):
            self._subscriptions[peer][message.id] = message
        elif isinstance(message, Unsubscribe):
            self._subscriptions[peer].pop(message.id, None)


def _is_of_module(header: Header) -> bool:
    """Whether a module published it: no client has a name with a slash, or may publish control."""
    return header.priority is not Priority.PUBLICATION and "/" in header.publisher
