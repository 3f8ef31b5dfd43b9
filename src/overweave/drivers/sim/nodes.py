"""Nodes and channels: a core with its clock and queues, and one direction of a connection between two of them."""

from collections.abc import Callable
from typing import Protocol

from overweave.broker.client import ClientCore
from overweave.contract.effects import Effect
from overweave.contract.frames import Frame
from overweave.contract.stimuli import FrameArrived, Stimulus, TimerFired
from overweave.drivers.effect_runner import BROKER_EFFECTS, CLIENT_EFFECTS, Alarm, EffectRunner, Performers
from overweave.drivers.sim.kernel import Kernel
from overweave.drivers.sim.station import Station

#: How late each copy of a frame comes; none when it is lost.
Fate = Callable[[], list[float]]


class Core(Protocol):
    """A broker's or a client's core."""

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one door."""


class World(Protocol):
    """What nodes leave to the network that they are in."""

    frames: int

    def performers(self, node: "Node") -> Performers:
        """What a core's effects do, besides frames and timers."""


class _Alarm:
    """A timer that is set; the scheduler cannot forget it, so it remembers that it was cancelled."""

    __slots__ = ("_action", "_name")

    def __init__(self, action: Callable[[str], None], name: str) -> None:
        self._action: Callable[[str], None] | None = action
        self._name = name

    def cancel(self) -> None:
        """Do not fire."""
        self._action = None

    def fire(self, _: object) -> None:
        """The time has come."""
        if self._action is not None:
            self._action(self._name)


class Node:
    """One core in simulated time."""

    __slots__ = (
        "_deferred",
        "_kernel",
        "_late",
        "_world",
        "alive",
        "channels",
        "core",
        "frozen",
        "id",
        "run",
        "skew_s",
        "station",
        "waiting",
    )

    def __init__(self, world: World, kernel: Kernel, id: str, core: Core, skew_s: float) -> None:
        self._world = world
        self._kernel = kernel
        self.id = id
        self.core = core
        #: What its clock is wrong by.
        self.skew_s = skew_s
        #: The open connections to others.
        self.channels: dict[str, Channel] = {}
        #: The queues of a broker that takes time or bandwidth.
        self.station: Station | None = None
        #: What arrived while the node does not read (None: it does).
        self.waiting: list[tuple[Channel, Frame]] | None = None
        #: Whether it is paused, the timers that were due meanwhile, and what else happened to it that it has not noticed.
        self.frozen = False
        self._late: list[str] = []
        self._deferred: list[Stimulus] = []
        self.alive = True
        kinds = CLIENT_EFFECTS if isinstance(core, ClientCore) else BROKER_EFFECTS
        #: Carries out what the core asks for.
        self.run = EffectRunner(kinds, self.channels, self._schedule, self._fire, world.performers(self)).run

    def clock_s(self) -> float:
        """What the node takes for the time."""
        return self._kernel.now_s + self.skew_s

    def handle(self, stimulus: Stimulus) -> None:
        """Something happens to the core; do what it asks for."""
        if self.frozen:
            self._deferred.append(stimulus)
            return
        self.run(self.core.handle(stimulus, self._kernel.now_s + self.skew_s))

    def pause_reading(self) -> None:
        """Leave what arrives on the connection."""
        self.waiting = []

    def resume_reading(self, _: object = None) -> None:
        """Take in what has waited, and what comes."""
        waiting, self.waiting = self.waiting or [], None
        for channel, frame in waiting:
            channel.arrive(frame)

    def freeze(self) -> None:
        """Do nothing for a while."""
        self.frozen = True
        self.pause_reading()

    def thaw(self, _: object = None) -> None:
        """Go on: as event loops do, first with timers that are late, then with what has arrived."""
        if not self.alive:
            return
        self.frozen = False
        late, self._late = self._late, []
        deferred, self._deferred = self._deferred, []
        for name in late:
            self.handle(TimerFired(name))
        for stimulus in deferred:
            self.handle(stimulus)
        self.resume_reading()

    def _schedule(self, at_s: float, action: Callable[[str], None], name: str) -> Alarm:
        alarm = _Alarm(action, name)
        self._kernel.at(at_s - self.skew_s, alarm.fire, None)
        return alarm

    def _fire(self, name: str) -> None:
        if self.frozen:
            self._late.append(name)
        elif self.alive:
            self.handle(TimerFired(name))


class Channel:
    """One direction of one connection, on which every frame takes equally long; what is under way when it closes is lost."""

    __slots__ = ("_delay_s", "_kernel", "_source", "_target", "_world", "arrive", "open")

    def __init__(self, world: World, kernel: Kernel, source: Node, target: Node, delay_s: float) -> None:
        self._world = world
        self._kernel = kernel
        self._source, self._target = source, target
        self._delay_s = delay_s
        self.open = True
        #: Bound once: it is planned with every frame.
        self.arrive = self._arrive

    def send(self, frame: Frame) -> None:
        """Put a frame on its way; it arrives unless the connection is lost."""
        self._world.frames += 1
        kernel = self._kernel
        kernel.at(kernel.now_s + self._delay_s, self.arrive, frame)

    def _arrive(self, frame: Frame) -> None:
        target = self._target
        if not self.open:
            return
        if target.waiting is not None:
            target.waiting.append((self, frame))
        elif target.station is None:
            # As `Node.handle`, once more: this is what a simulation does most of the time.
            now_s = self._kernel.now_s + target.skew_s
            target.run(target.core.handle(FrameArrived(self._source.id, frame), now_s))
        else:
            target.station.take(self._source.id, frame)


class UnevenChannel(Channel):
    """One whose frames wait until their broker has sent what was before them, and may have a fate."""

    __slots__ = ("_fate", "_last_arrival_s")

    def __init__(self, world: World, kernel: Kernel, source: Node, target: Node, delay_s: float, fate: Fate | None) -> None:
        super().__init__(world, kernel, source, target, delay_s)
        self._fate = fate
        self._last_arrival_s = 0.0

    def send(self, frame: Frame) -> None:
        """Put a frame on its way; it arrives unless it is lost, or the connection is."""
        self._world.frames += 1
        station = self._source.station
        leaves_s = self._kernel.now_s if station is None else station.departure_s(frame)
        # Frames overtake each other by their fate alone.
        arrives_s = max(leaves_s + self._delay_s, self._last_arrival_s)
        for late_s in (0.0,) if self._fate is None else self._fate():
            if late_s == 0.0:
                self._last_arrival_s = arrives_s
            self._kernel.at(arrives_s + late_s, self.arrive, frame)
