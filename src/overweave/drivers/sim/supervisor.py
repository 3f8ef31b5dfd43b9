"""The supervisor of simulated brokers: it starts, crashes, restarts, pauses and measures them."""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from overweave.broker.client import ClientCore
from overweave.broker.core import BrokerCore
from overweave.broker.modules import with_collector
from overweave.contract.config import BrokerConfig
from overweave.contract.modules import Capacity, Environment, Module
from overweave.contract.overlay_state import first_state, joining_state
from overweave.drivers.load_meter import MEASURE_S, LoadMeter
from overweave.drivers.sim.connections import ConnectionTable
from overweave.drivers.sim.costs import NetworkCosts
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.journals import Journals
from overweave.drivers.sim.nodes import Core, Host, Node
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.station import Station
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind
from overweave.routing.base import Engine

#: The first incarnation of brokers whose clocks may go back.
_INCARNATION = 1000
#: A protocol at a broker, given the overlay and the incarnation.
MakeRouting = Callable[[str, Overlay, int], Engine]
#: The modules of a broker, by name, given its environment.
MakeModules = Callable[[Environment], Mapping[str, Module]]


class BrokerSupervisor:
    """The brokers of one network."""

    def __init__(
        self,
        host: Host,
        scheduler: Scheduler,
        random: np.random.Generator,
        overlay: Overlay,
        make_routing: MakeRouting,
        make_modules: MakeModules,
        config: BrokerConfig,
        costs: NetworkCosts,
        faults: Faults,
        journals: Journals,
        table: ConnectionTable,
        seed: int = 1,
    ) -> None:
        self._host, self._scheduler, self._random = host, scheduler, random
        self._overlay, self._config, self._costs = overlay, config, costs
        #: The brokers that have ever joined, as the spare ones of a network file: their numbers follow those of the overlay.
        self._joined: dict[str, None] = {}
        #: The overlay that each broker starts with.
        self._states = dict.fromkeys(overlay.ids, first_state(overlay))
        self._make_routing, self._make_modules = make_routing, make_modules
        self._journals, self._table, self._seed = journals, table, seed
        self._clock_skew_s = faults.clock_skew_s
        #: The highest of each broker; not the first there could be, so that a clock may have gone back after the first crash.
        self._incarnations = dict.fromkeys(overlay.ids, _INCARNATION if faults.clock_back else 0)
        #: How often each broker was started; with its id, its life id as a publisher.
        self._starts: Counter[str] = Counter()
        self._measures = False
        #: Called with a broker that starts.
        self.on_start: Callable[[str], None] = lambda _: None

    @property
    def brokers(self) -> tuple[str, ...]:
        """All brokers that were started and not stopped permanently."""
        return tuple(self._states)

    def running(self) -> list[str]:
        """The brokers that have not crashed."""
        return [id for id in self._states if id in self._table.nodes]

    def awake(self) -> list[str]:
        """Those of them that are not paused."""
        return [id for id in self.running() if not self._table.nodes[id].frozen]

    def core(self, broker: str) -> BrokerCore:
        """The core of a running broker."""
        core = self._table.nodes[broker].core
        assert isinstance(core, BrokerCore)
        return core

    def incarnation(self, broker: str) -> int:
        """The highest incarnation of a broker so far."""
        return self._incarnations[broker]

    def make_node(self, id: str, core: Core) -> Node:
        """A node with a clock of its own."""
        skew_s = 0.0 if self._clock_skew_s is None else float(self._random.uniform(-1, 1)) * self._clock_skew_s
        return Node(self._host, self._scheduler, id, core, skew_s)

    def start(self, broker: str, incarnation: int | None = None) -> None:
        """Start a broker with what its journal holds."""
        if incarnation is None:
            incarnation = self._incarnations[broker] + 1
        self._incarnations[broker] = max(self._incarnations[broker], incarnation)
        self._starts[broker] += 1
        environment = self._environment(broker)
        modules = self._make_modules(environment)
        overlay = self._overlay_of(broker)
        core = BrokerCore(
            broker,
            self._make_routing(broker, overlay, incarnation),
            {peer: overlay.link(broker, peer).kind for peer in overlay.neighbours(broker)},
            self._config,
            incarnation,
            self._journals.entries(broker),
            with_collector(environment, modules),
            self._starts[broker],
            confirms_persist=self._journals.is_delayed,
            overlay=self._states[broker],
        )
        node = self._table.nodes[broker] = self.make_node(broker, core)
        costs = self._costs.of(broker)
        if not costs.free:
            node.station = Station(self._scheduler, costs, core.match_cost, node.serve)
        if modules:
            self._meter(node)
        self.on_start(broker)

    def restart(self, broker: str, incarnation: int | None = None) -> None:
        """Start a broker again, and open its connections."""
        self.start(broker, incarnation)
        for neighbour in self.core(broker).neighbour_kinds():
            self._host.open_link((broker, neighbour), LinkKind.PRIMARY)
        for peer in self._table.peers_of(broker):
            self._table.connect((broker, peer))

    def restart_in_past(self, broker: str, incarnation: int) -> None:
        """Start a broker again whose clock has gone back, and so its incarnation."""
        for client in self._table.clients_of(broker):
            core = self._table.nodes[client].core
            assert isinstance(core, ClientCore)
            core.renew_epoch(broker)  # as drivers do: they recognise a broker that has forgotten them by its ticket
        self.restart(broker, incarnation)

    def join(self, broker: str, contact: str) -> None:
        """Start a broker that joins the network as a guest of another one."""
        self._states[broker] = joining_state(broker)
        if broker not in self._overlay:
            self._joined[broker] = None
        self._incarnations.setdefault(broker, 0)
        self.start(broker)
        self._table.join((broker, contact))

    def stop(self, broker: str) -> None:
        """Stop a broker permanently."""
        self.crash(broker)
        del self._states[broker]
        for ends in [ends for ends in self._table.links if broker in ends]:
            self._table.close_link(ends)

    def crash(self, broker: str, for_s: float | None = None, clock_back: bool = False) -> None:
        """Have a broker lose all but its journal, for some time or permanently; then its clock may have gone back."""
        node = self._table.nodes.pop(broker)
        node.alive = False
        self._journals.crash(broker)
        for peer, channel in node.channels.items():
            channel.open = False
            self._table.disconnect((peer, broker))
        if for_s is not None:
            self._scheduler.at(self._scheduler.now_s + for_s, self._recover, (broker, clock_back))

    def restart_above(self, node: Node, incarnation: int) -> None:
        """Restart a broker as an incarnation later than one that others know, after the present stimulus."""
        self._scheduler.at(self._scheduler.now_s, self._restart_above, (node, incarnation))

    def pause(self, broker: str, for_s: float) -> None:
        """Have a broker do nothing for some time, as SIGSTOP does."""
        node = self._table.nodes[broker]
        node.freeze()
        self._scheduler.at(self._scheduler.now_s + for_s, node.thaw)

    def _overlay_of(self, broker: str) -> Overlay:
        """The overlay that a broker starts with: one that joins has its number by position, and no links."""
        return self._overlay if broker in self._overlay else Overlay([*self._overlay.ids, *self._joined])

    def _environment(self, broker: str) -> Environment:
        """The environment of a broker's modules."""
        overlay, costs = self._overlay_of(broker), self._costs.of(broker)
        capacity = Capacity(
            costs.output_bandwidth_bytes_per_s,
            costs.matching_delay_base_s,
            costs.matching_delay_per_subscription_s,
            costs.capacity_hz,
        )
        addresses = {each.id: each.url for each in overlay.brokers if each.url is not None}
        about = overlay.broker(broker)
        return Environment(broker, overlay.neighbours(broker), about.cluster, about.role, capacity, addresses, self._seed)

    def _restart_above(self, what: tuple[Node, int]) -> None:
        node, incarnation = what
        if node.alive:  # it may have asked twice
            self.crash(node.id)
            self.restart(node.id, incarnation + 1)

    def _recover(self, what: tuple[str, bool]) -> None:
        broker, clock_back = what
        if not clock_back:
            self.restart(broker)
            return
        last = self._incarnations[broker]
        assert last > 1, f"{broker}: expected an incarnation before the first"
        self.restart_in_past(broker, 1 + int(self._random.integers(last - 1)))

    def _meter(self, node: Node) -> None:
        """Measure the load of a broker whose modules may use it."""
        node.meter = LoadMeter(self._scheduler.now_s, self._costs.of(node.id).output_bandwidth_bytes_per_s)
        if not self._measures:
            self._measures = True
            self._scheduler.every(MEASURE_S, self._measure)

    def _measure(self, _: object) -> None:
        for broker in self.running():
            self._table.nodes[broker].measure()
