"""Settlement of control: an advertisement or a subscription is settled when it is in force (docs/decisions/0014).

A subscription is in force when every broker with an advertisement that it intersects has it, or one that covers it. An
advertisement is in force when every broker has it, and the subscriptions that it attracts have arrived. So at each broker

* a subscription waits for the subscriptions that are in flight to the other neighbours,
* an advertisement waits for the advertisements in flight to the other neighbours, and for the subscriptions in flight to the
  neighbour it came from,

and neither is settled before this broker has synchronised with all other neighbours. Waiting for all that is in flight, not for
the copies alone, is what makes a subscription wait for another one that covers it. On a tree no wait leads back: a subscription
waits away from where it came from, an advertisement does too until it waits for subscriptions. Where overlays have cycles,
control of one tree waits only for control of the same tree, and an advertisement for its own copies. While brokers move to other
parents, subscriptions may still wait for each other in a cycle, or for a broker that is gone: such waits expire.
"""

from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Protocol

from overweave.broker.backlogs import Backlogs
from overweave.broker.peers import Peers
from overweave.broker.pending_ack import ControlKey, PendingAck, control_key
from overweave.language.generations import split_generation
from overweave.language.messages import Advertise, Control, Subscribe, Unsubscribe
from overweave.routing.sync import NeighbourSync, SyncKind

#: The acks of all publications in flight.
InFlightAcks = Callable[[], Iterable[PendingAck]]
#: Settled ends of chains are pruned each time the number of chains has grown by this.
_CHAINS_MORE = 256


class Settlement(Protocol):
    """The conditions under which control messages of peers are settled."""

    def add(self, message: Control, peer: str, ack: PendingAck, now_s: float) -> None:
        """Hold an ack until the message, which routing has applied, is in force."""

    def withdrawn(self, message: Control, neighbour: str) -> None:
        """A message to a neighbour may withdraw another one that acks wait for."""

    def on_sync_progress(self) -> None:
        """A neighbour has synchronised, or left: some deferred acks may be settled."""

    def expire(self, before_s: float) -> None:
        """Settle acks that have waited since before a time, where waits may form cycles."""

    def validate(self) -> None:
        """Check the invariants."""


def make_settlement(sync: NeighbourSync, peers: Peers, in_flight: InFlightAcks, backlogs: Backlogs) -> Settlement:
    """The settlement that suits a synchronisation."""
    if sync.kind is SyncKind.BY_ROUTING:
        return RoutingSettlement(in_flight, backlogs)
    return TreeSettlement(sync, peers) if sync.kind is SyncKind.TREE else GraphSettlement(sync, peers)


class RoutingSettlement:
    """The protocol itself tracks the arrival of its addressed messages.

    A subscription of a client that has moved waits for all publications in flight, which were routed without it, and for those
    that publishers send again to a broker that has restarted. Settled, it tells the client that nothing more will come to its old
    broker alone (the sweep of `overweave.broker.client.migration`).
    """

    def __init__(self, in_flight: InFlightAcks, backlogs: Backlogs) -> None:
        self._in_flight, self._backlogs = in_flight, backlogs
        #: The acks that wait until peers have sent everything again.
        self._held: list[PendingAck] = []

    def add(self, message: Control, peer: str, ack: PendingAck, now_s: float) -> None:  # noqa: ARG002
        """See `Settlement.add`."""
        if not isinstance(message, Subscribe) or not split_generation(message.id)[1]:
            return
        if self._backlogs.complete:
            self._wait(ack)
        else:
            ack.retain()
            self._held.append(ack)

    def withdrawn(self, message: Control, neighbour: str) -> None:
        """See `Settlement.withdrawn`."""

    def on_sync_progress(self) -> None:
        """See `Settlement.on_sync_progress`."""
        if self._held and self._backlogs.complete:
            held, self._held = self._held, []
            for ack in held:
                self._wait(ack)
                ack.release()

    def expire(self, before_s: float) -> None:
        """See `Settlement.expire`."""

    def validate(self) -> None:
        """See `Settlement.validate`."""
        assert _all_pending(self._held)

    def _wait(self, ack: PendingAck) -> None:
        for earlier in self._in_flight():
            ack.wait_for(earlier)


class TreeSettlement:
    """Settlement on overlays without cycles."""

    def __init__(self, sync: NeighbourSync, peers: Peers) -> None:
        self._sync, self._sessions, self._neighbours = sync, peers.sessions, peers.neighbours
        #: The last control message of each peer by key: they are settled in order, so that a sender waits for its last one only.
        self._chains: dict[tuple[str, ControlKey], PendingAck] = {}
        self._chains_max = _CHAINS_MORE
        #: Messages that came before all other neighbours had synchronised.
        self._deferred: list[tuple[Control, str, PendingAck]] = []

    def add(self, message: Control, peer: str, ack: PendingAck, now_s: float) -> None:  # noqa: ARG002
        """See `Settlement.add`."""
        key = control_key(message)
        if key is None:
            return
        self._chain((peer, key), ack)
        if self._is_synced(message, peer):
            self._wait(message, key, peer, ack)
        else:
            ack.retain()
            self._deferred.append((message, peer, ack))

    def withdrawn(self, message: Control, neighbour: str) -> None:
        """See `Settlement.withdrawn`; on a tree the withdrawal itself is in order."""

    def on_sync_progress(self) -> None:
        """See `Settlement.on_sync_progress`."""
        deferred, self._deferred = self._deferred, []
        for message, peer, ack in deferred:
            key = control_key(message)
            if key is not None and not self._is_synced(message, peer):
                self._deferred.append((message, peer, ack))
                continue
            if key is not None:
                self._wait(message, key, peer, ack)
            ack.release()

    def expire(self, before_s: float) -> None:
        """See `Settlement.expire`; on a tree no wait forms a cycle."""

    def validate(self) -> None:
        """See `Settlement.validate`."""
        assert len(self._chains) <= self._chains_max
        assert _all_pending(ack for _, _, ack in self._deferred)
        assert all(control_key(message) is not None for message, _, _ in self._deferred)

    def _is_synced(self, message: Control, peer: str) -> bool:
        """Whether all other neighbours are synchronised in the epoch of a message; one of a client is in all epochs."""
        return self._sync.synced_except(peer, message.header.overlay_epoch if peer in self._neighbours else None)

    def _wait(self, message: Control, key: ControlKey, peer: str, ack: PendingAck) -> None:
        if peer not in self._neighbours:
            self._wait_for_all(key, ack)
            return
        self._wait_for_others(key, peer, ack)
        if isinstance(message, Advertise):
            self._wait_for_attracted(key, peer, ack)

    def _wait_for_all(self, key: ControlKey, ack: PendingAck) -> None:
        for neighbour in self._neighbours:
            self._sessions[neighbour].outbound.waiters.wait_for_all(key[0], ack)

    def _wait_for_others(self, key: ControlKey, peer: str, ack: PendingAck) -> None:
        for neighbour in self._neighbours:
            if neighbour != peer:
                self._sessions[neighbour].outbound.waiters.wait_for(key, ack)

    def _wait_for_attracted(self, key: ControlKey, peer: str, ack: PendingAck) -> None:
        """An advertisement waits for the subscriptions that it attracts."""
        self._sessions[peer].outbound.waiters.wait_for((Subscribe, key[1], key[2]), ack)

    def _chain(self, name: tuple[str, ControlKey], ack: PendingAck) -> None:
        earlier = self._chains.get(name)
        if earlier is not None:
            ack.wait_for(earlier)
        self._chains[name] = ack
        if len(self._chains) > self._chains_max:
            self._chains = {name: last for name, last in self._chains.items() if not last.acked}
            self._chains_max = len(self._chains) + _CHAINS_MORE


class GraphSettlement(TreeSettlement):
    """Settlement on overlays with cycles, where waits may form cycles too."""

    def __init__(self, sync: NeighbourSync, peers: Peers) -> None:
        super().__init__(sync, peers)
        #: The acks with the times when they were added, oldest first.
        self._since: deque[tuple[float, PendingAck]] = deque()

    def add(self, message: Control, peer: str, ack: PendingAck, now_s: float) -> None:
        """See `Settlement.add`."""
        if control_key(message) is not None:
            self._since.append((now_s, ack))
        super().add(message, peer, ack, now_s)

    def withdrawn(self, message: Control, neighbour: str) -> None:
        """See `Settlement.withdrawn`: acks that waited for the subscription wait for those at the other neighbours."""
        if isinstance(message, Unsubscribe):
            for ack in self._sessions[neighbour].outbound.waiters.detach_withdrawn(message):
                self._wait_for_others((Subscribe, message.header.tree, message.header.overlay_epoch), neighbour, ack)
                ack.release()

    def expire(self, before_s: float) -> None:
        """See `Settlement.expire`."""
        while self._since and (self._since[0][0] < before_s or self._since[0][1].acked):
            self._since.popleft()[1].expire()

    def validate(self) -> None:
        """See `Settlement.validate`; waits expire in the order in which they began."""
        super().validate()
        assert all(first[0] <= second[0] for first, second in pairwise(self._since))

    def _wait(self, message: Control, key: ControlKey, peer: str, ack: PendingAck) -> None:
        if peer not in self._neighbours:
            self._wait_for_all(key, ack)
        elif isinstance(message, Subscribe):
            self._wait_for_others(key, peer, ack)
        else:
            self._wait_for_attracted(key, peer, ack)


def _all_pending(acks: Iterable[PendingAck]) -> bool:
    """Whether acks that are held are neither released nor lost."""
    return all(not ack.acked or ack.expired for ack in acks)
