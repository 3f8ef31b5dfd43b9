"""Seeds of migrations: clients move between simulated brokers under faults, against a brute-force oracle of deliveries.

``python -m overweave.testing.migrations --seeds 500`` runs every protocol with every kind of client and class of faults in turn.
Each publication must arrive once at each subscription that matches it. Every migration must end, and nothing may be left
in tables and journals when all clients have gone.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Parts
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.shapes import make_overlay
from overweave.routing import PROTOCOLS
from overweave.testing.fault_classes import TREES, fault_classes

#: Protocols on any overlay.
GRAPHS = ("destination", "merc")
KINDS = ("subscriber", "publisher", "both", "back-and-forth")
FAULTS = fault_classes(until_s=12.0)
_PUBLISHERS, _SUBSCRIBERS, _EVERY_S, _TRAFFIC_S = 2, 4, 0.02, 16.0
_START_S = 3.0
#: The longest migration: all waits of a client, one after the other, and of its order.
_ENDED_WITHIN_S = 300.0


class Outcome(msgspec.Struct):
    """The result of one run."""

    expected: int = 0
    orders: int = 0
    moved: int = 0
    rejected: int = 0
    failures: list[str] = []


class _Run:
    def __init__(self, seed: int, protocol: str, kind: str, faults: str) -> None:
        self._random = np.random.default_rng((seed, 7))
        self._kind, self._overlay = kind, _overlay(protocol, seed, self._random)
        self._received: Counter[tuple[str, int, int, str]] = Counter()
        self._network = SimulatedNetwork(
            self._overlay, PROTOCOLS[protocol].make, seed, FAULTS[faults], Costs(link_delay_s=0.01), _config(faults),
            on_delivery=self._count,
        )  # fmt: skip
        self._publishers = [f"p{i}" for i in range(_PUBLISHERS)]
        self._subscribers = [f"s{i}" for i in range(_SUBSCRIBERS)]
        self._filters: dict[str, tuple[str, Filter]] = {}
        self._published: list[tuple[str, int, Publication]] = []
        #: The clients that have crashed, with the number of publications that were settled then.
        self._crashed: dict[str, int] = {}
        self._network.client_processes.observer = self
        self._orders: list[str] = []

    # ---- crashes of clients

    def crashed(self, client: str, settled: int) -> None:
        self._crashed[client] = settled

    def returned(self, client: str) -> None:
        raise AssertionError(f"{client} returned")

    def expired(self, client: str) -> None:
        pass

    # ---- phases

    def outcome(self) -> Outcome:
        network = self._network
        self._start()
        start_s = network.scheduler.now_s
        next_order_s = start_s + 0.5
        while network.scheduler.now_s < start_s + _TRAFFIC_S:
            for publisher in self._publishers:
                if publisher not in self._crashed and network.client(publisher).unsettled_rows() < 100:
                    self._publish(publisher)
            if network.scheduler.now_s >= next_order_s:
                self._order()
                next_order_s += float(self._random.exponential(1.0))
            network.scheduler.run(network.scheduler.now_s + _EVERY_S)
        failures = [*self._settle(), *self._check_deliveries(), *self._leave()]
        errors = [network.migrations.get(token, "down") for token in self._orders]
        moved = sum(error is None for error in errors)
        return Outcome(len(self._published), len(errors), moved, len(errors) - moved, failures)

    def _start(self) -> None:
        network = self._network
        for client in (*self._publishers, *self._subscribers):
            network.add_client(client, str(self._random.choice(self._overlay.ids)))
        for publisher in self._publishers:
            self._advertise(publisher)
        for subscriber in self._subscribers:
            for number in range(2):
                low = int(self._random.integers(80))
                id, filter = f"{subscriber}/{number}", parse_filter(f"[x,>=,{low}],[x,<=,{low + int(self._random.integers(40))}]")
                self._filters[id] = subscriber, filter
                network.say(subscriber, Subscribe(id, filter))
        network.run_until_quiescent()
        network.scheduler.run(network.scheduler.now_s + _START_S)  # brokers that start may not know each other for a while
        network.run_until_quiescent()
        while self._crashed.keys() >= set(self._publishers):  # a run without publications shows nothing
            self._publishers.append(f"p{len(self._publishers)}")
            network.add_client(self._publishers[-1], str(self._random.choice(self._overlay.ids)))
            self._advertise(self._publishers[-1])
            network.run_until_quiescent()

    def _advertise(self, publisher: str) -> None:
        self._network.say(publisher, Advertise(f"{publisher}/a", parse_filter("[x,>=,0]")))

    def _publish(self, publisher: str) -> None:
        network = self._network
        content = Publication({"x": int(self._random.integers(100))})
        self._published.append((publisher, network.client(publisher).next_sequence, content))
        network.publish(publisher, content)

    def _order(self) -> None:
        """Order a random client to move; under some kinds to a certain place."""
        movers = {"subscriber": self._subscribers, "publisher": self._publishers}.get(
            self._kind, [*self._subscribers[:1], *self._publishers[:1]] if self._kind == "back-and-forth" else
            [*self._subscribers, *self._publishers],
        )  # fmt: skip
        movers = [client for client in movers if client not in self._crashed]
        if not movers:
            return
        client = str(self._random.choice(movers))
        places = self._overlay.ids[:2] if self._kind == "back-and-forth" else self._overlay.ids
        source = next(iter(self._network._table.clients[client]))
        to = str(self._random.choice([broker for broker in places if broker != source]))
        self._orders.append(self._network.client_processes.migrate(client, to).token)

    # ---- checks

    def _settle(self) -> Iterator[str]:
        network = self._network
        end_s = network.scheduler.now_s + _ENDED_WITHIN_S
        moving = [client for client in (*self._publishers, *self._subscribers) if client not in self._crashed]
        while network.unsettled() or any(network.client(client).is_migrating for client in moving):
            if network.scheduler.now_s > end_s:
                late = [client for client in moving if network.client(client).is_migrating]
                yield f"not settled within {_ENDED_WITHIN_S:g} s: {network.unsettled()} messages, migrations of {late}"
                return
            network.scheduler.run(network.scheduler.now_s + 0.5)
            moving = [client for client in moving if client not in self._crashed]

    def _check_deliveries(self) -> Iterator[str]:
        for publisher, sequence, content in self._published:
            is_lost = sequence >= self._crashed.get(publisher, 1 << 62)
            for id, (subscriber, filter) in self._filters.items():
                count = self._received.pop((publisher, 1, sequence, id), 0)
                is_expected = matches(filter, content)
                if count > is_expected:
                    yield f"{publisher}:{sequence} arrived {count} times at {id}"
                elif count < is_expected and not is_lost and subscriber not in self._crashed:
                    yield f"{publisher}:{sequence} is lost at {id}"
        yield from (f"{key} was never published" for key in self._received)

    def _leave(self) -> Iterator[str]:
        """Have all clients leave; nothing may be left of them."""
        network = self._network
        for client in (*self._publishers, *self._subscribers):
            if client not in self._crashed:
                network.remove_client(client)
        network.scheduler.run(network.scheduler.now_s + 60.0)  # sessions of crashed clients expire
        for id in network.running():
            left = {name: size for name, size in network.broker(id).statistics().tables.items() if size}
            if left or network.broker(id).clients() or network.journal(id) or network.broker(id).migrations():
                yield f"{id} has {left}, clients {network.broker(id).clients()}, journal {len(network.journal(id))} entries"

    def _count(self, parts: Parts) -> None:
        for subscription, batch in parts:
            for publisher, life, sequence in batch.identities():
                self._received[publisher, life, sequence, subscription] += 1


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


def _config(faults: str) -> BrokerConfig:
    loses = FAULTS[faults].lose_frames
    return BrokerConfig(SessionConfig(window=64, retransmit_s=0.3 if loses else None), heartbeat_s=0.5 if loses else None)


def main(arguments: list[str]) -> int:
    """Run seeds and print what failed."""
    parser = argparse.ArgumentParser(prog="python -m overweave.testing.migrations", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=100, help="runs of each kind on trees; graphs get 2 of 5")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--protocol", choices=(*TREES, *GRAPHS), action="append")
    parser.add_argument("--faults", choices=tuple(FAULTS), action="append")
    parser.add_argument("--kind", choices=KINDS, action="append")
    given = parser.parse_args(arguments)
    totals, failed = Outcome(), 0
    classes, protocols = given.faults or list(FAULTS), given.protocol or [*TREES, *GRAPHS]
    for kind in given.kind or KINDS:
        for seed in range(given.first, given.first + given.seeds):
            protocol, faults = protocols[seed % len(protocols)], classes[seed // len(protocols) % len(classes)]
            outcome = run_seed(seed, protocol, kind, faults)
            failed += bool(outcome.failures)
            for name in ("expected", "orders", "moved", "rejected"):
                setattr(totals, name, getattr(totals, name) + getattr(outcome, name))
            for failure in outcome.failures[:3]:
                print(f"seed {seed} {protocol} {kind} {faults}: {failure} ({len(outcome.failures)} in all)", flush=True)
    print(f"{totals.expected:,} publications, {totals.orders:,} orders: {totals.moved:,} moved, {totals.rejected:,} rejected")
    print(f"{failed} runs failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
