"""Nodes and channels: a core with its clock and queues, and one direction of a connection between two of them."""

import math
from collections.abc import Callable
from typing import Protocol

from overweave.broker.client import ClientCore
from overweave.broker.core import BrokerCore
from overweave.contract.effects import Effect
from overweave.contract.frames import BatchFrame, Frame
from overweave.contract.stimuli import FrameArrived, Stimulus, TimerFired
from overweave.drivers.effect_runner import BROKER_EFFECTS, CLIENT_EFFECTS, Alarm, EffectRunner, Performers
from overweave.drivers.load_meter import CLIENTS, LoadMeter
from overweave.drivers.sim.costs import frame_bytes
from overweave.drivers.sim.frame_faults import FrameFaults
from overweave.drivers.sim.queue_integral import QueueIntegral
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.station import Station
from overweave.overlay.parts import LinkKind


class Core(Protocol):
    """A broker's or a client's core."""

    def handle(self, stimulus: Stimulus, now_s: float) -> list[Effect]:
        """The one door."""


class Host(Protocol):
    """The network of a node, which performs its effects."""

    frames: int

    def performers(self, node: "Node") -> Performers:
        """A performer for each kind of effect besides frames and timers."""

    def open_link(self, ends: tuple[str, str], kind: LinkKind) -> None:
        """Join two brokers, after the present stimulus."""

    def close_link(self, ends: tuple[str, str]) -> None:
        """Part two brokers permanently, after the present stimulus."""


class _Alarm:
    """A timer that is set; the scheduler cannot remove it, so it has a cancelled state."""

    __slots__ = ("_action", "_name")

    def __init__(self, action: Callable[[str], None], name: str) -> None:
        self._action: Callable[[str], None] | None = action
        self._name = name

    def cancel(self) -> None:
        """Do not fire."""
        self._action = None

    def fire(self, _: object) -> None:
        """Fire, unless cancelled."""
        if self._action is not None:
            self._action(self._name)


class Node:
    """One core in simulated time."""

    __slots__ = (
        "_deferred",
        "_host",
        "_late",
        "_scheduler",
        "absences",
        "alive",
        "channels",
        "core",
        "frozen",
        "id",
        "meter",
        "run",
        "skew_s",
        "station",
        "waiting",
    )

    def __init__(self, host: Host, scheduler: Scheduler, id: str, core: Core, skew_s: float) -> None:
        self._host = host
        self._scheduler = scheduler
        self.id = id
        self.core = core
        #: The error of its clock.
        self.skew_s = skew_s
        #: The open connections to others.
        self.channels: dict[str, Channel] = {}
        #: Since when clients of a broker are disconnected.
        self.absences: dict[str, float] = {}
        #: The queues of a broker with costs.
        self.station: Station | None = None
        #: The load of a broker with modules.
        self.meter: LoadMeter | None = None
        #: Frames that arrived while the node does not read (None: it does).
        self.waiting: list[tuple[Channel, Frame]] | None = None
        #: Whether it is paused, the timers that were due meanwhile, and other deferred stimuli.
        self.frozen = False
        self._late: list[str] = []
        self._deferred: list[Stimulus] = []
        self.alive = True
        kinds = CLIENT_EFFECTS if isinstance(core, ClientCore) else BROKER_EFFECTS
        #: Performs effects of the core.
        self.run = EffectRunner(kinds, self.channels, self._schedule, self._fire, host.performers(self)).run

    def clock_s(self) -> float:
        """The time on the node's clock."""
        return self._scheduler.now_s + self.skew_s

    def handle(self, stimulus: Stimulus) -> None:
        """Have the core handle a stimulus, and perform its effects."""
        if self.frozen:
            self._deferred.append(stimulus)
            return
        self.run(self.core.handle(stimulus, self._scheduler.now_s + self.skew_s))

    def serve(self, peer: str, frame: Frame, service_s: float) -> None:
        """The station has served a frame."""
        self.count_served(frame, service_s)
        self.handle(FrameArrived(peer, frame))

    def arrive(self, peer: str, frame: Frame) -> None:
        """A frame has arrived: count it for the load, and handle it, after the station if there is one."""
        if self.meter is not None and isinstance(frame, BatchFrame):
            self.meter.arrived(frame.batch.count)
        if self.station is None:
            self.serve(peer, frame, 0.0)
        else:
            self.station.arrive(peer, frame)

    def count_served(self, frame: Frame, service_s: float) -> None:
        """Count a served frame for the load."""
        if self.meter is not None and isinstance(frame, BatchFrame):
            self.meter.served(frame.batch.count, service_s)

    def measure(self) -> None:
        """Tell the core its load since the last measurement; a paused broker measures nothing."""
        meter, core, now_s = self.meter, self.core, self._scheduler.now_s
        if meter is None or self.frozen or not isinstance(core, BrokerCore):
            return
        if self.station is not None:
            meter.waited(self.station.waiting.read(now_s)[1])
        for channel in self.channels.values():
            channel.read_queue(meter, now_s)
        unsettled = sum(core.statistics().unsettled.values())
        self.handle(meter.measure(now_s, unsettled, core.registration_count("subscription")))

    def pause_reading(self) -> None:
        """Leave arriving frames on their connections."""
        self.waiting = []

    def resume_reading(self, _: object = None) -> None:
        """Read waiting frames, and those to come."""
        waiting, self.waiting = self.waiting or [], None
        for channel, frame in waiting:
            channel.arrive(frame)

    def freeze(self) -> None:
        """Pause the node."""
        self.frozen = True
        self.pause_reading()

    def thaw(self, _: object = None) -> None:
        """Resume, as event loops do: first late timers, then deferred stimuli, then waiting frames."""
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
        time_s = at_s - self.skew_s
        if time_s + self.skew_s < at_s:  # rounded: no timer fires early, or its deadline would be set again for ever
            time_s = math.nextafter(time_s, math.inf)
        self._scheduler.at(time_s, alarm.fire, None)
        return alarm

    def _fire(self, name: str) -> None:
        if self.frozen:
            self._late.append(name)
        elif self.alive:
            self.handle(TimerFired(name))


class Channel:
    """One direction of one connection, with a constant delay; frames in flight are lost when it closes."""

    __slots__ = ("_delay_s", "_host", "_scheduler", "_source", "_target", "arrive", "open")

    def __init__(self, host: Host, scheduler: Scheduler, source: Node, target: Node, delay_s: float) -> None:
        self._host = host
        self._scheduler = scheduler
        self._source, self._target = source, target
        self._delay_s = delay_s
        self.open = True
        #: Bound once: every frame schedules it.
        self.arrive = self._arrive

    def send(self, frame: Frame) -> None:
        """Send a frame; it arrives unless the connection closes."""
        self._host.frames += 1
        scheduler = self._scheduler
        scheduler.at(scheduler.now_s + self._delay_s, self.arrive, frame)

    def read_queue(self, meter: LoadMeter, now_s: float) -> None:
        """Add the frames that left the output queue, and their waits; without an uplink there are none."""

    def _arrive(self, frame: Frame) -> None:
        target = self._target
        if not self.open:
            return
        if target.waiting is not None:
            target.waiting.append((self, frame))
            return
        if target.station is None and target.meter is None:
            # `Node.handle`, inlined: the hot path of a simulation.
            now_s = self._scheduler.now_s + target.skew_s
            target.run(target.core.handle(FrameArrived(self._source.id, frame), now_s))
        else:
            target.arrive(self._source.id, frame)


class LossyChannel(Channel):
    """One whose frames share their broker's uplink, are counted for its load, and may be lost, doubled or late."""

    __slots__ = ("_frame_faults", "_last_arrival_s", "_queue")

    def __init__(
        self, host: Host, scheduler: Scheduler, source: Node, target: Node, delay_s: float, frame_faults: FrameFaults | None
    ) -> None:
        super().__init__(host, scheduler, source, target, delay_s)
        self._frame_faults = frame_faults
        self._last_arrival_s = 0.0
        #: The frames in the uplink's queue.
        self._queue = QueueIntegral()

    def send(self, frame: Frame) -> None:
        """Send a frame over the uplink, if there is one."""
        self._host.frames += 1
        source = self._source
        if source.meter is not None:
            source.meter.put(frame_bytes(frame))
        if source.station is None or source.station.uplink is None:
            self.depart(frame)
        else:
            self._queue.enter(1, self._scheduler.now_s)
            source.station.uplink.send(self, frame)

    def read_queue(self, meter: LoadMeter, now_s: float) -> None:
        """See `Channel.read_queue`."""
        peer = CLIENTS if isinstance(self._target.core, ClientCore) else self._target.id
        meter.queued(peer, *self._queue.read(now_s))

    def begin_departure(self) -> None:
        """See `Departures.begin_departure`."""
        self._queue.leave(1, self._scheduler.now_s)

    def depart(self, frame: Frame) -> None:
        """A frame has left its broker."""
        source = self._source
        if source.meter is not None:
            uplink, size_bytes = None if source.station is None else source.station.uplink, frame_bytes(frame)
            source.meter.sent(size_bytes, 0.0 if uplink is None else size_bytes / uplink.bandwidth_bytes_per_s)
        # Frames overtake each other by faults alone.
        arrives_s = max(self._scheduler.now_s + self._delay_s, self._last_arrival_s)
        for late_s in (0.0,) if self._frame_faults is None else self._frame_faults.delays_s(self._scheduler.now_s):
            if late_s == 0.0:
                self._last_arrival_s = arrives_s
            self._scheduler.at(arrives_s + late_s, self.arrive, frame)
