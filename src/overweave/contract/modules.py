"""Modules: what can be plugged into a broker, pure like the broker itself.

A module watches what its broker does, sets timers, and talks to modules of other brokers. It advertises, subscribes and publishes
like a client, with priority over clients' publications, and it sends messages to the same module of neighbours.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Protocol

import msgspec

from overweave.batches.base import Batch
from overweave.contract.effects import OpenLink, RetireLink, SetTimer, Trace, TraceColumns, TraceStatement
from overweave.contract.overlay_state import OverlayState, OverlayStatus
from overweave.contract.stimuli import LoadMeasured, TimerFired
from overweave.errors import InvalidInput
from overweave.language.headers import TTL_DEFAULT
from overweave.language.messages import Advertise, Control, Publish, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.overlay.parts import Role

#: The class of the load reports of brokers.
BROKER_STATUS = "BROKER_STATUS"
#: The classes that are published by modules.
MODULE_CLASSES = (BROKER_STATUS,)

# ---- the environment


class Capacity(msgspec.Struct, frozen=True):
    """The capacities of a broker as far as its driver knows them; None: unknown or unlimited."""

    output_bandwidth_bytes_per_s: float | None = None
    matching_delay_base_s: float | None = None
    matching_delay_per_subscription_s: float | None = None
    capacity_hz: float | None = None


class Environment(msgspec.Struct, frozen=True):
    """The surroundings of a module at its start. Later neighbours are in `NeighboursChanged`.

    >>> first, second = (Environment("B1", seed=7).of_module(name) for name in ("report", "pie"))
    >>> first.seed == Environment("B1", seed=7).of_module("report").seed, first.seed == second.seed
    (True, False)
    """

    broker: str
    neighbours: tuple[str, ...] = ()
    cluster: str | None = None
    role: Role | None = None
    capacity: Capacity = Capacity()
    #: The URL of each broker of the network, where brokers have one.
    addresses: Mapping[str, str] = {}
    #: The seed of the module's own ``numpy.random.Generator``.
    seed: int = 0

    def of_module(self, name: str) -> "Environment":
        """The environment of one module: its seed depends on the broker and the module only."""
        text = f"{self.seed}/{self.broker}/{name}".encode()
        seed = int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little")
        return msgspec.structs.replace(self, seed=seed)


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


class BrokerView(Protocol):
    """What a module may read of its own broker at any time."""

    def overlay_state(self) -> OverlayState:
        """The present state of the overlay."""

    def overlay_status(self) -> OverlayStatus:
        """The state of this broker in a change of the overlay."""

    def check_overlay(self, state: OverlayState) -> None:
        """Raise an error if this broker cannot route on a state of the overlay."""

    def clients(self) -> list[str]:
        """All clients with a session or registrations, connected or not."""

    def is_connected(self, client: str) -> bool:
        """Whether a client has an established session, which operators never have."""

    def registered(self, kind: str, client: str) -> int:
        """The number of registrations of a client by their kind (advertisement, subscription); generations count once."""

    def registrations(self) -> Mapping[tuple[str, str], tuple[str, Filter]]:
        """Client and filter of each registration of clients, by its kind (advertisement, subscription) and id."""

    def unsettled_rows(self) -> int:
        """What neighbours and connected clients have not settled."""


# ---- stimuli


class Started(msgspec.Struct, frozen=True):
    """The broker has started, with these neighbours; the overlay is known only where routing knows it."""

    overlay: TopologyView | None = None
    neighbours: tuple[str, ...] = ()
    #: None: only in tests of single modules.
    broker: BrokerView | None = None


class NeighboursChanged(msgspec.Struct, frozen=True):
    """The broker has other neighbours than before, connected or not."""

    neighbours: tuple[str, ...]


class Routed(msgspec.Struct, frozen=True, gc=False):
    """Publications of a peer were routed to others: neighbours, clients, or None if there is no next hop yet."""

    batch: Batch
    peer: str
    to: list[tuple[str | None, Batch]]
    #: The rows that arrived just now: each publication is in ``arrived`` once. None: all have been before.
    arrived: Batch | None


class ControlApplied(msgspec.Struct, frozen=True):
    """Routing has applied a control message of a peer; ``client`` distinguishes clients from neighbouring brokers.

    A publication or message that a module sends now travels behind it.
    """

    message: Control
    peer: str
    client: bool


class Delivered(msgspec.Struct, frozen=True):
    """A publication that the module has subscribed to."""

    publish: Publish
    subscription: str


class NeighbourMessage(msgspec.Struct, frozen=True):
    """A message of the same module at a neighbour."""

    neighbour: str
    kind: str
    body: bytes


class OrderEnded(msgspec.Struct, frozen=True):
    """A migration that the module ordered is complete, or the client stays because of an ``error``."""

    name: str
    client: str
    error: str | None


class OperatorRequest(msgspec.Struct, frozen=True):
    """A request of an operator with the permission ``control``; the module answers with `Reply`."""

    token: str
    kind: str
    body: bytes


ModuleStimulus = (
    Started
    | NeighboursChanged
    | Routed
    | ControlApplied
    | Delivered
    | NeighbourMessage
    | OrderEnded
    | OperatorRequest
    | TimerFired
    | LoadMeasured
)


# ---- effects


class SendControl(msgspec.Struct, frozen=True):
    """Advertise, subscribe, or withdraw either."""

    message: Advertise | Unadvertise | Subscribe | Unsubscribe


class PublishControl(msgspec.Struct, frozen=True):
    """Publish with priority over clients, behind everything that was sent before.

    An ``urgent`` publication does not wait behind data, but it may be lost: modules that need an answer have a deadline. Others
    are dropped where they would wait for a broker that is down.

    >>> PublishControl(Publication({"class": "PIE"}), ttl=0)
    Traceback (most recent call last):
    overweave.errors.InvalidInput: ttl: expected a number of brokers from 1 to 255, got 0
    """

    publication: Publication
    payload: bytes = b""
    #: The most brokers on its path, this one included: 1 stays here, 2 reaches the neighbours.
    ttl: int = TTL_DEFAULT
    urgent: bool = False

    def __post_init__(self) -> None:
        if not 1 <= self.ttl <= TTL_DEFAULT:
            raise InvalidInput(f"ttl: expected a number of brokers from 1 to {TTL_DEFAULT}, got {self.ttl}")


class SendToNeighbour(msgspec.Struct, frozen=True):
    """Send a message to the same module of a neighbour; without a connection to that broker it is dropped.

    Messages arrive in order, but are lost if the link fails or either end restarts. An ``urgent`` one overtakes data, and is also
    lost with the connection. ``kind`` is the type of the message, by which it is counted.
    """

    neighbour: str
    kind: str
    body: bytes
    urgent: bool = False


class Watch(msgspec.Struct, frozen=True):
    """Receive `Routed` or `ControlApplied` from now on. Brokers without a watching module do not pay for them."""

    kinds: tuple[type, ...]


class Unwatch(msgspec.Struct, frozen=True):
    """Receive these kinds of stimuli no longer."""

    kinds: tuple[type, ...]


class Decide(msgspec.Struct, frozen=True):
    """Record a decision: in the trace table ``decisions``, in the story of ``about``, and in the log."""

    what: str
    about: str
    reason: str
    figures: Mapping[str, float] = {}


class OrderMigration(msgspec.Struct, frozen=True):
    """Order a client of this broker to move subscriptions (None: all) or its publishing; `OrderEnded` follows."""

    name: str
    client: str
    to: str
    subscriptions: tuple[str, ...] | None = None
    publishing: bool = True


class Reply(msgspec.Struct, frozen=True):
    """Answer a request of an operator; ``more`` parts follow."""

    token: str
    body: bytes = b""
    error: str | None = None
    more: bool = False


class PublishOverlay(msgspec.Struct, frozen=True):
    """Adopt a state of the overlay and send it to all brokers, unless it is no higher than the present one."""

    state: OverlayState


ModuleEffect = (
    SendControl
    | PublishControl
    | SendToNeighbour
    | OrderMigration
    | Watch
    | Unwatch
    | Decide
    | SetTimer
    | Trace
    | TraceColumns
    | TraceStatement
    | OpenLink
    | RetireLink
    | Reply
    | PublishOverlay
)


class Module(Protocol):
    """A plug-in of one broker."""

    @property
    def watches(self) -> tuple[type, ...]:
        """The kinds among `Routed` and `ControlApplied` that it receives from its start; see `Watch` for later."""
        return ()

    def handle(self, stimulus: ModuleStimulus, now_s: float) -> Iterable[ModuleEffect]:
        """The one entry point of the module."""

    def status(self) -> Mapping[str, object]:
        """The state of the module for operators, in values that JSON can express."""
        return {}
