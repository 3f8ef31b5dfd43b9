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

from overweave.broker.custody import ControlKey, Custody, control_key
from overweave.broker.session import Session
from overweave.broker.telling import Telling
from overweave.language.messages import Advertise, Control, Subscribe, Unsubscribe

#: Settled ends of chains are pruned each time the number of chains has grown by this.
_CHAINS_MORE = 256


class ControlSettlement:
    """What holds back the settlement of control at one broker; sessions and neighbours are the broker's own."""

    def __init__(self, telling: Telling, sessions: Mapping[str, Session], neighbours: Mapping[str, None], acyclic: bool) -> None:
        self._telling, self._sessions, self._neighbours, self._acyclic = telling, sessions, neighbours, acyclic
        #: The last control message of each peer by key: they are settled in order, so that a sender waits for its last one only.
        self._chains: dict[tuple[str, ControlKey], Custody] = {}
        self._chains_max = _CHAINS_MORE
        #: What came before all other neighbours had synchronised.
        self._deferred: list[tuple[Control, str, Custody]] = []
        #: What was added since when, in order, where waits may form cycles.
        self._since: deque[tuple[float, Custody]] = deque()

    def add(self, message: Control, peer: str, custody: Custody, now_s: float) -> None:
        """Routing has applied a message of a peer: keep ``custody`` until the message is in force."""
        key = control_key(message)
        if key is None:
            return
        if not self._acyclic:
            self._since.append((now_s, custody))
        self._chain((peer, key), custody)
        if self._telling.knows_all_but(peer):
            self._wait(message, key, peer, custody)
        else:
            custody.hold()
            self._deferred.append((message, peer, custody))

    def expire(self, before_s: float) -> None:
        """Settle what has waited for too long, where waits may form cycles."""
        while self._since and (self._since[0][0] < before_s or self._since[0][1].done):
            self._since.popleft()[1].expire()

    def synchronised(self) -> None:
        """A neighbour has synchronised, or left: some of what was deferred may be settled."""
        deferred, self._deferred = self._deferred, []
        for message, peer, custody in deferred:
            key = control_key(message)
            if key is not None and not self._telling.knows_all_but(peer):
                self._deferred.append((message, peer, custody))
                continue
            if key is not None:
                self._wait(message, key, peer, custody)
            custody.release()

    def withdrawn(self, message: Control, neighbour: str) -> None:
        """A subscription was taken back from a neighbour: where overlays have cycles, it was told another one instead."""
        if self._acyclic or not isinstance(message, Unsubscribe):
            return
        for custody in self._sessions[neighbour].withdrawn(message):
            self._wait_for_others((Subscribe, message.header.tree), neighbour, custody)
            custody.release()

    def _wait(self, message: Control, key: ControlKey, peer: str, custody: Custody) -> None:
        if peer not in self._neighbours:
            for neighbour in self._neighbours:
                self._sessions[neighbour].wait_for_all(key[0], custody)
            return
        if self._acyclic or isinstance(message, Subscribe):
            self._wait_for_others(key, peer, custody)
        if isinstance(message, Advertise):
            self._sessions[peer].wait_for((Subscribe, key[1]), custody)

    def _wait_for_others(self, key: ControlKey, peer: str, custody: Custody) -> None:
        for neighbour in self._neighbours:
            if neighbour != peer:
                self._sessions[neighbour].wait_for(key, custody)

    def _chain(self, name: tuple[str, ControlKey], custody: Custody) -> None:
        earlier = self._chains.get(name)
        if earlier is not None:
            custody.wait_for(earlier)
        self._chains[name] = custody
        if len(self._chains) > self._chains_max:
            self._chains = {name: last for name, last in self._chains.items() if not last.done}
            self._chains_max = len(self._chains) + _CHAINS_MORE
