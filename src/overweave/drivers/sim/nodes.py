"""Nodes and channels: a core with its clock and queues, and one direction of a connection between two of them."""

from collections.abc import Callable
from typing import Protocol

from overweave.contract.effects import (
    CloseLink,
    Deliver,
    Effect,
    Keep,
    Note,
    NoteStatement,
    Notify,
    OpenLink,
    Refuse,
    Rejection,
    Restart,
    SendFrame,
    SetTimer,
)
from overweave.contract.frames import Frame
from overweave.contract.stimuli import FrameArrived, Stimulus, TimerFired
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

    def deliver(self, effect: Deliver) -> None:
        """A client got something."""

    def keep(self, node: "Node", effect: Keep) -> None:
        """Something must survive a crash."""

    def reject(self, node: "Node", effect: Rejection) -> None:
        """A client's broker has not accepted something."""

    def note(self, effect: Note) -> None:
        """A row for the trace."""

    def note_statement(self, effect: NoteStatement) -> None:
        """A row for the trace of statements."""

    def refuse(self, node: "Node", effect: Refuse) -> None:
        """A peer did something wrong."""

    def notify(self, effect: Notify) -> None:
        """A client did something wrong, and goes on."""

    def open_link(self, ends: tuple[str, str]) -> None:
        """Two brokers get a link."""

    def close_link(self, ends: tuple[str, str]) -> None:
        """Two brokers give up a link."""

    def restart(self, node: "Node", effect: Restart) -> None:
        """A broker has to begin again, as a later incarnation."""


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

    def clock_s(self) -> float:
        """What the node takes for the time."""
        return self._kernel.now_s + self.skew_s

    def handle(self, stimulus: Stimulus) -> None:
        """Something happens to the core; do what it asks for."""
        if self.frozen:
            self._deferred.append(stimulus)
            return
        self.carry_out(self.core.handle(stimulus, self._kernel.now_s + self.skew_s))

    def carry_out(self, effects: list[Effect]) -> None:
        """Do what a core asked for."""
        for effect in effects:
            if isinstance(effect, SendFrame):
                channel = self.channels.get(effect.peer)
                if channel is not None:
                    channel.send(effect.frame)
            elif isinstance(effect, Deliver):
                self._world.deliver(effect)
            elif isinstance(effect, SetTimer):
                self._kernel.at(effect.at_s - self.skew_s, self._fire, effect.name)
            elif isinstance(effect, Note):
                self._world.note(effect)
            elif isinstance(effect, NoteStatement):
                self._world.note_statement(effect)
            elif isinstance(effect, Keep):
                self._world.keep(self, effect)
            elif isinstance(effect, Notify):
                self._world.notify(effect)
            elif isinstance(effect, Refuse):
                self._world.refuse(self, effect)
            elif isinstance(effect, Rejection):
                self._world.reject(self, effect)
            elif isinstance(effect, OpenLink):
                self._world.open_link((self.id, effect.peer))
            elif isinstance(effect, CloseLink):
                self._world.close_link((self.id, effect.peer))
            elif isinstance(effect, Restart):
                self._world.restart(self, effect)
            else:
                raise TypeError(f"the simulator's batches are objects, got {type(effect).__name__}")

    def stop_reading(self) -> None:
        """Leave what arrives on the connection."""
        self.waiting = []

    def read_on(self, _: object = None) -> None:
        """Take in what has waited, and what comes."""
        waiting, self.waiting = self.waiting or [], None
        for channel, frame in waiting:
            channel.arrive(frame)

    def freeze(self) -> None:
        """Do nothing for a while."""
        self.frozen = True
        self.stop_reading()

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
        self.read_on()

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
            target.carry_out(target.core.handle(FrameArrived(self._source.id, frame), now_s))
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
