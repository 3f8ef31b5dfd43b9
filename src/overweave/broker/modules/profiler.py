"""The profiler: profiles of the subscriptions and the publishers of one broker's clients (THESIS 6.1.2).

A subscription has a ring for each publisher: the publications that it has received. A publisher has one as well: those that it
has published here. Rows are marked many at a time (`PendingRows`). Only for clients with several subscriptions they are matched
again.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat

import numpy as np
from numpy.typing import NDArray

from overweave.batches.base import Batch
from overweave.batches.contents import matched_ids
from overweave.batches.raw import RawRows
from overweave.batches.trace_fields import trace_fields
from overweave.broker.modules.client_subscriptions import ClientSubscriptions
from overweave.broker.modules.distinct import DistinctPairs
from overweave.broker.modules.pending_rows import PendingRows
from overweave.broker.modules.rings import NO_RING, Rings
from overweave.contract.modules import BrokerView, ControlApplied, Routed
from overweave.contract.profiles import ProfiledSubscription, PublisherWindow, SubscriptionProfiles
from overweave.language.generations import stable_id
from overweave.language.headers import Priority
from overweave.language.messages import Subscribe, Unsubscribe
from overweave.language.predicates import Filter
from overweave.matching.index import Index
from overweave.matching.search import PublicationView

#: Withdrawn subscriptions whose rings are kept: one that migrates is withdrawn at its old broker.
_WITHDRAWN_MAX = 4_096


class _Published:
    """The publications of one publisher at this broker."""

    __slots__ = ("bytes", "first_at_s", "first_sequence", "last_at_s", "publications", "ring")

    def __init__(self, ring: int) -> None:
        self.ring = ring
        self.publications = self.bytes = 0
        self.first_sequence, self.first_at_s, self.last_at_s = 1 << 62, float("inf"), float("-inf")


class Profiler:
    """A profile of one broker from its start on."""

    def __init__(self, broker: str, name: str, bits: int, view: BrokerView) -> None:
        self.name, self.bits, self._broker = name, bits, broker
        self._clients: dict[str, ClientSubscriptions] = {}
        #: The rings of each subscription by publisher, and those of publishers.
        self._received: dict[str, dict[str, int]] = {}
        self._rings, self._windows = Rings(bits), Rings(bits)
        self._published: dict[str, _Published] = {}
        self._withdrawn: dict[str, None] = {}
        #: The pairs of a subscription and a publisher that there was no ring for; "" stands for the publisher's own.
        self._dropped = DistinctPairs()
        #: The last number of each publisher that is profiled, if there is a limit.
        self._limits: Mapping[str, int] = {}
        self._pending = PendingRows(bits)
        #: The distinct filters of clients with several subscriptions, and who has each: client and subscription.
        self._several = Index()
        self._holders: dict[Filter, dict[tuple[str, str], None]] = {}
        self._held: dict[tuple[str, str], Filter] = {}
        for (kind, id), (client, filter) in view.registrations().items():
            if kind == "subscription":
                self._subscribe(client, id, filter)

    @property
    def count(self) -> int:
        """The number of rings of subscriptions."""
        return self._rings.count

    def limit(self, limits: Mapping[str, int]) -> None:
        """Profile the publications of some publishers up to these numbers only."""
        self._limits = limits

    # ---- what brokers do

    def on_control(self, applied: ControlApplied) -> None:
        """Register or remove a subscription of a client; names with a slash are those of modules."""
        message = applied.message
        if not applied.client or "/" in applied.peer:
            return
        if isinstance(message, Subscribe):
            self._subscribe(applied.peer, message.id, message.filter)
        elif isinstance(message, Unsubscribe) and applied.peer in self._clients:
            self._unsubscribe(applied.peer, message.id)

    def on_routed(self, routed: Routed, neighbours: tuple[str, ...]) -> None:
        """Mark publications of clients where they were published, and where they were received."""
        arrived, clients, pending = routed.arrived, self._clients, self._pending
        if arrived is None or routed.batch.priority() is not Priority.PUBLICATION:
            return
        is_local = routed.peer not in neighbours and "/" not in routed.peer
        batch = routed.batch
        if not isinstance(batch, RawRows) or len(batch.rows.runs) > 1:
            self._mark_one_by_one(arrived, routed.to, is_local)
            return
        publisher = batch.rows.runs[0][0]
        limit = self._limits.get(publisher)
        if limit is not None and int(batch.rows.layout.sequences.max()) > limit:
            if int(batch.rows.layout.sequences.min()) <= limit:
                self._mark_one_by_one(arrived, routed.to, is_local)
            return
        if is_local:
            pending.add_published(publisher, batch.rows.layout)
        rings: list[int] = []
        several: list[tuple[str, RawRows]] = []
        for peer, some in routed.to:
            client = clients.get(peer) if peer is not None else None
            if client is None or peer is None:
                continue
            if len(client.filters) > 1:
                several.append((peer, some))  # type: ignore[arg-type]
                continue
            (subscription,) = client.filters
            ring = self._ring(subscription, publisher)
            if ring == NO_RING:
                continue
            if some.picked is None:  # type: ignore[attr-defined]
                rings.append(ring)
            else:
                pending.add_received((ring,), some.sequences())
        if rings:
            pending.add_received(tuple(rings), batch.rows.layout.sequences)
        if several:
            pending.add_several(publisher, batch, several)
        if pending.is_full:
            self._flush()

    def _subscribe(self, client: str, id: str, filter: Filter) -> None:
        self._flush()
        subscriptions = self._clients.setdefault(client, ClientSubscriptions())
        subscriptions.add(id, filter)
        self._withdrawn.pop(stable_id(id), None)
        self._index(client, stable_id(id), subscriptions.filters)

    def _unsubscribe(self, client: str, id: str) -> None:
        self._flush()
        subscriptions, stable = self._clients[client], stable_id(id)
        subscriptions.remove(id)
        self._index(client, stable, subscriptions.filters)
        if stable not in subscriptions.filters:
            self._withdrawn[stable] = None
            if len(self._withdrawn) > _WITHDRAWN_MAX:
                oldest = next(iter(self._withdrawn))
                del self._withdrawn[oldest]
                self._rings.free(self._received.pop(oldest, {}).values())
        if not subscriptions.filters:
            del self._clients[client]

    def _index(self, client: str, changed: str, filters: Mapping[str, Filter]) -> None:
        """Index the subscriptions of a client with several: of a single one, whatever the client gets has matched it."""
        # With the second subscription the first one is to be indexed as well, and with the last but one it no longer is.
        for id in {changed, *filters} if len(filters) <= 2 else (changed,):
            key = client, id
            held = self._held.pop(key, None)
            if held is not None:
                del self._holders[held][key]
                if not self._holders[held]:
                    del self._holders[held]
                    self._several.remove(held)
            if id in filters and len(filters) > 1:
                filter = self._held[key] = filters[id]
                if filter not in self._holders:
                    self._holders[filter] = {}
                    self._several.add(filter, filter)
                self._holders[filter][key] = None

    # ---- marks

    def _mark_one_by_one(self, arrived: Batch, to: Iterable[tuple[str | None, Batch]], is_local: bool) -> None:
        """Mark rows of several publishers, or objects."""
        if is_local:
            for publisher, sequence, _, at_s, size in trace_fields(arrived):
                if self._is_profiled(publisher, sequence):
                    self._add_published(publisher, np.array([sequence]), np.array([at_s]), size)
        for peer, some in to:
            client = self._clients.get(peer) if peer is not None else None
            if client is None:
                continue
            index, only = client.index(), list(client.filters)
            matched: Iterable[Sequence[object]] = repeat(only, some.count) if index is None else matched_ids(some, index)
            for (publisher, _, sequence), ids in zip(some.identities(), matched, strict=True):
                if self._is_profiled(publisher, sequence):
                    self._mark([self._ring(str(id), publisher) for id in ids], np.array([sequence]))

    def _is_profiled(self, publisher: str, sequence: int) -> bool:
        limit = self._limits.get(publisher)
        return limit is None or sequence <= limit

    def _flush(self) -> None:
        """Mark all pending rows."""
        pending, self._pending = self._pending, PendingRows(self.bits)
        for publisher, (sequences, times, size) in pending.published():
            self._add_published(publisher, sequences, times, size)
        for rings, sequences in pending.received():
            self._mark(rings, sequences)
        for publisher, clients, view, sequences in pending.several():
            self._mark_matches(publisher, clients, view, sequences)

    def _add_published(self, publisher: str, sequences: NDArray[np.int64], times: NDArray[np.float64], size: int) -> None:
        of = self._published.get(publisher)
        if of is None:
            ring = self._windows.new()
            if ring == NO_RING:
                self._dropped.add("", publisher)
                return
            of = self._published[publisher] = _Published(ring)
        self._windows.mark_all(np.array([of.ring]), sequences)
        of.publications += len(sequences)
        of.bytes += size
        of.first_sequence = min(of.first_sequence, int(sequences.min()))
        of.first_at_s, of.last_at_s = min(of.first_at_s, float(times.min())), max(of.last_at_s, float(times.max()))

    def _mark(self, rings: Iterable[int], sequences: NDArray[np.int64]) -> None:
        self._rings.mark_all(np.array([ring for ring in rings if ring != NO_RING], np.int64), sequences)

    def _mark_matches(self, publisher: str, clients: frozenset[str], view: PublicationView, sequences: NDArray[np.int64]) -> None:
        """Mark the subscriptions of clients with several that each row matches."""
        slots, ends = self._several.slots(view)
        if not len(slots):
            return
        counts = np.bincount(slots)
        starts = np.zeros(len(counts) + 1, np.int64)
        rings: list[int] = []
        for slot in np.flatnonzero(counts).tolist():
            before = len(rings)
            for client, subscription in self._holders[self._several.id_of(slot)]:  # type: ignore[index]
                ring = self._ring(subscription, publisher) if client in clients else NO_RING
                if ring != NO_RING:
                    rings.append(ring)
            starts[slot + 1] = len(rings) - before
        np.cumsum(starts, out=starts)
        repeated = np.repeat(sequences, np.diff(ends, prepend=0))
        self._rings.mark_groups(slots.astype(np.int64), repeated, starts, np.array(rings, np.int64))

    def _ring(self, subscription: str, publisher: str) -> int:
        """The ring of a pair; `NO_RING` if there is no room. Nothing is kept of such a pair."""
        rings = self._received.get(subscription)
        ring = None if rings is None else rings.get(publisher)
        if ring is None:
            ring = self._rings.new()
            if ring == NO_RING:
                self._dropped.add(subscription, publisher)
            else:
                self._received.setdefault(subscription, {})[publisher] = ring
        return ring

    # ---- answers

    def windows(self) -> list[PublisherWindow]:
        """The windows of all publishers of this broker."""
        self._flush()
        return [
            PublisherWindow(
                publisher, self._broker, of.first_sequence, self._windows.end(of.ring), self._windows.vector(of.ring),
                of.publications, of.bytes, of.first_at_s, of.last_at_s,
            )
            for publisher, of in self._published.items()
        ]  # fmt: skip

    def profiles(self) -> SubscriptionProfiles:
        """The subscriptions of this broker, and all rings."""
        self._flush()
        found = SubscriptionProfiles(list(self._in_force()), [], self._dropped.count())
        for subscription, rings in self._received.items():
            for publisher, ring in rings.items():
                found.append(subscription, publisher, self._rings.vector(ring), self._rings.end(ring))
        return found

    def _in_force(self) -> Iterator[ProfiledSubscription]:
        for name, client in self._clients.items():
            for id, filter in client.filters.items():
                yield ProfiledSubscription(id, name, self._broker, str(filter))
