"""Identity-based and covering-based routing (STOCH 2, 6): neighbours get filters, not subscriptions.

A neighbour has a filter from its first subscription to the end of its last: one message for each of these toggles, which is
what STOCH counts, and none for all others between. Filters are aggregated under the broker's id. If the broker forwarded the id
of one of the subscriptions, the departure of that one would take two messages to name another instead.

`PeerToPeer` forwards filters to all neighbours, `AdvertisementBased` to those from which a matching advertisement came, and
`HierarchicalIdentity` only to the parent on the path to the root, to which all publications climb. Acyclic overlays only.
"""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable

from overweave.batches.base import Batch
from overweave.language.messages import Advertise, Control, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.matching.intersections import IntersectionIndex
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Forward, Send, SubscriptionTable
from overweave.routing.summaries import Change, Summary

MakeSummary = Callable[[], Summary]


class PeerToPeer:
    """At the broker ``id``: a summary for each neighbour of the filters that others want."""

    def __init__(self, id: str, make_summary: MakeSummary) -> None:
        self._id = id
        self._make_summary = make_summary
        self._table = SubscriptionTable()
        self._summaries: dict[str, Summary] = {}
        #: Per neighbour with a summary: the number of other subscriptions with each filter.
        self._wanted: dict[str, Counter[Filter]] = {}

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:  # noqa: ARG002
        """See `Routing.add_neighbour`."""
        self._summaries[neighbour] = self._make_summary()
        self._wanted[neighbour] = Counter()
        for _, filter, _ in self._table.items():
            self._add_interest(neighbour, filter)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        self._summaries.pop(neighbour, None)
        self._wanted.pop(neighbour, None)
        return [send for message in self._table.of(neighbour) for send in self.on_control(Unsubscribe(message.id), neighbour)]

    def on_control(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.on_control`."""
        if isinstance(message, Subscribe) and self._table.add(message.id, message.filter, peer):
            return self._forward(peer, message.filter, self._add_interest)
        if isinstance(message, Unsubscribe):
            filter = self._table.remove(message.id, peer)
            return () if filter is None else self._forward(peer, filter, self._drop_interest)
        return ()

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        return self._table.route(batch, origin)

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        summary = self._summaries.get(neighbour)
        return [] if summary is None else [Subscribe(self._name(filter), filter) for filter in summary.forwarded()]

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`."""
        return self._table.of(neighbour)

    def validate(self) -> None:
        """See `Routing.validate`."""
        self._table.validate()
        assert self._wanted.keys() == self._summaries.keys()
        for neighbour, wanted in self._wanted.items():
            forwarded = list(self._summaries[neighbour].forwarded())
            assert len(set(forwarded)) == len(forwarded), neighbour
            assert all(wanted[filter] > 0 for filter in forwarded), neighbour

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`; the forwarded filters are the remote entries of neighbours."""
        return {
            "subscriptions": len(self._table),
            "forwarded": sum(len(list(each.forwarded())) for each in self._summaries.values()),
        }

    def _forward(self, peer: str, filter: Filter, change: Callable[[str, Filter], Change]) -> list[Send]:
        return [
            send
            for neighbour in self._summaries
            if neighbour != peer
            for send in self._sends(neighbour, change(neighbour, filter))
        ]

    def _add_interest(self, neighbour: str, filter: Filter) -> Change:
        wanted = self._wanted[neighbour]
        wanted[filter] += 1
        return self._add(neighbour, filter) if wanted[filter] == 1 else _NOTHING

    def _drop_interest(self, neighbour: str, filter: Filter) -> Change:
        wanted = self._wanted[neighbour]
        _subtract(wanted, filter)
        return _NOTHING if wanted[filter] else self._remove(neighbour, filter)

    def _add(self, neighbour: str, filter: Filter) -> Change:
        return self._summaries[neighbour].add(filter)

    def _remove(self, neighbour: str, filter: Filter) -> Change:
        return self._summaries[neighbour].remove(filter)

    def _sends(self, neighbour: str, change: Change) -> Iterable[Send]:
        for filter in change.forwarded:
            yield neighbour, Subscribe(self._name(filter), filter)
        for filter in change.withdrawn:
            yield neighbour, Unsubscribe(self._name(filter))

    def _name(self, filter: Filter) -> str:
        """The same for the same filter, also after a crash; short, because ids travel and filters may be long."""
        return f"{self._id} {hashlib.blake2b(str(filter).encode(), digest_size=16).hexdigest()}"


class HierarchicalIdentity(PeerToPeer):
    """Hierarchical: only the ``parent`` (None: this is the root) gets subscriptions."""

    def __init__(self, id: str, make_summary: MakeSummary, parent: str | None) -> None:
        super().__init__(id, make_summary)
        self._parent = parent

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """See `Routing.add_neighbour`; nothing is forwarded to children."""
        if neighbour == self._parent:
            super().add_neighbour(neighbour, kind)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        if neighbour == self._parent:
            self._parent = None
        return super().remove_neighbour(neighbour)

    def route(self, batch: Batch, origin: str | None) -> list[Forward]:
        """See `Routing.route`."""
        down = super().route(batch, origin)
        return down if self._parent is None or self._parent == origin else [(self._parent, batch), *down]


class AdvertisementBased(PeerToPeer):
    """Peer-to-peer with advertisements, which are forwarded like filters that all neighbours want."""

    def __init__(self, id: str, make_summary: MakeSummary) -> None:
        super().__init__(id, make_summary)
        self._advertisements: dict[str, tuple[Filter, str]] = {}
        #: Per neighbour: the number of advertisements with each filter from it, and from others.
        self._remote: dict[str, Counter[Filter]] = {}
        self._announced: dict[str, Counter[Filter]] = {}
        #: Per neighbour: its advertisements, and the filters that others want, by what they intersect.
        self._remote_index: dict[str, IntersectionIndex[Filter]] = {}
        self._wanted_index: dict[str, IntersectionIndex[Filter]] = {}

    def add_neighbour(self, neighbour: str, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """See `Routing.add_neighbour`."""
        self._remote[neighbour] = Counter()
        self._remote_index[neighbour] = IntersectionIndex(holds_advertisements=True)
        self._wanted_index[neighbour] = IntersectionIndex(holds_advertisements=False)
        self._announced[neighbour] = Counter(filter for filter, _ in self._advertisements.values())
        super().add_neighbour(neighbour, kind)

    def remove_neighbour(self, neighbour: str) -> Iterable[Send]:
        """See `Routing.remove_neighbour`."""
        lost = [Unadvertise(id) for id, (_, peer) in self._advertisements.items() if peer == neighbour]
        sends = [send for message in lost for send in self.on_control(message, neighbour) if send[0] != neighbour]
        del self._remote[neighbour], self._announced[neighbour]
        del self._remote_index[neighbour], self._wanted_index[neighbour]
        return [*sends, *super().remove_neighbour(neighbour)]

    def on_control(self, message: Control, peer: str) -> Iterable[Send]:
        """See `Routing.on_control`."""
        if isinstance(message, Advertise):
            return list(self._advertise(message, peer)) if message.id not in self._advertisements else ()
        if isinstance(message, Unadvertise):
            return list(self._unadvertise(message, peer)) if self._advertisements.get(message.id, (None, ""))[1] == peer else ()
        return super().on_control(message, peer)

    def snapshot_for(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.snapshot_for`."""
        advertisements = [Advertise(self._name(filter), filter) for filter in self._announced[neighbour]]
        return [*advertisements, *super().snapshot_for(neighbour)]

    def learned_from(self, neighbour: str) -> Iterable[Control]:
        """See `Routing.learned_from`."""
        remote = [Advertise(id, filter) for id, (filter, peer) in self._advertisements.items() if peer == neighbour]
        return [*super().learned_from(neighbour), *remote]

    def table_sizes(self) -> dict[str, int]:
        """See `Routing.table_sizes`."""
        return super().table_sizes() | {"advertisements": len(self._advertisements)}

    def validate(self) -> None:
        """See `Routing.validate`."""
        super().validate()
        for neighbour, wanted in self._wanted.items():
            self._wanted_index[neighbour].validate({filter: (filter, None) for filter in wanted})
            self._remote_index[neighbour].validate({filter: (filter, None) for filter in self._remote[neighbour]})

    def _advertise(self, message: Advertise, peer: str) -> Iterable[Send]:
        filter = message.filter
        self._advertisements[message.id] = (filter, peer)
        if peer in self._remote:
            wanted = [each for each in self._wanted_index[peer].intersecting(filter) if not self._is_offered(peer, each)]
            self._remote[peer][filter] += 1
            if self._remote[peer][filter] == 1:
                self._remote_index[peer].add(filter, filter)
            for each in wanted:
                yield from self._sends(peer, self._summaries[peer].add(each))
        for neighbour, announced in self._announced.items():
            if neighbour != peer:
                announced[filter] += 1
                if announced[filter] == 1:
                    yield neighbour, Advertise(self._name(filter), filter)

    def _unadvertise(self, message: Unadvertise, peer: str) -> Iterable[Send]:
        filter, _ = self._advertisements.pop(message.id)
        if peer in self._remote:
            offered = self._wanted_index[peer].intersecting(filter)
            _subtract(self._remote[peer], filter)
            if filter not in self._remote[peer]:
                self._remote_index[peer].remove(filter)
            for each in offered:
                if not self._is_offered(peer, each):
                    yield from self._sends(peer, self._summaries[peer].remove(each))
        for neighbour, announced in self._announced.items():
            if neighbour != peer:
                _subtract(announced, filter)
                if not announced[filter]:
                    yield neighbour, Unadvertise(self._name(filter))

    def _is_offered(self, neighbour: str, filter: Filter) -> bool:
        return self._remote_index[neighbour].reaches(None, filter)

    def _add(self, neighbour: str, filter: Filter) -> Change:
        self._wanted_index[neighbour].add(filter, filter)
        return super()._add(neighbour, filter) if self._is_offered(neighbour, filter) else _NOTHING

    def _remove(self, neighbour: str, filter: Filter) -> Change:
        self._wanted_index[neighbour].remove(filter)
        return super()._remove(neighbour, filter) if self._is_offered(neighbour, filter) else _NOTHING


_NOTHING = Change([], [])


def _subtract(counter: Counter[Filter], filter: Filter) -> None:
    """One less, and no entry for none."""
    counter[filter] -= 1
    if not counter[filter]:
        del counter[filter]
