"""The port of routing protocols: what every protocol has (`Routing`), and the capabilities that some supply (`Engine`).

A protocol gets control messages and batches with the peer each came from, and returns its outputs. A peer that was added as a
neighbour is a broker; any other peer is a client. A protocol owns its tables. Sessions, time and recovery belong to the broker.
"""

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol

from overweave.batches.base import Batch
from overweave.contract.effects import OpenLink, RetireLink, SetTimer
from overweave.contract.modules import TopologyView
from overweave.contract.stimuli import LoadMeasured
from overweave.language.headers import OverlayEpoch
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.matching.index import Index
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.routing.ingress import MakeIngress, OnceOnly
from overweave.routing.sync import MakeSync, TreeSync

#: In place of a neighbour: there is no next hop at present. The message is deferred until routes change.
UNROUTABLE = None
#: A control message and the neighbour that it goes to, or `UNROUTABLE`.
Send = tuple[str | None, Control]
#: Publications and the peer that they go to (a neighbour or a client of this broker), or `UNROUTABLE`.
Forward = tuple[str | None, Batch]
#: An output of a protocol: a message, a link to open or to retire, or a timer to set.
Output = Send | OpenLink | RetireLink | SetTimer
#: Copies of a batch in flight with their new destinations, given its origin: a neighbour, or None for clients.
Redirect = Callable[[Batch, str | None], Iterable[Batch]]


class Routing(Protocol):
    """A routing protocol at one broker."""

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """Add a link to ``neighbour``; it is not up yet."""

    def remove_neighbour(self, neighbour: str) -> Iterable[Output]:
        """Remove a link, with everything learned over it."""

    def on_control(self, message: Control, peer: str) -> Iterable[Output]:
        """Apply a control message of a neighbour or a client; a known one changes nothing."""

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """The next hops of publications from a neighbour, or from a client (None). Their headers may change."""

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """The full state for a neighbour without any."""

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """The state that was learned from ``neighbour`` and is in force."""

    def table_sizes(self) -> dict[str, int]:
        """The number of entries of each table."""

    def validate(self) -> None:
        """Check the invariants."""


class LinkEvents(Protocol):
    """The capability to route around failed links: the broker detects failures and announces them."""

    def link_up(self, neighbour: str) -> Iterable[Output]:
        """The link is up."""

    def link_down(self, neighbour: str) -> Iterable[Output]:
        """The link is down. Unsettled messages that were sent over it are routed again after this."""

    def tick(self) -> Iterable[Output]:
        """A heartbeat period has passed."""

    @property
    def synced(self) -> bool:
        """Whether the advertisements of all reachable brokers are known, so that a subscription is sent to all who need it."""

    @property
    def topology(self) -> TopologyView | None:
        """The known overlay; None: the protocol knows parts of it only."""


class Redirector(Protocol):
    """The capability to redirect publications in flight."""

    def redirects(self) -> Redirect | None:
        """New destinations for publications in flight to brokers that no longer represent a subscription.

        Each change is returned once; None: there is none.
        """


class EpochPlane(Protocol):
    """The capability to route over the trees of several overlay epochs side by side (`overweave.routing.epochs`)."""

    current: OverlayEpoch
    is_single: bool
    #: The overlay that the tables of each open epoch were made for, without the brokers that have left since.
    overlays: dict[OverlayEpoch, Overlay]

    @property
    def epochs(self) -> tuple[OverlayEpoch, ...]:
        """The open epochs, the oldest first."""

    def open(self, epoch: OverlayEpoch, overlay: Overlay, local: Iterable[tuple[str, Control]]) -> None:
        """Open an epoch without neighbours; ``local`` are the control messages of clients and modules that are in force."""

    def close(self, epoch: OverlayEpoch) -> None:
        """Drop the tables of an epoch."""

    def add_to_epoch(self, neighbour: str, epoch: OverlayEpoch, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """Add a neighbour to an epoch."""

    def epochs_of(self, neighbour: str) -> tuple[OverlayEpoch, ...]:
        """The epochs of a neighbour."""

    def epoch_of(self, batch: Batch, origin: str | None) -> OverlayEpoch:
        """The epoch in which a batch of a neighbour, or of a client (None), travels."""

    def snapshot_in(self, epoch: OverlayEpoch, neighbour: str) -> Iterable[Control]:
        """The full state of one epoch for a neighbour."""


def _suits_any(_: Overlay) -> None:
    """The check of a protocol without options."""


class Engine(NamedTuple):
    """A protocol at one broker with its capabilities; the defaults suit a protocol that needs none."""

    routing: Routing
    #: The ingress, given the size of its dedup windows.
    ingress: MakeIngress = OnceOnly
    #: The synchronisation with neighbours, given whether there are ticks.
    sync: MakeSync = TreeSync
    links: LinkEvents | None = None
    redirect: Redirector | None = None
    #: Called at each heartbeat, for protocols without link events; once before the first stimulus where there are heartbeats.
    ticks: Callable[[], Iterable[Output]] | None = None
    #: Called with the name of a timer of the protocol that has fired.
    timers: Callable[[str], Iterable[Output]] | None = None
    #: Called with each load measurement of this broker.
    load: Callable[[LoadMeasured], Iterable[Output]] | None = None
    #: The number of filters a publication is matched against, given its origin (cost model); None: the size of the table.
    match_cost: Callable[[Batch, str | None], int] | None = None
    #: Over several epochs of the overlay side by side; it is the ``routing`` itself.
    epochs: "EpochPlane | None" = None
    #: Whether publications reach other brokers only if an advertisement of their client covers them.
    needs_advertisements: bool = False
    #: Its name in the texts of rejections.
    name: str = "this routing protocol"
    #: The broker and its incarnation that a control message states, if it does; a broker restarts above a later one of its own.
    known_incarnation: Callable[[Control], tuple[str, int] | None] | None = None
    #: Raises an `InvalidInput` unless the options of the protocol suit an overlay.
    check: Callable[[Overlay], None] = _suits_any


class ControlDispatch:
    """A base class with one method per kind of control message."""

    def on_control(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.on_control`."""
        match message:
            case Advertise():
                return self._advertise(message, peer)
            case Unadvertise():
                return self._unadvertise(message, peer)
            case Subscribe():
                return self._subscribe(message, peer)
            case Unsubscribe():
                return self._unsubscribe(message, peer)
            case _:
                return ()

    def _advertise(self, message: Advertise, peer: str) -> list[Send]:
        raise NotImplementedError

    def _unadvertise(self, message: Unadvertise, peer: str) -> list[Send]:
        raise NotImplementedError

    def _subscribe(self, message: Subscribe, peer: str) -> list[Send]:
        raise NotImplementedError

    def _unsubscribe(self, message: Unsubscribe, peer: str) -> list[Send]:
        raise NotImplementedError


class SubscriptionTable:
    """The publication routing table: subscriptions with the peer each came from, and an index over them."""

    def __init__(self) -> None:
        self._entries: dict[str, tuple[Filter, str]] = {}
        #: By the peers that they came from.
        self.index = Index()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: str) -> bool:
        return id in self._entries

    def add(self, id: str, filter: Filter, peer: str) -> bool:
        """Add a subscription; False if it is known."""
        if id in self._entries:
            return False
        self._entries[id] = (filter, peer)
        self.index.add(id, filter, peer)
        return True

    def remove(self, id: str, peer: str) -> Filter | None:
        """Remove a subscription of ``peer``; None if there is none."""
        entry = self._entries.get(id)
        if entry is None or entry[1] != peer:
            return None
        del self._entries[id]
        self.index.remove(id)
        return entry[0]

    def get(self, id: str) -> Filter | None:
        """The filter of a subscription, or None."""
        entry = self._entries.get(id)
        return None if entry is None else entry[0]

    def entry(self, id: str) -> tuple[Filter, str]:
        """The filter of a known subscription, and its peer."""
        return self._entries[id]

    def items(self) -> list[tuple[str, Filter, str]]:
        """All entries."""
        return [(id, filter, peer) for id, (filter, peer) in self._entries.items()]

    def of(self, peer: str) -> list[Subscribe]:
        """The subscriptions of ``peer``."""
        return [Subscribe(id, filter) for id, (filter, of) in self._entries.items() if of == peer]

    def validate(self) -> None:
        """Check the invariants."""
        assert len(self.index) == len(self._entries)

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """The peers whose subscriptions some publications match, but not back to the neighbour they came from."""
        return batch.split_by_link(self.index, origin) if self._entries else []  # type: ignore[return-value]
