"""An uplink: the bandwidth that all outgoing frames of one simulated broker share."""

from typing import Protocol

from overweave.contract.frames import Frame
from overweave.drivers.sim.costs import frame_bytes
from overweave.drivers.sim.lanes import LaneQueue
from overweave.drivers.sim.scheduler import Scheduler


class Departures(Protocol):
    """One direction of a connection, as its uplink sees it."""

    open: bool

    def begin_departure(self) -> None:
        """A frame leaves the queue, and is being sent."""

    def depart(self, frame: Frame) -> None:
        """A frame has left the broker."""


class Uplink:
    """Sends one frame at a time, urgent ones first; frames of a connection that is closed are dropped."""

    __slots__ = ("_busy", "_queue", "_scheduler", "bandwidth_bytes_per_s", "offered_s")

    def __init__(self, scheduler: Scheduler, bandwidth_bytes_per_s: float) -> None:
        self._scheduler = scheduler
        self.bandwidth_bytes_per_s = bandwidth_bytes_per_s
        self._queue: LaneQueue[Departures] = LaneQueue()
        self._busy = False
        #: Seconds of sending, of all frames so far, sent or waiting.
        self.offered_s = 0.0

    def __len__(self) -> int:
        return len(self._queue)

    def send(self, channel: Departures, frame: Frame) -> None:
        """Let a frame leave when its turn comes."""
        self.offered_s += frame_bytes(frame) / self.bandwidth_bytes_per_s
        self._queue.put(channel, frame)
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        while (job := self._queue.pop()) is not None:
            if job[0].open:
                self._busy = True
                job[0].begin_departure()
                sending_s = frame_bytes(job[1]) / self.bandwidth_bytes_per_s
                self._scheduler.at(self._scheduler.now_s + sending_s, self._end, job)
                return

    def _end(self, job: tuple[Departures, Frame]) -> None:
        self._busy = False
        channel, frame = job
        channel.depart(frame)
        if not self._busy:
            self._begin()
