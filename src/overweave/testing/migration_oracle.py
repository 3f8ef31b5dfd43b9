"""The oracle of simulated migrations: which publications must arrive at which subscriptions, by comparing all with all.

A publication is due at a subscription that matches it, was in force before it, and was not withdrawn before it was settled. A due
publication must arrive once, any other one that matches once at most.
"""

from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from overweave.contract.effects import Parts
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.testing.seeds.reach import Reach


class Published(msgspec.Struct, kw_only=True):
    """A publication of one life of a publisher, and when it was seen settled."""

    publisher: str
    life: int
    sequence: int
    content: Publication
    at_s: float
    settled_s: float | None = None
    #: Whether the publisher has crashed before it was settled.
    is_lost: bool = False

    def __str__(self) -> str:
        return f"{self.publisher}@{self.life}:{self.sequence} of {self.at_s:.2f} s"


class Subscribed(msgspec.Struct, kw_only=True):
    """A subscription: since when it is in force, and when it was withdrawn or its client crashed."""

    id: str
    client: str
    filter: Filter
    in_force_s: float | None = None
    ended_s: float | None = None
    #: Whether its client did not read when it was withdrawn.
    is_stalled: bool = False


#: Whether a stated rule of the protocol excuses the loss of a due publication.
Excused = Callable[[Published, Subscribed], bool]


class Oracle:
    """All that clients have done and got; `observe` is called after each step of the simulation."""

    def __init__(self, network: SimulatedNetwork) -> None:
        self._network = network
        self._received: Counter[tuple[str, int, int, str]] = Counter()
        self._published: dict[tuple[str, int], list[Published]] = {}
        #: The number of settled publications by publisher and life.
        self._settled: Counter[tuple[str, int]] = Counter()
        self.subscriptions: dict[str, Subscribed] = {}
        #: When the attachments of each client changed, and its brokers from then on.
        self._homes: dict[str, list[tuple[float, frozenset[str]]]] = {}
        #: Due deliveries, and those of them that are missing and excused.
        self.due = self.excused = 0

    @property
    def published(self) -> int:
        """The number of publications."""
        return sum(map(len, self._published.values()))

    # ---- history

    def publish(self, publisher: str, content: Publication) -> None:
        """A client is about to publish."""
        network = self._network
        life, sequence = network.client_processes.life(publisher), network.client(publisher).next_sequence
        found = self._published.setdefault((publisher, life), [])
        now_s = network.scheduler.now_s
        found.append(Published(publisher=publisher, life=life, sequence=sequence, content=content, at_s=now_s))

    def receive(self, parts: Parts) -> None:
        """A client has received publications."""
        for subscription, batch in parts:
            for publisher, life, sequence in batch.identities():
                self._received[publisher, life, sequence, subscription] += 1

    def crash(self, client: str, settled: int) -> None:
        """A client has crashed: its later publications may be lost, and its subscriptions have ended."""
        life = self._network.client_processes.life(client)
        self._settle(client, life, settled)
        for each in self._published.get((client, life), [])[settled:]:
            each.is_lost = True
        for subscription in self.subscriptions.values():
            if subscription.client == client:
                self.end(subscription)

    def end(self, subscription: Subscribed) -> None:
        """A subscription is withdrawn."""
        if subscription.ended_s is None:
            subscription.ended_s = self._network.scheduler.now_s
            node = self._network.nodes.get(subscription.client)  # None: its client has crashed
            subscription.is_stalled = node is not None and node.waiting is not None

    def observe(self) -> None:
        """See which publications are settled, and where clients are."""
        network = self._network
        for client in network.clients():
            core, life = network.client(client), network.client_processes.life(client)
            if (client, life) in self._published:
                self._settle(client, life, core.settled_publications())
            homes, peers = self._homes.setdefault(client, []), frozenset(core.peers())
            if not homes or homes[-1][1] != peers:
                homes.append((network.scheduler.now_s, peers))

    def _settle(self, publisher: str, life: int, settled: int) -> None:
        for each in self._published.get((publisher, life), [])[self._settled[publisher, life] : settled]:
            each.settled_s = self._network.scheduler.now_s
        self._settled[publisher, life] = max(self._settled[publisher, life], settled)

    def homes(self, client: str, from_s: float, until_s: float) -> frozenset[str]:
        """The brokers that a client was attached to at some time of an interval."""
        changes = self._homes.get(client, [])
        ends = [at_s for at_s, _ in changes[1:]] + [float("inf")]
        found = (peers for (at_s, peers), end_s in zip(changes, ends, strict=True) if at_s <= until_s and end_s >= from_s)
        return frozenset().union(*found)

    # ---- checks

    def check(self, excused: Excused) -> Iterator[str]:
        """All that is lost, doubled or not meant for its subscription."""
        received = self._received.copy()
        for published in (each for life in self._published.values() for each in life):
            for subscription in self.subscriptions.values():
                count = received.pop((published.publisher, published.life, published.sequence, subscription.id), 0)
                if not matches(subscription.filter, published.content):
                    if count:
                        yield f"{published} arrived at {subscription.id}, which does not match"
                    continue
                if count > (subscription.ended_s is None or published.at_s <= subscription.ended_s):
                    yield f"{published} arrived {count} times at {subscription.id}"
                if _is_due(published, subscription):
                    self.due += 1
                    if not count and excused(published, subscription):
                        self.excused += 1
                    elif not count:
                        yield f"{published} is lost at {subscription.id}"
        yield from (f"{key} was never published" for key in received)


def _is_due(published: Published, subscription: Subscribed) -> bool:
    if published.is_lost or subscription.in_force_s is None or subscription.in_force_s > published.at_s:
        return False
    ended_s = subscription.ended_s
    return ended_s is None or (published.settled_s is not None and published.settled_s <= ended_s)


def excused_by(reach: Reach | None, oracle: Oracle, buffered_s: float) -> Excused:
    """The stated rules by which a due publication may be lost.

    Guarantee (3): a broker that is silent for ``link_timeout_s`` is considered failed, with its subscribers (``reach``; None for
    protocols on trees). And brokers buffer for clients that stall, for ``buffered_s`` here: publications that are settled by that
    are lost if the client unsubscribes before it reads again.
    """

    def is_excused(published: Published, subscription: Subscribed) -> bool:
        settled_s, ended_s = published.settled_s, subscription.ended_s
        if subscription.is_stalled and settled_s is not None and ended_s is not None and settled_s >= ended_s - buffered_s:
            return True
        if reach is None:
            return False
        until_s = published.at_s if published.settled_s is None else published.settled_s
        sources = oracle.homes(published.publisher, published.at_s, until_s)
        targets = oracle.homes(subscription.client, published.at_s, until_s)
        return any(reach.excuses(source, target, published.at_s, until_s) for source in sources for target in targets)

    return is_excused
