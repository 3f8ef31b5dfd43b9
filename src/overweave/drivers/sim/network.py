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
from overweave.drivers.sim.kernel import Action, Kernel
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
        self._free = self._costs.free
        #: The queues of the brokers that run, to look at.
        self.stations: dict[str, Station] = {}
        self._config = config or _config_for(self._faults)
        self._journals: dict[str, dict[tuple[str, str], tuple[str, Filter]]] = {id: {} for id in overlay.ids}
        self._incarnations = dict.fromkeys(overlay.ids, 0)
        self._cores: dict[str, BrokerCore | ClientCore] = {}
        self._channels: dict[tuple[str, str], _Channel] = {}
        self._skews_s: dict[str, float] = {}
        #: Clients that do not read, and what waits for them.
        self._paused: dict[str, list[Action]] = {}
        self._troubled_until_s = self._faults.until_s if _lossy(self._faults) else 0.0
        #: Who got what: (publisher, sequence, subscription).
        self.deliveries: Counter[tuple[str, int, str]] = Counter()
        self.records: list[Record] = []
        self.refusals: list[Refuse] = []
        self.frames = 0
        for id in overlay.ids:
            self._skew(id)
            self._start(id)
        for link in overlay.links:
            self._connect(*link.ends)
        self._plan_faults()

    # ---- what clients do

    def add_client(self, id: str, broker: str) -> None:
        """Attach a client to a broker."""
        self._cores[id] = ClientCore(id, broker, self._config.session)
        self._skew(id)
        if broker in self._cores:
            self._connect(id, broker)

    def say(self, client: str, message: Control) -> None:
        """Have a client advertise, subscribe or withdraw."""
        self._carry_out(client, self._client(client).say(message, self._clock_s(client)))

    def publish(self, client: str, publication: Publication) -> None:
        """Have a client publish."""
        self._carry_out(client, self._client(client).publish(publication, self._clock_s(client)))

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
        while self.unsettled() or not self.is_whole():
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
        self.stations[broker] = Station(
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
            self._carry_out(id, core.handle(stimulus, self._clock_s(id)))

    def _clock_s(self, id: str) -> float:
        """What a node takes for the time."""
        return self.kernel.now_s + self._skews_s.get(id, 0.0)

    def _carry_out(self, id: str, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case SendFrame():
                    self._transmit(id, effect.peer, effect.frame)
                case Deliver(publish, subscription):
                    self.deliveries[publish.header.publisher, publish.header.sequence, subscription] += 1
                case SetTimer(name, at_s):
                    self.kernel.at(at_s - self._skews_s.get(id, 0.0), partial(self._fire, id, self._cores[id], name))
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

    def _channel(self, source: str, target: str) -> "_Channel":
        channel = self._channels.get((source, target))
        if channel is None:
            channel = self._channels[source, target] = _Channel()
        return channel

    def _connect(self, a: str, b: str) -> None:
        if self._channel(a, b).open or a not in self._cores or b not in self._cores:
            return
        for id, peer in ((a, b), (b, a)):
            self._channel(id, peer).set(open=True)
        for id, peer in ((a, b), (b, a)):
            self._handle(id, PeerConnected(peer, client=isinstance(self._cores[peer], ClientCore)))

    def _disconnect(self, a: str, b: str) -> None:
        if self._channel(a, b).open:
            for id, peer in ((a, b), (b, a)):
                self._channel(id, peer).set(open=False)
            for id, peer in ((a, b), (b, a)):
                self._handle(id, PeerDisconnected(peer))

    def _open(self) -> list[tuple[str, str]]:
        """The ends of all open connections, each once."""
        return sorted(ends for ends, channel in self._channels.items() if channel.open and ends[0] < ends[1])

    def is_whole(self) -> bool:
        """Whether all brokers run and all connections are open."""
        clients = sum(isinstance(core, ClientCore) for core in self._cores.values())
        return len(self._open()) == len(self._overlay.links) + clients

    def _transmit(self, source: str, target: str, frame: Frame) -> None:
        """Put a frame on its way; it arrives unless it is lost, or the connection is."""
        channel = self._channel(source, target)
        if not channel.open:
            return
        self.frames += 1
        station = None if self._free else self.stations.get(source)
        leaves_s = self.kernel.now_s if station is None else station.departure_s(frame)
        for late_s in self._fate() if self.kernel.now_s < self._troubled_until_s else _ON_TIME:
            arrives_s = max(leaves_s + self._costs.link_delay_s, channel.last_arrival_s)
            if late_s == 0.0:
                channel.last_arrival_s = arrives_s
            self.kernel.at(arrives_s + late_s, partial(self._arrive, source, target, channel, channel.connection, frame))

    def _fate(self) -> list[float]:
        """How late each copy of a frame comes; none when it is lost."""
        faults, random = self._faults, self._random.random
        if random() < faults.loss:
            return []
        copies = 2 if random() < faults.duplication else 1
        return [random() * faults.delay_spike_s if random() < faults.reordering else 0.0 for _ in range(copies)]

    def _arrive(self, source: str, target: str, channel: "_Channel", connection: int, frame: Frame) -> None:
        if channel.connection != connection:
            return
        station = None if self._free else self.stations.get(target)
        if target in self._paused:
            self._paused[target].append(partial(self._arrive, source, target, channel, connection, frame))
        elif station is None:
            self._handle(target, FrameArrived(source, frame))
        else:
            station.take(source, frame)

    # ---- faults

    def _plan_faults(self) -> None:
        faults = self._faults
        for every_s, strike in (
            (faults.cut_every_s, self._cut),
            (faults.crash_every_s, self._crash),
            (faults.partition_every_s, self._partition),
            (faults.pause_every_s, self._pause),
        ):
            time_s = 0.0
            while every_s is not None and self._overlay.links:
                time_s += self._random.exponential(every_s)
                if time_s >= self._faults.until_s:
                    break
                self.kernel.at(time_s, strike)

    def _cut(self) -> None:
        ends = self._open()
        if ends:
            a, b = ends[int(self._random.integers(len(ends)))]
            self._disconnect(a, b)
            self.kernel.at(self.kernel.now_s + self._faults.cut_s, lambda: self._connect(a, b))

    def _partition(self) -> None:
        half = {id for id in self._overlay.ids if self._random.random() < 0.5}
        cut = [ends for ends in self._open() if (ends[0] in half) != (ends[1] in half) and set(ends) <= set(self._overlay.ids)]
        for a, b in cut:
            self._disconnect(a, b)
            self.kernel.at(self.kernel.now_s + self._faults.partition_s, partial(self._connect, a, b))

    def _pause(self) -> None:
        reading = [id for id, core in self._cores.items() if isinstance(core, ClientCore) and id not in self._paused]
        if reading:
            client = reading[int(self._random.integers(len(reading)))]
            self._paused[client] = []
            self.kernel.at(self.kernel.now_s + self._faults.pause_s, partial(self._resume, client))

    def _resume(self, client: str) -> None:
        for arrive in self._paused.pop(client):
            arrive()

    def _skew(self, id: str) -> None:
        if self._faults.clock_skew_s is not None:
            self._skews_s[id] = float(self._random.uniform(-1, 1)) * self._faults.clock_skew_s

    def _crash(self) -> None:
        running = [id for id in self._overlay.ids if id in self._cores]
        broker = running[int(self._random.integers(len(running)))] if running else None
        if broker is None:
            return
        peers = [a if b == broker else b for a, b in self._open() if broker in (a, b)]
        del self._cores[broker], self.stations[broker]
        for peer in peers:
            self._disconnect(broker, peer)
        self.kernel.at(self.kernel.now_s + self._faults.crash_s, lambda: self._restart(broker))

    def _restart(self, broker: str) -> None:
        self._start(broker)
        clients = [id for id, core in self._cores.items() if isinstance(core, ClientCore) and core.broker == broker]
        for peer in (*self._overlay.neighbours(broker), *clients):
            self._connect(broker, peer)


class _Channel:
    """One direction of a connection; ``connection`` changes whenever it opens or closes, and what was under way is lost."""

    __slots__ = ("connection", "last_arrival_s", "open")

    def __init__(self) -> None:
        self.open = False
        self.connection = 0
        self.last_arrival_s = 0.0

    def set(self, *, open: bool) -> None:
        self.open = open
        self.connection += 1


_ON_TIME = [0.0]


def _lossy(faults: Faults) -> bool:
    return bool(faults.loss or faults.duplication or faults.reordering)


def _config_for(faults: Faults) -> BrokerConfig:
    """Frames that may get lost have to be sent again; without faults nothing is."""
    resends = _lossy(faults) or faults.cut_every_s or faults.crash_every_s or faults.partition_every_s
    return BrokerConfig(SessionConfig(resend_s=0.3 if resends else None))
