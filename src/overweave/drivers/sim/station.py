"""A station: the queues of one simulated broker (THESIS fig 7.1).

Frames wait in one input queue, control before publications, and are served one at a time; what goes out shares the broker's
bandwidth. Nothing overtakes what the same peer has sent before, because a session would not take it.
"""

from collections import Counter, deque
from collections.abc import Callable

from overweave.batches.base import Batch
from overweave.contract.frames import BatchFrame, ControlFrame, Frame, UrgentFrame
from overweave.drivers.sim.costs import Costs, frame_bytes
from overweave.drivers.sim.kernel import Kernel
from overweave.drivers.sim.overload import Overload
from overweave.language.headers import Priority

Job = tuple[str, Frame]


class Station:
    """The input queue, the matching engine and the uplink of one broker."""

    def __init__(
        self, kernel: Kernel, costs: Costs, match_cost: Callable[[str, Batch], int], serve: Callable[[str, Frame], None]
    ) -> None:
        self._kernel = kernel
        self._costs = costs
        self._compared_with = match_cost
        self._serve = serve
        self._control: deque[Job] = deque()
        self._publications: deque[Job] = deque()
        #: How many frames of each peer are among the publications.
        self._waiting: Counter[str] = Counter()
        self._busy = False
        self._output_free_s = 0.0
        #: The load of a broker that delays what is too much for it, and how many frames of each peer it delays.
        self.overload: Overload | None = None
        if costs.capacity_hz is not None and costs.overloads:
            self.overload = Overload(costs.capacity_hz, costs.overload_delay_s)
        self._delayed: Counter[str] = Counter()
        #: How many publications had their content looked at.
        self.matches = 0
        #: Seconds that the engine and the uplink have worked, and the longest queue.
        self.busy_s = 0.0
        self.output_busy_s = 0.0
        self.queue_max = 0

    def take(self, peer: str, frame: Frame) -> None:
        """A frame has arrived."""
        if self.overload is not None and self._delay(self.overload, peer, frame):
            return
        self._queue(peer, frame)

    def _delay(self, overload: Overload, peer: str, frame: Frame) -> bool:
        """Whether a frame has to wait until the overload lets it go: publications, and what is behind them on its connection."""
        now_s = self._kernel.now_s
        if _can_wait(frame):
            assert isinstance(frame, BatchFrame)
            release_s = overload.release_s(now_s, frame.batch.count)
        elif self._delayed[peer] and isinstance(frame, ControlFrame | BatchFrame):
            release_s = overload.last_release_s
        else:
            return False
        if release_s <= now_s and not self._delayed[peer]:
            return False
        self._delayed[peer] += 1
        self._kernel.at(release_s, self._release, (peer, frame))
        return True

    def _release(self, job: Job) -> None:
        self._delayed[job[0]] -= 1
        self._queue(*job)

    def _queue(self, peer: str, frame: Frame) -> None:
        if _can_wait(frame) or (self._waiting[peer] and isinstance(frame, ControlFrame | BatchFrame)):
            self._publications.append((peer, frame))
            self._waiting[peer] += 1
        else:
            self._control.append((peer, frame))
        self.queue_max = max(self.queue_max, self.queue_length())
        if not self._busy:
            self._begin()

    def queue_length(self) -> int:
        """How many frames wait."""
        return len(self._control) + len(self._publications)

    def departure_s(self, frame: Frame) -> float:
        """When a frame that goes out now has left."""
        bandwidth = self._costs.output_bandwidth_bytes_per_s
        if bandwidth is None:
            return self._kernel.now_s
        takes_s = frame_bytes(frame) / bandwidth
        self.output_busy_s += takes_s
        self._output_free_s = max(self._output_free_s, self._kernel.now_s) + takes_s
        return self._output_free_s

    def _begin(self) -> None:
        while job := self._next():
            peer, frame = job
            takes_s = self._service_s(peer, frame)
            if takes_s > 0:
                self._busy = True
                self.busy_s += takes_s
                self._kernel.at(self._kernel.now_s + takes_s, self._end, job)
                return
            self._serve(peer, frame)

    def _service_s(self, peer: str, frame: Frame) -> float:
        """How long the engine is busy with a frame: publications are matched or passed on, all else is quick."""
        if not isinstance(frame, BatchFrame | UrgentFrame):
            return 0.0
        subscriptions = self._compared_with(peer, frame.batch)
        if subscriptions:
            self.matches += frame.batch.count
        return frame.batch.count * self._costs.service_s(subscriptions)

    def _next(self) -> Job | None:
        if self._control:
            return self._control.popleft()
        if not self._publications:
            return None
        job = self._publications.popleft()
        self._waiting[job[0]] -= 1
        return job

    def _end(self, job: Job) -> None:
        self._busy = False
        self._serve(*job)
        if not self._busy:
            self._begin()


def _can_wait(frame: Frame) -> bool:
    return isinstance(frame, BatchFrame) and frame.batch.priority() is Priority.PUBLICATION
