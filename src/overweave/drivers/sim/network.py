"""A simulated network: brokers and clients on an overlay, with delays and faults."""

from collections import Counter
from collections.abc import Mapping

import numpy as np

from overweave.broker.client import ClientCore
from overweave.broker.core import BrokerCore
from overweave.broker.registry import Journal
from overweave.contract.config import SESSION_EXPIRY_S, BrokerConfig, SessionConfig
from overweave.contract.stimuli import PeerLeft
from overweave.drivers.effect_runner import Performers
from overweave.drivers.sim.client_processes import ClientProcesses
from overweave.drivers.sim.connections import ConnectionTable, Ends
from overweave.drivers.sim.costs import Costs, NetworkCosts
from overweave.drivers.sim.fault_injector import FaultInjector
from overweave.drivers.sim.faults import FaultCounts, Faults
from overweave.drivers.sim.frame_faults import FrameFaults
from overweave.drivers.sim.journals import Journals
from overweave.drivers.sim.nodes import Channel, LossyChannel, Node
from overweave.drivers.sim.operations import NetworkOperations
from overweave.drivers.sim.performers import EffectPerformers, OnDelivery, Outcomes
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.station import Station
from overweave.drivers.sim.supervisor import BrokerSupervisor, MakeModules, MakeRouting
from overweave.language.messages import Control
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import LinkKind


class SimulatedNetwork(NetworkOperations):
    """Everything that happens follows from the arguments and the seed."""

    def __init__(
        self,
        overlay: Overlay,
        make_routing: MakeRouting,
        seed: int = 1,
        faults: Faults | None = None,
        costs: Costs | None = None,
        config: BrokerConfig | None = None,
        make_modules: MakeModules = lambda _: {},
        on_delivery: OnDelivery | None = None,
        own_costs: Mapping[str, Costs] | None = None,
        session_expiry_s: float = SESSION_EXPIRY_S,
    ) -> None:
        faults = faults or Faults()
        random = np.random.default_rng(seed)
        self.scheduler = Scheduler()
        self.overlay = overlay
        self._config = config or _default_config(faults)
        self._costs = NetworkCosts(overlay, costs or Costs(), own_costs or {})
        self._fault_counts: Counter[str] = Counter()
        self._frame_faults = FrameFaults(faults, random, self._fault_counts) if faults.lossy else None
        self._journals = Journals(self.scheduler, random, faults)
        self._table = ConnectionTable(self.scheduler, self.make_channel)
        self._supervisor = BrokerSupervisor(
            self, self.scheduler, random, overlay, make_routing, make_modules, self._config, self._costs, faults,
            self._journals, self._table, seed,
        )  # fmt: skip
        #: The processes of clients, which may crash and return.
        self.client_processes = ClientProcesses(
            self.scheduler, self._table, self._supervisor.make_node, self._config.session, self._fault_counts, session_expiry_s
        )
        self._supervisor.on_start = self.client_processes.restore
        outcomes = Outcomes()
        self._performers = EffectPerformers(
            self, self.scheduler, self._table, self._supervisor, self._journals, outcomes, on_delivery or outcomes.count_delivery
        )
        self.deliveries, self.records, self.statements = outcomes.deliveries, outcomes.records, outcomes.statements
        self.decisions = outcomes.decisions
        self.refusals, self.rejections, self.restarts = outcomes.refusals, outcomes.rejections, outcomes.restarts
        #: The outcomes of migrations by token: None, or the error.
        self.migrations = outcomes.migrations
        self.overlays = outcomes.overlays
        #: The answers of modules to `ask`, in parts, by token.
        self.answers = outcomes.answers
        #: The running nodes by id, and the links there are now.
        self.nodes, self.links = self._table.nodes, self._table.links
        #: Frames sent, over all connections.
        self.frames = 0
        for id in overlay.ids:
            self._supervisor.start(id)
        self.links.update(link.ends for link in overlay.links)
        for link in overlay.links:
            self._table.connect(link.ends)
        injector = FaultInjector(
            self.scheduler, random, faults, self._table, self._supervisor, self._journals, self.client_processes,
            self._fault_counts,
        )  # fmt: skip
        if overlay.links or faults.client_crash_every_s is not None:
            injector.start()

    # ---- actions of clients

    def add_client(self, id: str, broker: str) -> None:
        """Attach a client to a broker."""
        self.client_processes.attach(id, broker)

    def remove_client(self, id: str) -> None:
        """Detach a client permanently."""
        brokers = list(self._table.clients[id])
        self._table.remove_client(id)
        for broker in brokers:
            if broker in self.nodes:
                self.nodes[broker].handle(PeerLeft(id))

    def say(self, client: str, message: Control) -> None:
        """Have a client advertise, subscribe or withdraw."""
        node = self.nodes[client]
        node.run(self.client(client).send_control(message, node.clock_s()))

    def publish(self, client: str, *publications: Publication) -> None:
        """Have a client publish, all of them together."""
        node = self.nodes[client]
        node.run(self.client(client).publish(publications, node.clock_s()))

    # ---- state

    def client(self, id: str) -> ClientCore:
        """A client's core."""
        core = self.nodes[id].core
        assert isinstance(core, ClientCore)
        return core

    def broker(self, id: str) -> BrokerCore:
        """A broker's core."""
        return self._supervisor.core(id)

    def clients(self) -> list[str]:
        """The clients that are attached, connected or not."""
        return list(self._table.clients)

    def running(self) -> list[str]:
        """The brokers that have not crashed."""
        return self._supervisor.running()

    def connections(self) -> list[Ends]:
        """The ends of all open connections, each once."""
        return self._table.connections()

    def incarnation(self, broker: str) -> int:
        """The highest incarnation of a broker so far."""
        return self._supervisor.incarnation(broker)

    def journal(self, id: str) -> Journal:
        """The durable entries of a broker, with which it restarts."""
        return self._journals.entries(id)

    def station(self, id: str) -> Station | None:
        """The queues of a broker; None if it has no costs."""
        return self.nodes[id].station

    def fault_counts(self) -> FaultCounts:
        """The faults that were injected so far, by class."""
        return FaultCounts(**self._fault_counts)

    def unsettled(self) -> int:
        """The number of contents of clients that are not settled."""
        return sum(self.client(id).unsettled() for id in self._table.clients)

    def all_connected(self) -> bool:
        """Whether all brokers run and all connections are open."""
        return self._table.all_connected()

    def run_until_quiescent(self, within_s: float = 600.0) -> None:
        """Run until everything that clients sent is settled."""
        end = self.scheduler.now_s + within_s
        while self.unsettled() or not self.all_connected():
            assert self.scheduler.now_s < end, f"{self.unsettled()} contents are not settled after {within_s} s"
            self.scheduler.run(self.scheduler.now_s + 0.5)

    # ---- the host of nodes

    def performers(self, node: Node) -> Performers:
        """A performer for each kind of effect of a node."""
        return self._performers.of(node)

    def make_channel(self, source: Node, target: Node) -> Channel:
        """One direction of a connection."""
        delay_s = self._costs.delay_s(source.id, target.id)
        if self._frame_faults is None and source.station is None and source.meter is None:
            return Channel(self, self.scheduler, source, target, delay_s)
        return LossyChannel(self, self.scheduler, source, target, delay_s, self._frame_faults)

    def open_link(self, ends: Ends, kind: LinkKind = LinkKind.PRIMARY) -> None:
        """Join two brokers, after the present stimulus."""
        self._table.open_link(ends, kind)

    def close_link(self, ends: Ends) -> None:
        """Part two brokers permanently, after the present stimulus."""
        self._table.close_link(ends)


def _default_config(faults: Faults) -> BrokerConfig:
    """Retransmission and heartbeats only where something can be lost."""
    faulty = faults.lose_frames
    return BrokerConfig(SessionConfig(retransmit_s=0.3 if faulty else None), heartbeat_s=0.5 if faulty else None)
