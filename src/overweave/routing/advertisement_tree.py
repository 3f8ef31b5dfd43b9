"""One advertisement at one broker: the paths that neighbours offer (path vector), the parent among them, and its subscriptions.

The last offer of each neighbour is stored, as in BGP's Adj-RIB-In, so that a broker whose parent loses its path has another one
at hand. A path lists the brokers from the advertiser's to the one before this. No broker is offered a path that it is on, so
there are no loops to count to infinity in.
"""

from collections.abc import Iterator

import msgspec

from overweave.batches.base import Batch
from overweave.language.headers import Origin
from overweave.language.predicates import Filter
from overweave.language.relations import intersects
from overweave.matching.index import Index
from overweave.routing.base import Forward
from overweave.routing.forwarded import ForwardedSubscriptions


class Route(msgspec.Struct, frozen=True):
    """A path to the advertiser, as a neighbour offers it or as it is offered to one."""

    filter: Filter
    path: tuple[str, ...]
    origin: Origin | None


class TreeTable:
    """The subscriptions of one tree by the peers they came from; while a path changes the same one may come from two."""

    def __init__(self) -> None:
        self._entries: dict[tuple[str, str], Filter] = {}
        self._peers: dict[str, dict[str, None]] = {}
        self._index = Index()

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, id: str, filter: Filter, peer: str) -> bool:
        """Add a subscription, or replace its filter; False if it is known."""
        if self._entries.get((id, peer)) == filter:
            return False
        self.remove(id, peer)
        self._entries[id, peer] = filter
        self._peers.setdefault(id, {})[peer] = None
        self._index.add((id, peer), filter, peer)
        return True

    def remove(self, id: str, peer: str) -> Filter | None:
        """Remove the entry of ``peer``; None if there is none."""
        filter = self._entries.pop((id, peer), None)
        if filter is not None:
            self._index.remove((id, peer))
            del self._peers[id][peer]
            if not self._peers[id]:
                del self._peers[id]
        return filter

    def get(self, id: str) -> Filter | None:
        """The filter of a subscription, of the first of its peers; None if there is none."""
        peers = self._peers.get(id)
        return None if not peers else self._entries[id, next(iter(peers))]

    def items(self) -> Iterator[tuple[str, Filter]]:
        """All subscriptions."""
        return ((id, filter) for (id, _), filter in self._entries.items())

    def of(self, peer: str) -> list[tuple[str, Filter]]:
        """The subscriptions of ``peer``."""
        return [(id, filter) for (id, at), filter in self._entries.items() if at == peer]

    def validate(self) -> None:
        """Check the invariants."""
        assert len(self._index) == len(self._entries)
        assert set(self._entries) == {(id, peer) for id, peers in self._peers.items() for peer in peers}

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """The peers whose subscriptions some publications match, but not back to the neighbour they came from."""
        return batch.split_by_link(self._index, origin) if self._entries else []  # type: ignore[return-value]


class Tree:
    """One advertisement at one broker; without a path it waits for one, with the subscriptions from below."""

    def __init__(self) -> None:
        #: The last offer of each neighbour, and the last offer to each.
        self.offered_by: dict[str, Route] = {}
        self.offered_to: dict[str, Route] = {}
        #: The client that advertises, at its own broker; at other brokers the next hop towards it.
        self.client: str | None = None
        self.parent: str | None = None
        #: The path from the advertiser to here, the parent being its last broker; None: there is none at present.
        self.route: Route | None = None
        self.table = TreeTable()
        #: The subscriptions for the parent, under covering.
        self.offers = ForwardedSubscriptions()
        #: The subscriptions at each neighbour: the parent, and former parents until the new path is in force.
        self.forwarded: dict[str, dict[str, Filter]] = {}
        #: The former parents with subscriptions, and the remaining ticks of each.
        self.leaving: dict[str, int] = {}

    @property
    def empty(self) -> bool:
        """Whether no state is left."""
        return self.client is None and not self.offered_by and not self.table and not self.forwarded and not self.offered_to

    def validate(self) -> None:
        """Check the invariants."""
        self.table.validate()
        self.offers.validate()
        assert self.client is None or self.parent is None
        assert self.parent is None or self.parent in self.offered_by
        assert self.leaving.keys() <= self.forwarded.keys()
        assert self.parent not in self.leaving

    def best(self) -> tuple[str, Route] | None:
        """The neighbour with the shortest path, and that path; the parent among equals, else the first that offered one."""
        if not self.offered_by:
            return None
        return min(self.offered_by.items(), key=lambda entry: (len(entry[1].path), entry[0] != self.parent))

    def is_wanted(self, filter: Filter) -> bool:
        """Whether the advertisement of another broker intersects a subscription."""
        return self.route is not None and self.client is None and intersects(self.route.filter, filter)
