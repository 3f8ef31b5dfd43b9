"""One seed: a random tree with clients becomes another one under traffic and faults, while the coordinator and brokers crash.

Meanwhile subscriptions come and go, and clients join.
"""

from collections.abc import Iterator

import msgspec
import numpy as np

from overweave.broker.modules.collector import Collector
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.observation import COLLECTOR
from overweave.contract.overlay_state import OverlayState, Phase
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.network import SimulatedNetwork
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import link_ends
from overweave.overlay.shapes import make_overlay
from overweave.reweave.coordinator import Done, next_step
from overweave.reweave.states import current_tree, links_of
from overweave.reweave.target import Target
from overweave.routing import PROTOCOLS
from overweave.testing.fault_classes import fault_classes
from overweave.testing.reweave.executor import NextStep, SimulatedApply
from overweave.testing.reweave.tables import differences
from overweave.testing.reweave.traffic import Traffic

#: Protocols that route around failures.
GRAPHS = ("destination", "merc")
FAULTS = fault_classes(until_s=20.0)
_EVERY_S, _TRAFFIC_S = 0.02, 24.0
#: When clients join.
_JOINS_S = (1.0, 3.0, 6.0)
#: The time limits of a change and of all migrations, and what sessions of crashed clients take to expire.
_CHANGED_WITHIN_S, _SETTLED_WITHIN_S, _EXPIRY_S = 600.0, 300.0, 60.0
_CRASH_S, _CUT_S = 1.0, 2.0


class Outcome(msgspec.Struct):
    """The result of one run."""

    publications: int = 0
    moved: int = 0
    kills: int = 0
    crashes: int = 0
    #: Subscriptions that came while the network changed.
    came: int = 0
    duration_s: float = 0.0
    failures: list[str] = []


class _Run:
    def __init__(self, seed: int, protocol: str, faults: str, step: NextStep) -> None:
        self._random = np.random.default_rng((seed, 11))
        self._protocol, self._step = protocol, step
        self._overlay = make_overlay("random-tree", brokers=3 + int(self._random.integers(5)), degree_max=3, seed=seed)
        self._traffic = Traffic(self._random)
        loses = FAULTS[faults].lose_frames
        # As in live brokers: a protocol that routes around failures has to detect them.
        beats = loses or PROTOCOLS[protocol].reroutes
        self._network = SimulatedNetwork(
            self._overlay, PROTOCOLS[protocol].make, seed, FAULTS[faults], Costs(link_delay_s=0.01),
            BrokerConfig(SessionConfig(window=64, retransmit_s=0.3 if loses else None), heartbeat_s=0.5 if beats else None),
            lambda at: {COLLECTOR: Collector(at)}, self._traffic.count,
        )  # fmt: skip
        self._crashes, self._phase = 0, Phase.PREPARED
        self._crashes_brokers = faults not in ("none", "cuts")
        self._cuts_links = FAULTS[faults].cut_every_s is not None
        self._kills = faults != "none"
        self._network.client_processes.observer = self._traffic

    def _on_published(self, state: OverlayState) -> None:
        """Crash a broker in each phase, and cut the links of an old tree when the new one is used."""
        self._phase = state.version.phase
        if self._cuts_links and self._phase == Phase.USED:
            old, new = (links_of(tree) for tree in state.trees)
            for ends in sorted((old - new) & set(self._network.connections())):
                self._network.cut_link(ends, _CUT_S)
        running = self._network.running()
        if self._crashes_brokers and len(running) > 1:
            self._crashes += 1
            self._network.crash(str(self._random.choice(running)), _CRASH_S)

    # ---- phases

    def outcome(self) -> Outcome:
        network, traffic = self._network, self._traffic
        traffic.start(network, self._overlay.ids)
        first = len(traffic.subscriptions)
        target, start_s = self._target(), network.scheduler.now_s
        change = SimulatedApply(network, target, self._random, 0.1 * self._kills, self._on_published, self._step)
        while network.scheduler.now_s < start_s + 0.5:
            self._tick()
        joins_s = [start_s + after_s for after_s in _JOINS_S]
        while change.ended is None and network.scheduler.now_s < start_s + _CHANGED_WITHIN_S:
            change.tick()
            traffic.churn()
            if joins_s and network.scheduler.now_s >= joins_s[0] and (brokers := self._open_brokers(target)):
                joins_s.pop(0)
                traffic.join(brokers)
            self._tick(is_busy=network.scheduler.now_s < start_s + _TRAFFIC_S)
        duration_s = network.scheduler.now_s - start_s
        traffic.end_churn()
        for _ in range(50):
            self._tick()
        failures = [*self._ended(change, target), *self._settle(), *traffic.failures(), *self._check_tables(target)]
        moved = sum(error is None for error in network.migrations.values())
        came = len(traffic.subscriptions) - first
        return Outcome(len(traffic.published), moved, change.kills, self._crashes, came, duration_s, failures)

    def _target(self) -> Target:
        """Some of the brokers and some new ones in a random tree; some clients are not known."""
        draw, old = self._random, list(self._overlay.ids)
        kept = [old[i] for i in draw.permutation(len(old))[: 1 + int(draw.integers(len(old)))]]
        brokers = [*kept, *(f"N{i}" for i in range(int(draw.integers(3))))]
        order = [brokers[i] for i in draw.permutation(len(brokers))]
        links = tuple(link_ends(id, order[int(draw.integers(at))]) for at, id in enumerate(order) if at)
        everyone = (*self._traffic.publishers, *self._traffic.subscribers)
        clients = {name: str(draw.choice(brokers)) for name in everyone if draw.random() < 0.8}
        return Target(change="seed", brokers=tuple(brokers), links=links, before=tuple(old), clients=clients)

    def _open_brokers(self, target: Target) -> list[str]:
        """The brokers where clients may join: one that is about to stop would have to send them away."""
        joining = [id for id in self._overlay.ids if id in target.brokers or self._phase <= Phase.USED]
        return [id for id in joining if id in self._network.running()]

    def _tick(self, *, is_busy: bool = True) -> None:
        if is_busy:
            self._traffic.publish()
        self._network.scheduler.run(self._network.scheduler.now_s + _EVERY_S)

    # ---- checks

    def _ended(self, change: SimulatedApply, target: Target) -> Iterator[str]:
        network = self._network
        if not isinstance(change.ended, Done):
            yield f"not complete: {change.ended or change.last_reason}"
            return
        running = set(network.running())
        if running != set(target.brokers):
            yield f"{sorted(running)} run, expected {sorted(target.brokers)}"
        for client, homes in network._table.clients.items():
            broker = target.clients.get(client)
            if broker is not None and broker not in homes and client not in change.ended.stayed:
                yield f"{client} is at {list(homes)}, expected {broker}"
            if not {*homes} & running:
                yield f"{client} is at {list(homes)}, which do not run"

    def _settle(self) -> Iterator[str]:
        network = self._network
        end_s = network.scheduler.now_s + _SETTLED_WITHIN_S
        while network.unsettled() or any(network.client(client).is_migrating for client in network.clients()):
            if network.scheduler.now_s > end_s:
                yield f"not settled within {_SETTLED_WITHIN_S:g} s: {network.unsettled()} messages"
                return
            network.scheduler.run(network.scheduler.now_s + 0.5)

    def _check_tables(self, target: Target) -> Iterator[str]:
        """Tables are those of a network that was built with the new tree.

        Its first broker is the root of hierarchical protocols. A target with the present tree keeps the present root.
        """
        network = self._network
        network.scheduler.run(network.scheduler.now_s + _EXPIRY_S)  # sessions of crashed clients expire
        tree = current_tree(network.broker(network.running()[0]).overlay_state())
        if (set(tree.brokers), links_of(tree)) != (set(target.brokers), set(target.links)):
            yield f"the tree is {tree}, expected that of {target}"
        fresh = SimulatedNetwork(Overlay(tree.brokers, tree.links), PROTOCOLS[self._protocol].make)
        for client, homes in network._table.clients.items():
            if len(homes) != 1:
                yield f"{client} is at {list(homes)}"
            if places := sorted({*homes} & {*target.brokers}):
                fresh.add_client(client, places[0])
        for client, message in self._traffic.registered():
            if client in fresh.clients():
                fresh.say(client, message)
        fresh.run_until_quiescent()
        yield from differences(network, fresh, self._protocol)
        for id in network.running():
            network.broker(id).validate()


def run_seed(seed: int, protocol: str, faults: str, step: NextStep = next_step) -> Outcome:
    """One run."""
    return _Run(seed, protocol, faults, step).outcome()
