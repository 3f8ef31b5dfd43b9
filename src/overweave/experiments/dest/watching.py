"""Counters at brokers, by a passive module."""

from collections import Counter
from collections.abc import Iterable

from overweave.contract.modules import ControlApplied, Module, ModuleEffect, ModuleStimulus, Routed
from overweave.language.messages import Advertise
from overweave.routing.messages import LinkState


class Counts:
    """Of a whole network: its watchers add to it."""

    def __init__(self) -> None:
        #: How often an advertisement came to a broker that it was meant for, by both.
        self.advertisements: Counter[tuple[str, str]] = Counter()
        #: How many states of links came to brokers from others.
        self.link_states = 0
        #: By broker: how many messages it has sent or got that carry a destination list, and how many destinations.
        self.lists: Counter[str] = Counter()
        self.destinations: Counter[str] = Counter()

    def duplicates(self) -> int:
        """How many times an advertisement came to a broker that had it."""
        return self.advertisements.total() - len(self.advertisements)

    def add_list(self, length: int, brokers: Iterable[str]) -> None:
        """A message with a destination list went from one broker to the other."""
        for broker in brokers:
            self.lists[broker] += 1
            self.destinations[broker] += length


class Watcher(Module):
    """At one broker."""

    watches = (ControlApplied, Routed)

    def __init__(self, broker: str, number: int, counts: Counts) -> None:
        self._broker, self._number, self._counts = broker, number, counts

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> tuple[ModuleEffect, ...]:  # noqa: ARG002
        """See `Module.handle`."""
        if isinstance(stimulus, ControlApplied) and not stimulus.client:
            destinations = stimulus.message.header.destinations
            if isinstance(stimulus.message, Advertise) and (not destinations or self._number in destinations):
                self._counts.advertisements[self._broker, stimulus.message.id] += 1
            elif isinstance(stimulus.message, LinkState):
                self._counts.link_states += 1
        elif isinstance(stimulus, Routed):
            for to, batch in stimulus.to:
                if to is not None and batch.has_destinations():
                    for publish in batch.publishes():
                        self._counts.add_list(len(publish.header.destinations), (self._broker, to))
        return ()
