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
from collections.abc import Mapping

from overweave.broker.neighbour_sync import NeighbourSync
from overweave.broker.pending_ack import ControlKey, PendingAck, control_key
from overweave.broker.session import Session
from overweave.language.messages import Advertise, Control, Subscribe, Unsubscribe

#: Settled ends of chains are pruned each time the number of chains has grown by this.
_CHAINS_MORE = 256


class ControlSettlement:
    """What holds back the settlement of control at one broker; sessions and neighbours are the broker's own."""

    def __init__(
        self, telling: NeighbourSync, sessions: Mapping[str, Session], neighbours: Mapping[str, None], acyclic: bool
    ) -> None:
        self._sync, self._sessions, self._neighbours, self._acyclic = telling, sessions, neighbours, acyclic
        #: The last control message of each peer by key: they are settled in order, so that a sender waits for its last one only.
        self._chains: dict[tuple[str, ControlKey], PendingAck] = {}
        self._chains_max = _CHAINS_MORE
        #: What came before all other neighbours had synchronised.
        self._deferred: list[tuple[Control, str, PendingAck]] = []
        #: What was added since when, in order, where waits may form cycles.
        self._since: deque[tuple[float, PendingAck]] = deque()

    def add(self, message: Control, peer: str, ack: PendingAck, now_s: float) -> None:
        """Routing has applied a message of a peer: keep ``ack`` until the message is in force."""
        key = control_key(message)
        if key is None:
            return
        if not self._acyclic:
            self._since.append((now_s, ack))
        self._chain((peer, key), ack)
        if self._sync.synced_except(peer):
            self._wait(message, key, peer, ack)
        else:
            ack.retain()
            self._deferred.append((message, peer, ack))

    def expire(self, before_s: float) -> None:
        """Settle what has waited for too long, where waits may form cycles."""
        while self._since and (self._since[0][0] < before_s or self._since[0][1].acked):
            self._since.popleft()[1].expire()

    def synchronised(self) -> None:
        """A neighbour has synchronised, or left: some of what was deferred may be settled."""
        deferred, self._deferred = self._deferred, []
        for message, peer, ack in deferred:
            key = control_key(message)
            if key is not None and not self._sync.synced_except(peer):
                self._deferred.append((message, peer, ack))
                continue
            if key is not None:
                self._wait(message, key, peer, ack)
            ack.release()

    def withdrawn(self, message: Control, neighbour: str) -> None:
        """A subscription was taken back from a neighbour: where overlays have cycles, it was told another one instead."""
        if self._acyclic or not isinstance(message, Unsubscribe):
            return
        for ack in self._sessions[neighbour].outbound.waiters.withdrawn(message):
            self._wait_for_others((Subscribe, message.header.tree), neighbour, ack)
            ack.release()

    def _wait(self, message: Control, key: ControlKey, peer: str, ack: PendingAck) -> None:
        if peer not in self._neighbours:
            for neighbour in self._neighbours:
                self._sessions[neighbour].outbound.waiters.wait_for_all(key[0], ack)
            return
        if self._acyclic or isinstance(message, Subscribe):
            self._wait_for_others(key, peer, ack)
        if isinstance(message, Advertise):
            self._sessions[peer].outbound.waiters.wait_for((Subscribe, key[1]), ack)

    def _wait_for_others(self, key: ControlKey, peer: str, ack: PendingAck) -> None:
        for neighbour in self._neighbours:
            if neighbour != peer:
                self._sessions[neighbour].outbound.waiters.wait_for(key, ack)

    def _chain(self, name: tuple[str, ControlKey], ack: PendingAck) -> None:
        earlier = self._chains.get(name)
        if earlier is not None:
            ack.wait_for(earlier)
        self._chains[name] = ack
        if len(self._chains) > self._chains_max:
            self._chains = {name: last for name, last in self._chains.items() if not last.acked}
            self._chains_max = len(self._chains) + _CHAINS_MORE
