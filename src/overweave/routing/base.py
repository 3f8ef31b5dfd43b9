"""What a routing protocol is, and what most of them share.

A protocol is told what arrives and from whom, and answers what to send where. Who was added as a neighbour is one; any other
peer is a client of this broker. It keeps the tables; sessions and time are not its business.
"""

from collections.abc import Callable, Hashable, Iterable
from typing import Protocol

from overweave.batches.base import Batch, split_by_link
from overweave.contract.modules import TopologyView
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.matching.index import Index

#: What to send, and to which neighbour; None: there is no way at present, and it is to be handled again when links change.
Send = tuple[str | None, Control]
#: Which publications go to which peer: a neighbour, or a client of this broker; None: as with `Send`.
Forward = tuple[str | None, Batch]
#: Publications with the brokers that they are meant for too, given the neighbour they came from, or None for clients'.
Instead = Callable[[Batch, str | None], Iterable[Batch]]


class Routing(Protocol):
    """A routing protocol at one broker."""

    @property
    def acyclic(self) -> bool:
        """Whether it needs an overlay without cycles."""

    @property
    def watches_links(self) -> bool:
        """Whether it finds other ways when links fail, and wants to know when they do and when they work again."""

    @property
    def needs_advertisements(self) -> bool:
        """Whether publications reach other brokers only if an advertisement of their client covers them."""

    @property
    def wants_ticks(self) -> bool:
        """Whether `tick` is called again and again, where there is a heartbeat; it is wherever links are watched."""

    def begin(self, incarnation: int) -> None:
        """Which life of its broker this is; before anything else."""

    def overlay(self) -> TopologyView | None:
        """What is known of the overlay, if anything is."""

    def add_neighbour(self, neighbour: str) -> None:
        """There is a link to ``neighbour`` from now on."""

    def link_up(self, neighbour: str) -> Iterable[Send]:
        """The link works."""

    def link_down(self, neighbour: str) -> Iterable[Send]:
        """The link does not work. What was sent over it and not settled is handled and routed again after this."""

    def tick(self) -> Iterable[Send]:
        """Some time has passed, as it does again and again where links are watched."""

    def arriving(self, batch: Batch, origin: str | None) -> tuple[Batch | None, Batch | None]:
        """The publications that are looked at here, each once however many copies come; and those that only pass."""

    def lanes(self, origin: str | None, tag: int) -> tuple[Hashable, ...]:
        """Which way publications come from there, where ways lead on to different brokers; those of clients come on all.

        Each tag has lanes of its own.
        A copy that is the first on its lane is routed. To clients of this broker a publication goes once, whichever lane it came.
        """

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """There is none any more, and nothing that came over it holds."""

    def handle(self, message: Control, peer: str) -> Iterable[Send]:
        """Take in what a neighbour or a client says; what is known already changes nothing."""

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """Where publications go that came from a neighbour, or from a client (None). Their headers may change."""

    def instead(self) -> Instead | None:
        """Whom else publications are meant for that are on their way to brokers who stand for others no more; once each time."""

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """All that ``neighbour`` must know when it has forgotten everything."""

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """All that ``neighbour`` has said and that still holds."""

    def match_cost(self, batch: Batch, origin: str | None) -> int:
        """How many subscriptions each publication is compared with here; 0: its content is not looked at."""

    def table_sizes(self) -> dict[str, int]:
        """How many entries each table has."""

    def validate(self) -> None:
        """Check what must always hold."""


class StaticRouting:
    """What a protocol has that looks at every publication, and takes links as they are."""

    watches_links = False
    needs_advertisements = False
    wants_ticks = False

    def begin(self, incarnation: int) -> None:
        """See `Routing.begin`."""

    def overlay(self) -> TopologyView | None:
        """See `Routing.overlay`."""
        return None

    def link_up(self, neighbour: str) -> Iterable[Send]:  # noqa: ARG002
        """See `Routing.link_up`."""
        return ()

    def link_down(self, neighbour: str) -> Iterable[Send]:  # noqa: ARG002
        """See `Routing.link_down`."""
        return ()

    def tick(self) -> Iterable[Send]:
        """See `Routing.tick`."""
        return ()

    def instead(self) -> Instead | None:
        """See `Routing.instead`."""
        return None

    def arriving(self, batch: Batch, origin: str | None) -> tuple[Batch | None, Batch | None]:  # noqa: ARG002
        """See `Routing.arriving`."""
        return batch, None

    def lanes(self, origin: str | None, tag: int) -> tuple[Hashable, ...]:  # noqa: ARG002
        """See `Routing.lanes`."""
        return ()

    def match_cost(self, batch: Batch, origin: str | None) -> int:  # noqa: ARG002
        """See `Routing.match_cost`."""
        return self.table_sizes()["subscriptions"]

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        raise NotImplementedError

    def validate(self) -> None:
        """See `Routing.validate`."""


class ControlDispatch(StaticRouting):
    """What a protocol does with a control message, a method per kind of message."""

    def handle(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.handle`."""
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
        self._index = Index()

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, id: str) -> bool:
        return id in self._entries

    def add(self, id: str, filter: Filter, peer: str) -> bool:
        """Take a subscription in; False when it is known."""
        if id in self._entries:
            return False
        self._entries[id] = (filter, peer)
        self._index.add(id, filter, peer)
        return True

    def remove(self, id: str, peer: str) -> Filter | None:
        """Forget a subscription that came from ``peer``; None when there is no such one."""
        entry = self._entries.get(id)
        if entry is None or entry[1] != peer:
            return None
        del self._entries[id]
        self._index.remove(id)
        return entry[0]

    def get(self, id: str) -> Filter | None:
        """The filter of a subscription; None: there is no such one."""
        entry = self._entries.get(id)
        return None if entry is None else entry[0]

    def entry(self, id: str) -> tuple[Filter, str]:
        """The filter of a subscription that is there, and the peer it came from."""
        return self._entries[id]

    def items(self) -> list[tuple[str, Filter, str]]:
        """All entries."""
        return [(id, filter, peer) for id, (filter, peer) in self._entries.items()]

    def of(self, peer: str) -> list[Subscribe]:
        """All that came from ``peer``."""
        return [Subscribe(id, filter) for id, (filter, of) in self._entries.items() if of == peer]

    def validate(self) -> None:
        """Check what must always hold."""
        assert len(self._index) == len(self._entries)

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """The peers whose subscriptions some publications match, but not back to the neighbour they came from."""
        return split_by_link(batch, self._index, origin) if self._entries else []  # type: ignore[return-value]
