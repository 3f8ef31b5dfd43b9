"""One seed of migrations: clients move between simulated brokers under faults, against a brute-force oracle of deliveries.

Clients move with all they have or in part, and subscribe, advertise and withdraw meanwhile. Each publication must arrive once at
each subscription that matches it. Every migration must end within the deadlines of its phases, and nothing may be left in tables
and journals when all clients have gone.
"""

import itertools
from collections.abc import Iterator, Sequence

import msgspec
import numpy as np

from overweave.broker.client.publishing import ClientBarrier
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.generations import stable_id
from overweave.language.messages import Advertise, Subscribe, Unadvertise, Unsubscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.testing.fault_classes import TREES, migration_fault_classes
from overweave.testing.migration_oracle import Oracle, Subscribed, excused_by
from overweave.testing.migration_watch import Orders, PhaseWatch
from overweave.testing.seeds.reach import Reach

#: Protocols on any overlay.
GRAPHS = ("destination", "merc")
KINDS = ("subscriber", "publisher", "both", "back-and-forth")
FAULTS = migration_fault_classes(until_s=12.0)
_PUBLISHERS, _SUBSCRIBERS, _EVERY_S, _TRAFFIC_S = 2, 4, 0.02, 16.0
_START_S = 3.0
#: The longest migration: all waits of a client, one after the other, and of its order.
_ENDED_WITHIN_S, _STEP_S = 300.0, 0.1
#: Sessions of crashed clients expire within this time.
_EMPTY_WITHIN_S = 60.0
#: Shares of orders that move a part of a client, and during which a client subscribes, advertises or withdraws.
_PARTIAL, _CHANGED = 0.4, 0.5
#: The longest delay from an order to such a change: most migrations are still in progress.
_CHANGE_S = 0.3
_STALL_TIMEOUT_S = 0.3


class Outcome(msgspec.Struct):
    """The result of one run, or of several."""

    publications: int = 0
    due: int = 0
    #: Due deliveries that are missing under `destination` and `merc`, because a broker was silent.
    excused: int = 0
    orders: int = 0
    moved: int = 0
    rejected: int = 0
    #: Orders without a result, because their broker or client has crashed.
    unknown: int = 0
    #: The longest time in each phase of a migration.
    longest_s: dict[str, float] = {}
    failures: list[str] = []

    def add(self, other: "Outcome") -> None:
        """Add the result of another run."""
        for name in ("publications", "due", "excused", "orders", "moved", "rejected", "unknown"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for phase, time_s in other.longest_s.items():
            self.longest_s[phase] = max(self.longest_s.get(phase, 0.0), time_s)


class _Advertised(msgspec.Struct):
    """An advertisement of an attribute, and the barrier behind it."""

    id: str
    barrier: ClientBarrier


class _Run:
    def __init__(self, seed: int, protocol: str, kind: str, faults: str) -> None:
        self._random = np.random.default_rng((seed, 7))
        self._kind, self._overlay = kind, _overlay(protocol, seed, self._random)
        config = _config(protocol, faults)
        self._network = network = SimulatedNetwork(
            self._overlay, PROTOCOLS[protocol].make, seed, FAULTS[faults], Costs(link_delay_s=0.01), config,
            on_delivery=lambda parts: self._oracle.receive(parts),
        )  # fmt: skip
        self._oracle, self._watch, self._orders = Oracle(network), PhaseWatch(network), Orders(network)
        #: How long a broker may buffer for a client that does not read.
        self._buffered_s = 0.0 if config.stall_timeout_s is None else FAULTS[faults].pause_s
        reroutes = PROTOCOLS[protocol].reroutes
        self._reach = Reach(self._overlay, protocol, config.link_timeout_s, network, until_s=100.0) if reroutes else None
        self._publishers = [f"p{i}" for i in range(_PUBLISHERS)]
        self._subscribers = [f"s{i}" for i in range(_SUBSCRIBERS)]
        if kind == "both":  # and clients that do both
            self._publishers, self._subscribers = [*self._publishers, "s0"], [*self._subscribers, "p0"]
        #: By publisher and attribute.
        self._advertised: dict[str, dict[str, _Advertised]] = {}
        #: Subscriptions that are not in force yet, and advertisements whose publications are not settled yet.
        self._subscribing: list[tuple[ClientBarrier, Subscribed]] = []
        self._withdrawing: list[tuple[str, _Advertised]] = []
        self._ids = itertools.count()
        self._failures: list[str] = []
        network.client_processes.observer = self

    # ---- crashes of clients (`ClientObserver`)

    def crashed(self, client: str, settled: int) -> None:
        """Expect nothing more of a client, and that its later publications may be lost."""
        self._oracle.crash(client, settled)
        self._advertised.pop(client, None)
        self._withdrawing = [each for each in self._withdrawing if each[0] != client]

    def returned(self, client: str) -> None:
        """Start a new process of a client."""
        self._register(client)

    def expired(self, client: str) -> None:
        """A client that runs is back before its session expires."""
        self._failures.append(f"the session of {client} has expired")

    # ---- phases

    def outcome(self) -> Outcome:
        """Run, check, and have all clients leave."""
        network = self._network
        self._start()
        end_s = network.scheduler.now_s + _TRAFFIC_S
        next_order_s = network.scheduler.now_s + 0.5
        while network.scheduler.now_s < end_s:
            for publisher in self._attached(self._publishers):
                if network.client(publisher).unsettled_rows() < 100:
                    self._publish(publisher)
            if network.scheduler.now_s >= next_order_s:
                self._order()
                next_order_s += float(self._random.exponential(1.0))
            self._run(_EVERY_S)
        self._failures += [*self._settle(), *self._watch.failures(), *self._orders.failures()]
        self._failures += [*self._orders.misplaced(), *self._check_homes()]
        self._failures += self._oracle.check(excused_by(self._reach, self._oracle, self._buffered_s))
        self._failures += self._leave()
        moved, rejected, unknown = self._orders.counts()
        return Outcome(
            self._oracle.published, self._oracle.due, self._oracle.excused, moved + rejected + unknown, moved, rejected, unknown,
            self._watch.longest_s, self._failures,
        )  # fmt: skip

    def _run(self, duration_s: float) -> None:
        """Run for some time, and see what has changed."""
        network = self._network
        network.scheduler.run(network.scheduler.now_s + duration_s)
        self._oracle.observe()
        self._watch.observe()
        for barrier, subscription in self._subscribing:
            if barrier.settled and subscription.ended_s is None:
                subscription.in_force_s = network.scheduler.now_s
        self._subscribing = [each for each in self._subscribing if not each[0].settled and each[1].ended_s is None]
        for client, advertised in self._withdrawing:
            if advertised.barrier.settled:
                network.say(client, Unadvertise(advertised.id))
        self._withdrawing = [each for each in self._withdrawing if not each[1].barrier.settled]

    def _start(self) -> None:
        network = self._network
        for client in dict.fromkeys((*self._publishers, *self._subscribers)):
            network.add_client(client, str(self._random.choice(self._overlay.ids)))
            self._register(client)
        network.run_until_quiescent()
        self._run(_START_S)  # brokers that start may not know each other for a while
        network.run_until_quiescent()
        while not self._attached(self._publishers):  # a run without publications shows nothing
            self._publishers.append(f"p{len(self._publishers)}")
            network.add_client(self._publishers[-1], str(self._random.choice(self._overlay.ids)))
            self._register(self._publishers[-1])
            network.run_until_quiescent()
        self._run(_EVERY_S)

    # ---- clients

    def _attached(self, clients: Sequence[str]) -> list[str]:
        attached = set(self._network.clients())
        return [client for client in clients if client in attached]

    def _register(self, client: str) -> None:
        """Advertise and subscribe, as each new process does."""
        if client in self._publishers:
            self._advertise(client, "x")
        if client in self._subscribers:
            for attribute in ("x", "x", "y"):
                self._subscribe(client, attribute)

    def _advertise(self, publisher: str, attribute: str) -> None:
        id = f"{publisher}/a{next(self._ids)}"
        self._network.say(publisher, Advertise(id, parse_filter(f"[{attribute},>=,0]")))
        advertised = _Advertised(id, self._network.client(publisher).barrier())
        self._advertised.setdefault(publisher, {})[attribute] = advertised

    def _subscribe(self, subscriber: str, attribute: str) -> None:
        id, filter = f"{subscriber}/{next(self._ids)}", self._draw_filter(attribute)
        self._oracle.subscriptions[id] = made = Subscribed(id=id, client=subscriber, filter=filter)
        self._network.say(subscriber, Subscribe(id, filter))
        self._subscribing.append((self._network.client(subscriber).barrier(), made))

    def _draw_filter(self, attribute: str) -> Filter:
        low = int(self._random.integers(80))
        return parse_filter(f"[{attribute},>=,{low}],[{attribute},<=,{low + int(self._random.integers(40))}]")

    def _publish(self, publisher: str) -> None:
        """Publish one of the attributes that are advertised."""
        ready = [name for name, advertised in self._advertised[publisher].items() if advertised.barrier.settled]
        if ready:
            content = Publication({str(self._random.choice(ready)): int(self._random.integers(100))})
            self._oracle.publish(publisher, content)
            self._network.publish(publisher, content)

    def _change(self, what: tuple[str, int]) -> None:
        """Have a client, in the middle of a migration, advertise, subscribe or withdraw, unless it has crashed."""
        client, life = what
        if client not in self._network.clients() or self._network.client_processes.life(client) != life:
            return
        if client in self._publishers and (client not in self._subscribers or self._random.random() < 0.5):
            withdrawn = self._advertised[client].pop("y", None)
            if withdrawn is None:
                self._advertise(client, "y")
            else:  # when everything that was published under it is settled
                self._withdrawing.append((client, _Advertised(withdrawn.id, self._network.client(client).barrier())))
            return
        mine = [each for each in self._oracle.subscriptions.values() if each.client == client and each.ended_s is None]
        if len(mine) > 2 and self._random.random() < 0.5:
            chosen = mine[int(self._random.integers(len(mine)))]
            self._oracle.end(chosen)
            self._network.say(client, Unsubscribe(chosen.id))
        else:
            self._subscribe(client, str(self._random.choice(["x", "y"])))

    # ---- orders

    def _order(self) -> None:
        """Order a random client to move, all of it or a part; under some kinds to a certain place."""
        network, clients = self._network, dict.fromkeys((*self._subscribers, *self._publishers))
        movers = {"subscriber": self._subscribers, "publisher": self._publishers}.get(
            self._kind, [*self._subscribers[:1], *self._publishers[:1]] if self._kind == "back-and-forth" else list(clients)
        )
        movers = self._attached(movers)
        if not movers:
            return
        client = str(self._random.choice(movers))
        core = network.client(client)
        homes = [peer for peer in core.peers() if peer == core.broker or core.view.subscriptions(peer)]
        source = str(self._random.choice(homes))
        places = self._overlay.ids[:2] if self._kind == "back-and-forth" else self._overlay.ids
        to = str(self._random.choice([broker for broker in places if broker != source]))
        subscriptions, publishing = self._draw_parts(client, sorted(core.view.subscriptions(source)))
        order = network.client_processes.migrate(client, to, subscriptions=subscriptions, publishing=publishing, source=source)
        self._orders.add(order, source)
        if self._random.random() < _CHANGED:
            life = network.client_processes.life(client)
            after_s = _CHANGE_S * float(self._random.random())
            network.scheduler.at(network.scheduler.now_s + after_s, self._change, (client, life))

    def _draw_parts(self, client: str, subscriptions: list[str]) -> tuple[tuple[str, ...] | None, bool]:
        """All of a client, one or some of its subscriptions, or its publishing side alone."""
        if self._random.random() >= _PARTIAL:
            return None, True
        if client in self._publishers and (not subscriptions or self._random.random() < 0.5):
            return (), True
        count = 1 + int(self._random.integers(len(subscriptions))) if subscriptions else 0
        return tuple(map(str, self._random.permutation(subscriptions)[:count])), False

    # ---- checks

    def _settle(self) -> Iterator[str]:
        network = self._network
        end_s = network.scheduler.now_s + _ENDED_WITHIN_S
        while self._withdrawing or network.unsettled() or self._migrating() or not network.all_connected():
            if network.scheduler.now_s > end_s:
                text = f"{network.unsettled()} messages, migrations of {self._migrating()}"
                yield f"not settled within {_ENDED_WITHIN_S:g} s: {text}"
                return
            self._run(_STEP_S)
        self._run(_STEP_S)

    def _migrating(self) -> list[str]:
        return [client for client in self._network.clients() if self._network.client(client).is_migrating]

    def _check_homes(self) -> Iterator[str]:
        """Every registration must be at one broker."""
        for client in self._network.clients():
            core = self._network.client(client)
            at = sorted(stable_id(each.id) for peer in core.peers() for each in core.registered(peer))
            expected = [each.id for each in self._oracle.subscriptions.values() if each.client == client and each.ended_s is None]
            expected += [each.id for each in self._advertised.get(client, {}).values()]
            if at != sorted(expected):
                yield f"{client} has {at} at {core.peers()}, expected {sorted(expected)}"

    def _leave(self) -> Iterator[str]:
        """Have all clients leave; nothing may be left of them."""
        network = self._network
        for client in network.clients():
            network.remove_client(client)
        network.scheduler.run(network.scheduler.now_s + _EMPTY_WITHIN_S)
        for id in network.running():
            left = {name: size for name, size in network.broker(id).statistics().tables.items() if size}
            if left or network.broker(id).clients() or network.journal(id) or network.broker(id).migrations():
                yield f"{id} has {left}, clients {network.broker(id).clients()}, journal {len(network.journal(id))} entries"


def run_seed(seed: int, protocol: str, kind: str, faults: str) -> Outcome:
    """One run."""
    return _Run(seed, protocol, kind, faults).outcome()


def _overlay(protocol: str, seed: int, random: np.random.Generator) -> Overlay:
    brokers = 4 + int(random.integers(5))
    if protocol in TREES:
        return make_overlay("random-tree", brokers=brokers, degree_max=3, seed=seed)
    if protocol == "merc":
        return make_overlay("clustered-chain", brokers=5 + seed % 3)
    return make_overlay("random-graph", brokers=brokers, degree=2 * (brokers + brokers // 3) / brokers, seed=seed)


def _config(protocol: str, faults: str) -> BrokerConfig:
    loses = FAULTS[faults].lose_frames
    # As in live brokers: a protocol that routes around failures has to detect them.
    heartbeat_s = 0.5 if loses or PROTOCOLS[protocol].reroutes else None
    session = SessionConfig(window=64, retransmit_s=0.3 if loses else None)
    return BrokerConfig(session, heartbeat_s=heartbeat_s, stall_timeout_s=_STALL_TIMEOUT_S if faults == "stalls" else None)
