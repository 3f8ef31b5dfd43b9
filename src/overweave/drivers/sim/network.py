"""A simulated network: brokers and clients on an overlay, with delays and faults."""

from collections import Counter
from collections.abc import Callable
from functools import partial

import numpy as np

from overweave.broker.client import ClientCore
from overweave.broker.core import BrokerCore
from overweave.contract.config import BrokerConfig, SessionConfig
from overweave.contract.effects import Deliver, Effect, Keep, Note, Refuse, SendFrame, SetTimer
from overweave.contract.frames import Frame
from overweave.contract.records import Record
from overweave.contract.stimuli import FrameArrived, PeerConnected, PeerDisconnected, Stimulus, TimerFired
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.faults import Faults
from overweave.drivers.sim.kernel import Kernel
from overweave.drivers.sim.station import Station
from overweave.language.messages import Control
from overweave.language.predicates import Filter
from overweave.language.publications import Publication
from overweave.overlay.graph import Overlay
from overweave.routing.base import Routing

MakeRouting = Callable[[str, Overlay], Routing]


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
    ) -> None:
        self.kernel = Kernel()
        self._random = np.random.default_rng(seed)
        self._overlay = overlay
        self._make_routing = make_routing
        self._faults = faults or Faults()
        self._costs = costs or Costs()
        self._stations: dict[str, Station] = {}
        self._config = config or _config_for(self._faults)
        self._journals: dict[str, dict[tuple[str, str], tuple[str, Filter]]] = {id: {} for id in overlay.ids}
        self._incarnations = dict.fromkeys(overlay.ids, 0)
        self._cores: dict[str, BrokerCore | ClientCore] = {}
        self._connected: set[frozenset[str]] = set()
        #: Counts connections: frames of an earlier one do not arrive on a later one.
        self._connections: Counter[frozenset[str]] = Counter()
        self._last_arrival: dict[tuple[str, str], float] = {}
        #: Who got what: (publisher, sequence, subscription).
        self.deliveries: Counter[tuple[str, int, str]] = Counter()
        self.records: list[Record] = []
        self.refusals: list[Refuse] = []
        self.frames = 0
        for id in overlay.ids:
            self._start(id)
        for link in overlay.links:
            self._connect(*link.ends)
        self._plan_faults()

    # ---- what clients do

    def add_client(self, id: str, broker: str) -> None:
        """Attach a client to a broker."""
        self._cores[id] = ClientCore(id, broker, self._config.session)
        if broker in self._cores:
            self._connect(id, broker)

    def say(self, client: str, message: Control) -> None:
        """Have a client advertise, subscribe or withdraw."""
        self._carry_out(client, self._client(client).say(message, self.kernel.now_s))

    def publish(self, client: str, publication: Publication) -> None:
        """Have a client publish."""
        self._carry_out(client, self._client(client).publish(publication, self.kernel.now_s))

    def unsettled(self) -> int:
        """How many contents of clients are not settled."""
        return sum(core.unsettled() for core in self._cores.values() if isinstance(core, ClientCore))

    def broker(self, id: str) -> BrokerCore:
        """A broker's core, to look at."""
        core = self._cores[id]
        assert isinstance(core, BrokerCore)
        return core

    def settle(self, within_s: float = 600.0) -> None:
        """Go on until everything that clients said is settled."""
        end = self.kernel.now_s + within_s
        while self.unsettled() or not self._whole():
            assert self.kernel.now_s < end, f"{self.unsettled()} contents are not settled after {within_s} s"
            self.kernel.run(self.kernel.now_s + 0.5)

    # ---- cores

    def _client(self, id: str) -> ClientCore:
        core = self._cores[id]
        assert isinstance(core, ClientCore)
        return core

    def _start(self, broker: str) -> None:
        self._incarnations[broker] += 1
        self._cores[broker] = BrokerCore(
            broker,
            self._make_routing(broker, self._overlay),
            self._overlay.neighbours(broker),
            self._config,
            self._incarnations[broker],
            self._journals[broker],
        )
        self._stations[broker] = Station(
            self.kernel,
            self._costs,
            partial(self._subscriptions, broker),
            lambda peer, frame: self._handle(broker, FrameArrived(peer, frame)),
        )

    def _subscriptions(self, broker: str) -> int:
        core = self._cores.get(broker)
        return core.subscriptions() if isinstance(core, BrokerCore) else 0

    def _handle(self, id: str, stimulus: Stimulus) -> None:
        core = self._cores.get(id)
        if core is not None:
            self._carry_out(id, core.handle(stimulus, self.kernel.now_s))

    def _carry_out(self, id: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame(peer, frame):
                    self._transmit(id, peer, frame)
                case Deliver(publish, subscription):
                    self.deliveries[publish.header.publisher, publish.header.sequence, subscription] += 1
                case SetTimer(name, at_s):
                    self.kernel.at(at_s, partial(self._fire, id, self._cores[id], name))
                case Keep(key, value):
                    if value is None:
                        self._journals[id].pop(key, None)
                    else:
                        self._journals[id][key] = value  # type: ignore[assignment]
                case Note(record):
                    self.records.append(record)
                case Refuse():
                    self.refusals.append(effect)

    def _fire(self, id: str, core: BrokerCore | ClientCore, name: str) -> None:
        if self._cores.get(id) is core:
            self._handle(id, TimerFired(name))

    # ---- connections

    def _connect(self, a: str, b: str) -> None:
        ends = frozenset((a, b))
        if ends in self._connected or a not in self._cores or b not in self._cores:
            return
        self._connected.add(ends)
        self._connections[ends] += 1
        for id, peer in ((a, b), (b, a)):
            self._handle(id, PeerConnected(peer, client=isinstance(self._cores[peer], ClientCore)))

    def _disconnect(self, a: str, b: str) -> None:
        ends = frozenset((a, b))
        if ends in self._connected:
            self._connected.discard(ends)
            for id, peer in ((a, b), (b, a)):
                self._handle(id, PeerDisconnected(peer))

    def _whole(self) -> bool:
        """Whether all brokers run and all connections are open."""
        clients = [core for core in self._cores.values() if isinstance(core, ClientCore)]
        return len(self._connected) == len(self._overlay.links) + len(clients)

    def _transmit(self, source: str, target: str, frame: Frame) -> None:
        """Put a frame on its way; it arrives unless it is lost, or the connection is."""
        ends = frozenset((source, target))
        if ends not in self._connected:
            return
        self.frames += 1
        faults, troubled = self._faults, self.kernel.now_s < self._faults.until_s
        if troubled and faults.loss and self._random.random() < faults.loss:
            return
        station = self._stations.get(source)
        departure_s = self.kernel.now_s if station is None else station.departure_s(frame)
        copies = 2 if troubled and faults.duplication and self._random.random() < faults.duplication else 1
        for _ in range(copies):
            arrival_s = max(departure_s + self._costs.link_delay_s, self._last_arrival.get((source, target), 0.0))
            if troubled and faults.reordering and self._random.random() < faults.reordering:
                arrival_s += self._random.random() * faults.delay_spike_s
            else:
                self._last_arrival[source, target] = arrival_s
            self.kernel.at(arrival_s, partial(self._arrive, source, target, ends, self._connections[ends], frame))

    def _arrive(self, source: str, target: str, ends: frozenset[str], connection: int, frame: Frame) -> None:
        if ends in self._connected and self._connections[ends] == connection:
            station = self._stations.get(target)
            if station is None:
                self._handle(target, FrameArrived(source, frame))
            else:
                station.take(source, frame)

    # ---- faults

    def _plan_faults(self) -> None:
        for every_s, strike in ((self._faults.cut_every_s, self._cut), (self._faults.crash_every_s, self._crash)):
            time_s = 0.0
            while every_s is not None and self._overlay.links:
                time_s += self._random.exponential(every_s)
                if time_s >= self._faults.until_s:
                    break
                self.kernel.at(time_s, strike)

    def _cut(self) -> None:
        ends = sorted(map(sorted, self._connected))
        if ends:
            a, b = ends[int(self._random.integers(len(ends)))]
            self._disconnect(a, b)
            self.kernel.at(self.kernel.now_s + self._faults.cut_s, lambda: self._connect(a, b))

    def _crash(self) -> None:
        running = [id for id in self._overlay.ids if id in self._cores]
        broker = running[int(self._random.integers(len(running)))] if running else None
        if broker is None:
            return
        peers = sorted(next(iter(ends - {broker})) for ends in self._connected if broker in ends)
        del self._cores[broker], self._stations[broker]
        for peer in peers:
            self._disconnect(broker, peer)
        self.kernel.at(self.kernel.now_s + self._faults.crash_s, lambda: self._restart(broker))

    def _restart(self, broker: str) -> None:
        self._start(broker)
        clients = [id for id, core in self._cores.items() if isinstance(core, ClientCore) and core.broker == broker]
        for peer in (*self._overlay.neighbours(broker), *clients):
            self._connect(broker, peer)


def _config_for(faults: Faults) -> BrokerConfig:
    """Frames that may get lost have to be sent again; without faults nothing is."""
    lossy = faults.loss or faults.reordering or faults.cut_every_s or faults.crash_every_s
    return BrokerConfig(SessionConfig(resend_s=0.3 if lossy else None))
