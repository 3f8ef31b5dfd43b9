"""A simulated network: brokers and clients on an overlay, with delays and faults."""

from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from overweave.broker.client import ClientCore
from overweave.broker.core import BrokerCore
from overweave.broker.registry import Journal
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import (
    CloseLink,
    Deliver,
    Notify,
    OpenLink,
    Parts,
    Persist,
    Reject,
    Rejection,
    Restart,
    Trace,
    TraceColumns,
    TraceStatement,
)
from overweave.contract.modules import Module
from overweave.contract.records import Record, Statement
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, PeerLeft
from overweave.drivers.effect_runner import Performers
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.journals import Journals
from overweave.drivers.sim.kernel import Kernel
from overweave.drivers.sim.nodes import Channel, Node, UnevenChannel
from overweave.drivers.sim.station import Station
from overweave.language.messages import Control
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.routing.base import Engine

#: The first incarnation of brokers whose clocks may go back.
_INCARNATION = 1000
#: How soon a neighbour connects again whose connection was closed, and when the session of a client that does not expires.
_RECONNECT_S, SESSION_EXPIRY_S = 0.1, 30.0
MakeRouting = Callable[[str, Overlay, int], Engine]
#: The modules of a broker, by name.
MakeModules = Callable[[str], Mapping[str, Module]]
#: Hears of the subscriptions of a client that got something.
OnDelivery = Callable[[Parts], None]


class SimulatedNetwork:
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
    ) -> None:
        self.kernel = Kernel()
        self._random = np.random.default_rng(seed)
        self._overlay = overlay
        self._make_routing, self._make_modules = make_routing, make_modules
        self._faults = faults or Faults()
        self._costs = costs or Costs()
        #: Of brokers that are faster or slower than the others.
        self._own_costs = own_costs or {}
        faulty = self._faults.lose_frames
        self._config = config or BrokerConfig(
            SessionConfig(retransmit_s=0.3 if faulty else None), heartbeat_s=0.5 if faulty else None
        )
        self._journals = Journals(self.kernel, self._random, self._faults)
        #: The highest of each broker; not the first there could be, so that a clock may have gone back after the first crash.
        self._incarnations = dict.fromkeys(overlay.ids, _INCARNATION if self._faults.clock_back else 0)
        #: How often each broker was started, and each client attached: with its id, its life as a publisher.
        self._lives: Counter[str] = Counter()
        #: Who runs: all clients, and the brokers that have not crashed.
        self._nodes: dict[str, Node] = {}
        #: The clients with their broker.
        self._clients: dict[str, str] = {}
        self._on_delivery = on_delivery or self._count_delivery
        #: Who got what: (publisher, sequence, subscription), unless somebody else counts.
        self.deliveries: Counter[tuple[str, int, str]] = Counter()
        self.records: list[Record] = []
        self.statements: list[Statement] = []
        self.refusals: list[Reject] = []
        #: The brokers that had to begin again because others knew a later incarnation of them, and that incarnation.
        self.restarts: list[tuple[str, int]] = []
        #: What brokers did not accept, with the client that was told.
        self.rejections: list[tuple[str, Rejection]] = []
        self.frames = 0
        for id in overlay.ids:
            self._start(id)
        #: The links there are now; they change where the overlay organises itself.
        self.links = {link.ends for link in overlay.links}
        for link in overlay.links:
            self._connect(link.ends)
        self._plan_faults()

    # ---- what clients do

    def add_client(self, id: str, broker: str) -> None:
        """Attach a client to a broker."""
        self._clients[id] = broker
        self._lives[id] += 1
        core = ClientCore(id, broker, self._config.session, life=self._lives[id])
        self._nodes[id] = Node(self, self.kernel, id, core, self._skew_s())
        self._connect((id, broker))

    def remove_client(self, id: str) -> None:
        """Detach a client for good."""
        broker = self._nodes.get(self._clients[id])
        self._disconnect((id, self._clients.pop(id)))
        self._nodes.pop(id).alive = False
        if broker is not None:
            broker.handle(PeerLeft(id))

    def say(self, client: str, message: Control) -> None:
        """Have a client advertise, subscribe or withdraw."""
        node = self._nodes[client]
        node.run(self.client(client).send_control(message, node.clock_s()))

    def publish(self, client: str, *publications: Publication) -> None:
        """Have a client publish, all of them together."""
        node = self._nodes[client]
        node.run(self.client(client).publish(publications, node.clock_s()))

    # ---- to look at

    def unsettled(self) -> int:
        """How many contents of clients are not settled."""
        return sum(self.client(id).unsettled() for id in self._clients)

    def clients(self) -> list[str]:
        """The clients that are attached, connected or not."""
        return list(self._clients)

    def connections(self) -> list[tuple[str, str]]:
        """The ends of all open connections, each once."""
        return self._open()

    def incarnation(self, broker: str) -> int:
        """How often a broker was started."""
        return self._incarnations[broker]

    def broker(self, id: str) -> BrokerCore:
        """A broker's core."""
        core = self._nodes[id].core
        assert isinstance(core, BrokerCore)
        return core

    def running(self) -> list[str]:
        """The brokers that have not crashed."""
        return [id for id in self._overlay.ids if id in self._nodes]

    def journal(self, id: str) -> Journal:
        """What a broker that crashes now, or has crashed, finds when it comes back."""
        return self._journals.entries(id)

    def station(self, id: str) -> Station | None:
        """The queues of a broker; None when it takes no time."""
        return self._nodes[id].station

    def is_whole(self) -> bool:
        """Whether all brokers run and all connections are open."""
        channels = sum(len(node.channels) for node in self._nodes.values())
        return channels == 2 * (len(self.links) + len(self._clients))

    def settle(self, within_s: float = 600.0) -> None:
        """Go on until everything that clients said is settled."""
        end = self.kernel.now_s + within_s
        while self.unsettled() or not self.is_whole():
            assert self.kernel.now_s < end, f"{self.unsettled()} contents are not settled after {within_s} s"
            self.kernel.run(self.kernel.now_s + 0.5)

    # ---- what nodes leave to the network

    def performers(self, node: Node) -> Performers:
        """What the effects of a node do."""
        if node.id in self._clients:
            return {Deliver: self._deliver, Rejection: lambda effect: self.rejections.append((node.id, effect))}
        return {
            Persist: lambda effect: self._journals.keep(node, effect),
            Trace: lambda effect: self.records.append(effect.record),
            TraceColumns: _no_columns,
            TraceStatement: lambda effect: self.statements.append(effect.statement),
            Notify: lambda effect: self.refusals.append(Reject(effect.peer, effect.code, effect.text)),
            Reject: lambda effect: self._refuse(node, effect),
            OpenLink: lambda effect: self.open_link((node.id, effect.peer)),
            CloseLink: lambda effect: self.close_link((node.id, effect.peer)),
            Restart: lambda effect: self._begin_again(node, effect),
        }

    def _deliver(self, effect: Deliver) -> None:
        self._on_delivery(effect.parts)

    def _count_delivery(self, parts: Parts) -> None:
        for subscription, batch in parts:
            for publisher, _, sequence in batch.identities():
                self.deliveries[publisher, sequence, subscription] += 1

    def _refuse(self, node: Node, effect: Reject) -> None:
        """Close the connection. A neighbour connects again; a client does not, and its session expires."""
        self.refusals.append(effect)
        if effect.peer not in self._clients:
            self.cut((node.id, effect.peer), _RECONNECT_S)
            return
        self._disconnect((node.id, effect.peer))
        del self._clients[effect.peer]
        self._nodes.pop(effect.peer).alive = False
        if not effect.forget:  # which the core has forgotten already
            self.kernel.at(self.kernel.now_s + SESSION_EXPIRY_S, self._expire, (node, effect.peer))

    def _expire(self, which: tuple[Node, str]) -> None:
        node, client = which
        if node.alive and client not in self._clients:
            node.handle(PeerLeft(client))

    def open_link(self, ends: tuple[str, str]) -> None:
        """Join two brokers, when whoever asked for it is done."""
        if ends not in self.links and ends[::-1] not in self.links:
            self.links.add(ends)
            self.kernel.at(self.kernel.now_s, self._connect, ends)

    def close_link(self, ends: tuple[str, str]) -> None:
        """Part two brokers for good, when whoever asked for it is done."""
        self.links -= {ends, ends[::-1]}
        self.kernel.at(self.kernel.now_s, self._part, ends)

    def _begin_again(self, node: Node, effect: Restart) -> None:
        """Start a broker again, as an incarnation later than one that others know, when whoever asked for it is done."""
        self.restarts.append((node.id, effect.incarnation))
        self.kernel.at(self.kernel.now_s, self._restart_after, (node, effect.incarnation))

    def _restart_after(self, which: tuple[Node, int]) -> None:
        node, incarnation = which
        if node.alive:  # it may have asked twice
            self.crash(node.id)
            self._restart(node.id, max(self._incarnations[node.id], incarnation) + 1)

    def _part(self, ends: tuple[str, str]) -> None:
        for id, peer in (ends, ends[::-1]):
            node = self._nodes.get(id)
            if node is not None:
                channel = node.channels.pop(peer, None)
                if channel is not None:
                    channel.open = False
                node.handle(PeerLeft(peer))

    # ---- nodes and connections

    def client(self, id: str) -> ClientCore:
        """A client's core."""
        core = self._nodes[id].core
        assert isinstance(core, ClientCore)
        return core

    def _start(self, broker: str, incarnation: int | None = None) -> None:
        if incarnation is None:
            incarnation = self._incarnations[broker] + 1
        self._incarnations[broker] = max(self._incarnations[broker], incarnation)
        self._lives[broker] += 1
        core = BrokerCore(
            broker,
            self._make_routing(broker, self._overlay, incarnation),
            self._overlay.neighbours(broker),
            self._config,
            incarnation,
            self._journals.entries(broker),
            self._make_modules(broker),
            self._lives[broker],
            durable=self._journals.takes_time,
        )
        node = self._nodes[broker] = Node(self, self.kernel, broker, core, self._skew_s())
        costs = self._own_costs.get(broker, self._costs)
        if not costs.free:
            node.station = Station(
                self.kernel,
                costs,
                core.match_cost,
                lambda peer, frame: node.handle(FrameArrived(peer, frame)),
            )

    def _connect(self, ends: tuple[str, str]) -> None:
        if ends[0] not in self._nodes or ends[1] not in self._nodes or ends[1] in self._nodes[ends[0]].channels:
            return
        a, b = (self._nodes[id] for id in ends)
        for node, peer in ((a, b), (b, a)):
            node.channels[peer.id] = self.make_channel(node, peer)
        for node, peer in ((a, b), (b, a)):
            node.handle(PeerConnected(peer.id, client=peer.id in self._clients))

    def make_channel(self, source: Node, target: Node) -> Channel:
        """One direction of a connection."""
        fate, delay_s = self._fate if self._faults.lossy else None, self._costs.link_delay_s
        if fate is None and source.station is None:
            return Channel(self, self.kernel, source, target, delay_s)
        return UnevenChannel(self, self.kernel, source, target, delay_s, fate)

    def _disconnect(self, ends: tuple[str, str]) -> None:
        for id, peer in (ends, ends[::-1]):
            channel = self._nodes[id].channels.pop(peer, None) if id in self._nodes else None
            if channel is not None:
                channel.open = False
                self._nodes[id].handle(PeerDisconnected(peer))

    def _open(self) -> list[tuple[str, str]]:
        """The ends of all open connections, each once."""
        return sorted((id, peer) for id, node in self._nodes.items() for peer in node.channels if id < peer)

    # ---- faults

    def _fate(self) -> list[float]:
        faults, random = self._faults, self._random.random
        if self.kernel.now_s >= faults.until_s:
            return [0.0]
        if random() < faults.loss:
            return []
        copies = 2 if random() < faults.duplication else 1
        return [random() * faults.delay_spike_s if random() < faults.reordering else 0.0 for _ in range(copies)]

    def _plan_faults(self) -> None:
        faults = self._faults
        for every_s, strike in (
            (faults.cut_every_s, self._cut),
            (faults.crash_every_s, self._crash),
            (faults.partition_every_s, self._partition),
            (faults.pause_every_s, self._pause),
            (faults.full_every_s, self._fill_disk),
            (faults.broker_pause_every_s, self._pause_broker),
        ):
            if every_s is not None and self._overlay.links:
                self._plan(strike, every_s)

    def _plan(self, strike: Callable[[], None], every_s: float) -> None:
        """Have a fault strike, and again and again, until the network is to heal."""

        def at_last(_: object) -> None:
            strike()
            self._plan(strike, every_s)

        time_s = self.kernel.now_s + self._random.exponential(every_s)
        if time_s < self._faults.until_s:
            self.kernel.at(time_s, at_last)

    def cut(self, ends: tuple[str, str], for_s: float | None = None) -> None:
        """Close a connection, for some time or for good."""
        self._disconnect(ends)
        if for_s is not None:
            self.kernel.at(self.kernel.now_s + for_s, self._connect, ends)

    def crash(self, broker: str, for_s: float | None = None, clock_back: bool = False) -> None:
        """Have a broker lose all but its journal, for some time or for good; then its clock may have gone back."""
        node = self._nodes.pop(broker)
        node.alive = False
        self._journals.crash(broker)
        for peer, channel in node.channels.items():
            channel.open = False
            self._disconnect((peer, broker))
        if for_s is not None:
            self.kernel.at(self.kernel.now_s + for_s, self._restart_in_the_past if clock_back else self._restart, broker)

    def _cut(self) -> None:
        ends = self._open()
        if ends:
            self.cut(ends[int(self._random.integers(len(ends)))], self._faults.cut_s)

    def _partition(self) -> None:
        half = {id for id in self._overlay.ids if self._random.random() < 0.5}
        brokers = set(self._overlay.ids)
        for ends in self._open():
            if (ends[0] in half) != (ends[1] in half) and brokers.issuperset(ends):
                self.cut(ends, self._faults.partition_s)

    def _pause(self) -> None:
        reading = [id for id in self._clients if self._nodes[id].waiting is None]
        if reading:
            client = self._nodes[reading[int(self._random.integers(len(reading)))]]
            client.pause_reading()
            self.kernel.at(self.kernel.now_s + self._faults.pause_s, client.resume_reading)

    def _fill_disk(self) -> None:
        running = self.running()
        if running:
            self._journals.fill_disk(self._nodes[running[int(self._random.integers(len(running)))]], self._faults.full_s)

    def pause(self, broker: str, for_s: float) -> None:
        """Have a broker do nothing for some time, as SIGSTOP does."""
        node = self._nodes[broker]
        node.freeze()
        self.kernel.at(self.kernel.now_s + for_s, node.thaw)

    def _pause_broker(self) -> None:
        awake = [id for id in self.running() if not self._nodes[id].frozen]
        if awake:
            self.pause(awake[int(self._random.integers(len(awake)))], self._faults.broker_pause_s)

    def _skew_s(self) -> float:
        skew_s = self._faults.clock_skew_s
        return 0.0 if skew_s is None else float(self._random.uniform(-1, 1)) * skew_s

    def _crash(self) -> None:
        running = self.running()
        if running:
            broker, chance = running[int(self._random.integers(len(running)))], self._faults.clock_back
            self.crash(broker, self._faults.crash_s, chance > 0 and self._random.random() < chance)

    def _restart_in_the_past(self, broker: str) -> None:
        last = self._incarnations[broker]
        for client in [id for id, at in self._clients.items() if at == broker]:
            self.client(client).reset()  # as drivers do: they tell a broker that has forgotten them by its ticket
        assert last > 1, f"{broker}: expected an incarnation before the first"
        self._restart(broker, 1 + int(self._random.integers(last - 1)))

    def _restart(self, broker: str, incarnation: int | None = None) -> None:
        self._start(broker, incarnation)
        clients = [id for id, at in self._clients.items() if at == broker]
        neighbours = [ends[broker == ends[0]] for ends in sorted(self.links) if broker in ends]
        for peer in (*neighbours, *clients):
            self._connect((broker, peer))


def _no_columns(effect: TraceColumns) -> None:
    raise TypeError(f"the simulator's batches are objects, got {type(effect).__name__}")
