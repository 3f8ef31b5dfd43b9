"""One seed: a random tree with clients becomes another one under traffic and faults, while the coordinator and brokers crash."""

from collections import Counter
from collections.abc import Iterator

import msgspec
import numpy as np

from overweave.broker.modules.collector import Collector
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Parts
from overweave.contract.observation import COLLECTOR
from overweave.contract.overlay_state import OverlayState, Phase
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.language.messages import Advertise, Subscribe
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.language.relations import matches
from overweave.language.syntax import parse_filter
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import link_ends
from overweave.overlay.shapes import make_overlay
from overweave.reweave.coordinator import Done, next_step
from overweave.reweave.states import links_of
from overweave.reweave.target import Target
from overweave.routing import PROTOCOLS
from overweave.testing.fault_classes import fault_classes
from overweave.testing.reweave.executor import NextStep, SimulatedApply

#: Protocols that route around failures; only some classes of faults are known to pass with them.
GRAPHS = ("destination",)
FAULTS = fault_classes(until_s=20.0)
_PUBLISHERS, _SUBSCRIBERS, _EVERY_S, _TRAFFIC_S = 3, 7, 0.02, 24.0
#: The time limits of a change and of all migrations, and what sessions of crashed clients take to expire.
_CHANGED_WITHIN_S, _SETTLED_WITHIN_S, _EXPIRY_S = 600.0, 300.0, 60.0
_CRASH_S, _CUT_S = 1.0, 2.0


class Outcome(msgspec.Struct):
    """The result of one run."""

    publications: int = 0
    moved: int = 0
    kills: int = 0
    crashes: int = 0
    duration_s: float = 0.0
    failures: list[str] = []


class _Run:
    def __init__(self, seed: int, protocol: str, faults: str, step: NextStep) -> None:
        self._random = np.random.default_rng((seed, 11))
        self._protocol, self._step = protocol, step
        self._overlay = make_overlay("random-tree", brokers=3 + int(self._random.integers(5)), degree_max=3, seed=seed)
        self._received: Counter[tuple[str, int, int, str]] = Counter()
        loses = FAULTS[faults].lose_frames
        # As in live brokers: a protocol that routes around failures has to detect them.
        beats = loses or PROTOCOLS[protocol].reroutes
        self._network = SimulatedNetwork(
            self._overlay, PROTOCOLS[protocol].make, seed, FAULTS[faults], Costs(link_delay_s=0.01),
            BrokerConfig(SessionConfig(window=64, retransmit_s=0.3 if loses else None), heartbeat_s=0.5 if beats else None),
            lambda at: {COLLECTOR: Collector(at)}, self._count,
        )  # fmt: skip
        self._publishers = [f"p{i}" for i in range(_PUBLISHERS)]
        self._subscribers = [f"s{i}" for i in range(_SUBSCRIBERS)]
        self._filters: dict[str, tuple[str, Filter]] = {}
        self._published: list[tuple[str, int, Publication]] = []
        #: The clients that have crashed, with the number of publications that were settled then.
        self._crashed: dict[str, int] = {}
        self._crashes = 0
        self._crashes_brokers = faults not in ("none", "cuts")
        self._cuts_links = FAULTS[faults].cut_every_s is not None
        self._kills = faults != "none"
        self._network.client_processes.observer = self

    # ---- crashes

    def crashed(self, client: str, settled: int) -> None:
        """See `ClientObserver.crashed`."""
        self._crashed[client] = settled

    def returned(self, client: str) -> None:
        """See `ClientObserver.returned`."""
        raise AssertionError(f"{client} returned")

    def expired(self, client: str) -> None:
        """See `ClientObserver.expired`."""

    def _on_published(self, state: OverlayState) -> None:
        """Crash a broker in each phase, and cut the links of an old tree when the new one is used."""
        if self._cuts_links and state.version.phase == Phase.USED:
            old, new = (links_of(tree) for tree in state.trees)
            for ends in sorted((old - new) & set(self._network.connections())):
                self._network.cut_link(ends, _CUT_S)
        running = self._network.running()
        if self._crashes_brokers and len(running) > 1:
            self._crashes += 1
            self._network.crash(str(self._random.choice(running)), _CRASH_S)

    # ---- phases

    def outcome(self) -> Outcome:
        network = self._network
        self._start()
        target, start_s = self._target(), network.scheduler.now_s
        kill = 0.1 * self._kills
        change = SimulatedApply(network, target, self._random, kill, self._on_published, self._step)
        while network.scheduler.now_s < start_s + 0.5:
            self._tick()
        while change.ended is None and network.scheduler.now_s < start_s + _CHANGED_WITHIN_S:
            change.tick()
            self._tick(traffic=network.scheduler.now_s < start_s + _TRAFFIC_S)
        duration_s = network.scheduler.now_s - start_s
        for _ in range(50):
            self._tick()
        failures = [*self._ended(change, target), *self._settle(), *self._check_deliveries()]
        failures += [] if failures else self._check_tables(target)
        moved = sum(error is None for error in network.migrations.values())
        return Outcome(len(self._published), moved, change.kills, self._crashes, duration_s, failures)

    def _start(self) -> None:
        network = self._network
        for client in (*self._publishers, *self._subscribers):
            network.add_client(client, str(self._random.choice(self._overlay.ids)))
        for publisher in self._publishers:
            network.say(publisher, Advertise(f"{publisher}/a", parse_filter("[x,>=,0]")))
        for number, subscriber in enumerate(self._subscribers):
            low = 12 * number + int(self._random.integers(12))  # no filter covers another: tables do not depend on their order
            id, filter = f"{subscriber}/0", parse_filter(f"[x,>=,{low}],[x,<=,{low + 30}]")
            self._filters[id] = subscriber, filter
            network.say(subscriber, Subscribe(id, filter))
        network.run_until_quiescent()
        network.scheduler.run(network.scheduler.now_s + 3.0)  # brokers that start may not know each other for a while
        network.run_until_quiescent()

    def _target(self) -> Target:
        """Some of the brokers and some new ones in a random tree; some clients are not known."""
        draw, old = self._random, list(self._overlay.ids)
        kept = [old[i] for i in draw.permutation(len(old))[: 1 + int(draw.integers(len(old)))]]
        brokers = [*kept, *(f"N{i}" for i in range(int(draw.integers(3))))]
        order = [brokers[i] for i in draw.permutation(len(brokers))]
        links = tuple(link_ends(id, order[int(draw.integers(at))]) for at, id in enumerate(order) if at)
        clients = {name: str(draw.choice(brokers)) for name in (*self._publishers, *self._subscribers) if draw.random() < 0.8}
        return Target(change="seed", brokers=tuple(brokers), links=links, before=tuple(old), clients=clients)

    def _tick(self, *, traffic: bool = True) -> None:
        network = self._network
        for publisher in self._publishers if traffic else ():
            if publisher not in self._crashed and network.client(publisher).unsettled_rows() < 100:
                content = Publication({"x": int(self._random.integers(130))})
                self._published.append((publisher, network.client(publisher).next_sequence, content))
                network.publish(publisher, content)
        network.scheduler.run(network.scheduler.now_s + _EVERY_S)

    # ---- checks

    def _ended(self, change: SimulatedApply, target: Target) -> Iterator[str]:
        network = self._network
        if not isinstance(change.ended, Done):
            yield f"not complete: {change.ended or change.last_reason}"
            return
        running = set(network.running())
        if running != set(target.brokers):
            yield f"{sorted(running)} run, expected {sorted(target.brokers)}"
        for client, broker in target.clients.items():
            homes = self._network._table.clients.get(client)
            if homes is not None and broker not in homes and client not in change.ended.stayed:
                yield f"{client} is at {list(homes)}, expected {broker}"

    def _settle(self) -> Iterator[str]:
        network = self._network
        end_s = network.scheduler.now_s + _SETTLED_WITHIN_S
        while network.unsettled() or any(network.client(client).is_migrating for client in network.clients()):
            if network.scheduler.now_s > end_s:
                yield f"not settled within {_SETTLED_WITHIN_S:g} s: {network.unsettled()} messages"
                return
            network.scheduler.run(network.scheduler.now_s + 0.5)

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

    def _check_tables(self, target: Target) -> Iterator[str]:
        """Tables are those of a network that was built with the new tree."""
        network = self._network
        network.scheduler.run(network.scheduler.now_s + _EXPIRY_S)  # sessions of crashed clients expire
        fresh = SimulatedNetwork(Overlay(target.brokers, target.links), PROTOCOLS[self._protocol].make)
        for client in network.clients():
            for broker in network._table.clients[client]:
                fresh.add_client(client, broker)
            if client in self._publishers:
                fresh.say(client, Advertise(f"{client}/a", parse_filter("[x,>=,0]")))
        fresh.run_until_quiescent()
        for id, (client, filter) in self._filters.items():
            if client not in self._crashed:
                fresh.say(client, Subscribe(id, filter))
        fresh.run_until_quiescent()
        for id in network.running():
            found, expected = network.broker(id).statistics().tables, fresh.broker(id).statistics().tables
            if found != expected:
                yield f"tables of {id}: {found}, of a new network: {expected}"
            network.broker(id).validate()

    def _count(self, parts: Parts) -> None:
        for subscription, batch in parts:
            for publisher, life, sequence in batch.identities():
                self._received[publisher, life, sequence, subscription] += 1


def run_seed(seed: int, protocol: str, faults: str, step: NextStep = next_step) -> Outcome:
    """One run."""
    return _Run(seed, protocol, faults, step).outcome()
