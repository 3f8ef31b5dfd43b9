"""The clients of one seed: publishers, subscriptions that cover each other and come and go, clients that join, and the oracle."""

from collections import Counter
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from overweave.broker.client.publishing import ClientBarrier
from overweave.contract.effects import Parts
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter

_PUBLISHERS, _SUBSCRIBERS, _VALUES = 3, 7, 130
#: The subscriptions that come and go at a time, and the chance that one comes, and that one goes, in a step.
_CHURN_MAX, _COMES, _GOES = 8, 0.06, 0.04
ANY = parse_filter("[x,>=,0]")


class Subscription(msgspec.Struct):
    """A subscription, and from which publication on it is in force."""

    id: str
    client: str
    filter: Filter
    #: The first publication that is due; None: it is not in force yet.
    since: int | None = None
    #: When it was withdrawn: how many publications of each publisher were settled.
    settled: dict[str, int] | None = None

    def is_due(self, place: int, publisher: str, sequence: int) -> bool:
        """Whether a publication at a place in the order of all of them must arrive, if it matches."""
        return (
            self.since is not None and place >= self.since and (self.settled is None or sequence < self.settled.get(publisher, 0))
        )


class Traffic:
    """All clients of one network."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random
        self.publishers = [f"p{i}" for i in range(_PUBLISHERS)]
        self.subscribers = [f"s{i}" for i in range(_SUBSCRIBERS)]
        self.subscriptions: dict[str, Subscription] = {}
        self.published: list[tuple[str, int, Publication]] = []
        #: The clients that have crashed, with the number of publications that were settled then.
        self.dead: dict[str, int] = {}
        #: Clients that joined, and subscriptions that came, whose messages are not settled yet.
        self._pending: list[tuple[ClientBarrier, Subscription | str]] = []
        self._received: Counter[tuple[str, int, int, str]] = Counter()
        self._joined = 0

    # ---- crashes of clients

    def crashed(self, client: str, settled: int) -> None:
        """See `ClientObserver.crashed`."""
        self.dead[client] = settled

    def returned(self, client: str) -> None:
        """See `ClientObserver.returned`."""
        raise AssertionError(f"{client} returned")

    def expired(self, client: str) -> None:
        """See `ClientObserver.expired`."""

    # ---- actions

    def start(self, network: SimulatedNetwork, brokers: Sequence[str]) -> None:
        """Have the first clients enter; their subscriptions partly cover each other, and some are equal."""
        self._network = network
        for client in (*self.publishers, *self.subscribers):
            network.add_client(client, str(self._random.choice(brokers)))
        for publisher in self.publishers:
            network.say(publisher, Advertise(f"{publisher}/a", ANY))
        for number, subscriber in enumerate(self.subscribers):
            low = 12 * number + int(self._random.integers(12))
            self._subscribe(subscriber, parse_filter(f"[x,>=,{low}],[x,<=,{low + 30}]"))
            self._subscribe(subscriber, self._filter())
        network.run_until_quiescent()
        network.scheduler.run(network.scheduler.now_s + 3.0)  # brokers that start may not know each other for a while
        network.run_until_quiescent()
        self._look()

    def publish(self) -> None:
        """Have each publisher publish."""
        network = self._network
        for publisher in self.publishers:
            if publisher not in self.dead and network.client(publisher).unsettled_rows() < 100:
                content = Publication({"x": int(self._random.integers(_VALUES))})
                self.published.append((publisher, network.client(publisher).next_sequence, content))
                network.publish(publisher, content)

    def churn(self) -> None:
        """Now and then have a subscription come or go."""
        self._look()
        coming = [each for each in self.subscriptions.values() if "/c" in each.id and each.settled is None]
        living = [client for client in self.subscribers if client not in self.dead]
        if living and len(coming) < _CHURN_MAX and self._random.random() < _COMES:
            self._subscribe(str(self._random.choice(living)), self._filter(), "c")
        ready = [each for each in coming if each.since is not None and each.client not in self.dead]
        if ready and self._random.random() < _GOES:
            self._withdraw(ready[int(self._random.integers(len(ready)))])

    def join(self, brokers: Sequence[str]) -> None:
        """Have two clients join: a subscriber and a publisher, which publishes as soon as its advertisement is in force."""
        self._joined += 1
        subscriber, publisher = f"s-joined{self._joined}", f"p-joined{self._joined}"
        for client in (subscriber, publisher):
            self._network.add_client(client, str(self._random.choice(brokers)))
        self.subscribers.append(subscriber)
        self._subscribe(subscriber, self._filter())
        self._network.say(publisher, Advertise(f"{publisher}/a", ANY))
        self._pending.append((self._network.client(publisher).barrier(), publisher))

    def end_churn(self) -> None:
        """Have half of the subscriptions that came go; the others stay."""
        self._look()
        for number, each in enumerate([each for each in self.subscriptions.values() if "/c" in each.id]):
            if number % 2 and each.settled is None and each.client not in self.dead:
                self._withdraw(each)

    def _filter(self) -> Filter:
        """A filter of some width; one of four is as another one is."""
        if self.subscriptions and self._random.random() < 0.25:
            known = list(self.subscriptions.values())
            return known[int(self._random.integers(len(known)))].filter
        width = int(self._random.choice([5, 15, 40, 90]))
        low = int(self._random.integers(_VALUES - width))
        return parse_filter(f"[x,>=,{low}],[x,<=,{low + width}]")

    def _subscribe(self, client: str, filter: Filter, kind: str = "") -> None:
        made = Subscription(f"{client}/{kind}{len(self.subscriptions)}", client, filter)
        self.subscriptions[made.id] = made
        self._network.say(client, Subscribe(made.id, filter))
        self._pending.append((self._network.client(client).barrier(), made))

    def _withdraw(self, subscription: Subscription) -> None:
        network = self._network
        subscription.settled = {
            publisher: self.dead[publisher] if publisher in self.dead else network.client(publisher).settled_publications()
            for publisher in self.publishers
        }
        network.say(subscription.client, Unsubscribe(subscription.id))

    def _look(self) -> None:
        """See which messages are settled."""
        for barrier, what in list(self._pending):
            if isinstance(what, str):
                if barrier.settled and what not in self.dead:
                    self.publishers.append(what)
            elif barrier.settled and what.client not in self.dead:
                what.since = len(self.published)
        self._pending = [each for each in self._pending if not each[0].settled]

    # ---- the oracle

    def count(self, parts: Parts) -> None:
        """Count what arrives."""
        for subscription, batch in parts:
            for publisher, life, sequence in batch.identities():
                self._received[publisher, life, sequence, subscription] += 1

    def failures(self) -> Iterator[str]:
        """What is lost, repeated or wrong."""
        for place, (publisher, sequence, content) in enumerate(self.published):
            may_be_lost = sequence >= self.dead.get(publisher, 1 << 62)
            for id, each in self.subscriptions.items():
                count = self._received.pop((publisher, 1, sequence, id), 0)
                is_matching = matches(each.filter, content)
                if count > is_matching:
                    yield f"{publisher}:{sequence} arrived {count} times at {id}"
                elif count < is_matching and not may_be_lost and self._is_due(each, place, publisher, sequence):
                    yield f"{publisher}:{sequence} is lost at {id}"
        yield from (f"{key} was never published" for key in self._received)

    def _is_due(self, subscription: Subscription, place: int, publisher: str, sequence: int) -> bool:
        return subscription.client not in self.dead and subscription.is_due(place, publisher, sequence)

    def registered(self) -> Iterator[tuple[str, Advertise | Subscribe]]:
        """What the living clients have registered: advertisements first."""
        for client in sorted(self._network.clients()):
            if client.startswith("p"):
                yield client, Advertise(f"{client}/a", ANY)
        for each in self.subscriptions.values():
            if each.settled is None and each.client not in self.dead:
                yield each.client, Subscribe(each.id, each.filter)
