"""Modules: what can be plugged into a broker, pure like the broker itself.

A module watches what its broker does, sets timers, and talks to other brokers' modules by what brokers are there for: it
advertises, subscribes and publishes like a client, with priority over clients' publications.
"""

from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from overweave.batches.base import Batch
from overweave.contract.effects import OpenLink, RetireLink, SetTimer, Trace, TraceColumns, TraceStatement
from overweave.contract.stimuli import LoadMeasured, TimerFired
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.publications import Publication


class TopologyView(Protocol):
    """What a broker knows of the overlay at any time, where its routing needs to (`overweave.routing.topology`)."""

    @property
    def distances(self) -> Mapping[str, int]:
        """How far it is to all who can be reached, this broker included."""

    def up(self) -> list[str]:
        """The neighbours whose link works."""

    def is_neighbour(self, peer: str) -> bool:
        """Whether there is a link to a peer."""

    def adjacency(self) -> Mapping[str, Iterable[str]]:
        """All who can be reached, each with those it has a link to."""

    def number_of(self, broker: str) -> int | None:
        """What stands for a broker in destination lists."""


class Started(msgspec.Struct, frozen=True):
    """The module is in its place; the overlay is known only where routing knows it."""

    overlay: TopologyView | None = None


class Routed(msgspec.Struct, frozen=True, gc=False):
    """Publications of a peer were routed to others: neighbours, clients, or None if there is no next hop yet."""

    batch: Batch
    peer: str
    to: list[tuple[str | None, Batch]]
    #: The rows that arrived just now: each publication is in ``arrived`` once. None: all have been before.
    arrived: Batch | None


class ControlApplied(msgspec.Struct, frozen=True):
    """A peer said something that changes routing tables; ``client`` tells a client from a neighbouring broker."""

    message: Control
    peer: str
    client: bool


class Delivered(msgspec.Struct, frozen=True):
    """A publication that the module has subscribed to."""

    publish: Publish
    subscription: str


ModuleStimulus = Started | Routed | ControlApplied | Delivered | TimerFired | LoadMeasured


class SendControl(msgspec.Struct, frozen=True):
    """Advertise, subscribe, or withdraw either."""

    message: Advertise | Unadvertise | Subscribe | Unsubscribe


class PublishControl(msgspec.Struct, frozen=True):
    """Publish with priority over clients. An ``urgent`` publication does not wait behind data either, but it may be lost."""

    publication: Publication
    urgent: bool = False


ModuleEffect = SendControl | PublishControl | SetTimer | Trace | TraceColumns | TraceStatement | OpenLink | RetireLink


class Module(Protocol):
    """A plug-in of one broker."""

    @property
    def watches(self) -> tuple[type, ...]:
        """What it wants to see of `Routed` and `ControlApplied`; the others come to whom they concern."""

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterable[ModuleEffect]:
        """The one door of the module."""
