"""A station: the queues of one simulated broker (THESIS fig 7.1).

Frames wait in one input queue, urgent ones first, and are served one at a time; all outgoing frames share the uplink.
"""

from collections import Counter, deque
from collections.abc import Callable

from overweave.batches.base import Batch
from overweave.contract.frames import BatchFrame, Frame, UrgentFrame
from overweave.drivers.sim.costs import Costs
from overweave.drivers.sim.lanes import LaneQueue, is_numbered, is_urgent
from overweave.drivers.sim.overload import Overload
from overweave.drivers.sim.queue_integral import QueueIntegral
from overweave.drivers.sim.scheduler import Scheduler
from overweave.drivers.sim.uplink import Uplink

Job = tuple[str, Frame]


class Station:
    """The input queue, the matching engine and the uplink of one broker; ``serve`` also gets the time that a frame took."""

    def __init__(
        self,
        scheduler: Scheduler,
        costs: Costs,
        match_cost: Callable[[str, Batch], int],
        serve: Callable[[str, Frame, float], None],
    ) -> None:
        self._scheduler = scheduler
        self._costs = costs
        self._match_cost = match_cost
        self._serve = serve
        self._queue: LaneQueue[str] = LaneQueue()
        self._busy = False
        bandwidth = costs.output_bandwidth_bytes_per_s
        #: None: unlimited.
        self.uplink = None if bandwidth is None else Uplink(scheduler, bandwidth)
        #: The load of a broker that delays what exceeds its capacity, and the delayed frames, in order of their release.
        self.overload: Overload | None = None
        if costs.capacity_hz is not None and costs.overloads:
            self.overload = Overload(costs.capacity_hz, costs.overload_delay_s)
        self._delayed: deque[Job] = deque()
        self._delayed_of: Counter[str] = Counter()
        #: Rows that wait for the engine.
        self.waiting = QueueIntegral()
        #: Rows of publications that arrived, and of those the engine has matched against subscriptions.
        self.arrivals = 0
        self.matches = 0
        #: Seconds that the engine has worked, and the longest queue.
        self.busy_s = 0.0
        self.queue_max = 0

    def arrive(self, peer: str, frame: Frame) -> None:
        """A frame has arrived."""
        if isinstance(frame, BatchFrame | UrgentFrame):
            self.arrivals += frame.batch.count
            self.waiting.enter(frame.batch.count, self._scheduler.now_s)
        if self.overload is None or not self._delay(self.overload, peer, frame):
            self._enqueue(peer, frame)

    def queue_length(self) -> int:
        """The number of waiting frames."""
        return len(self._queue)

    def offered_s(self) -> float:
        """Seconds of work that have arrived: served, and waiting as if it were served now."""
        return self.busy_s + sum(self._service_s(*self._subscriptions(*job)) for job in (*self._queue, *self._delayed))

    def uplink_offered_s(self) -> float:
        """Seconds of sending that have arrived at the uplink."""
        return 0.0 if self.uplink is None else self.uplink.offered_s

    def _delay(self, overload: Overload, peer: str, frame: Frame) -> bool:
        """Delay a publication beyond the capacity, and what follows it on its connection; whether the frame is delayed."""
        now_s = self._scheduler.now_s
        if not is_urgent(frame):
            assert isinstance(frame, BatchFrame)
            release_s = overload.release_s(now_s, frame.batch.count)
        elif self._delayed_of[peer] and is_numbered(frame):
            release_s = overload.last_release_s
        else:
            return False
        if release_s <= now_s and not self._delayed_of[peer]:
            return False
        self._delayed.append((peer, frame))
        self._delayed_of[peer] += 1
        self._scheduler.at(release_s, self._release)
        return True

    def _release(self, _: object) -> None:
        peer, frame = self._delayed.popleft()
        self._delayed_of[peer] -= 1
        self._enqueue(peer, frame)

    def _enqueue(self, peer: str, frame: Frame) -> None:
        self._queue.put(peer, frame)
        self.queue_max = max(self.queue_max, len(self._queue))
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        while (job := self._queue.pop()) is not None:
            rows, subscriptions = self._subscriptions(*job)
            self.waiting.leave(rows, self._scheduler.now_s)
            if subscriptions:
                self.matches += rows
            service_s = self._service_s(rows, subscriptions)
            if service_s > 0:
                self._busy = True
                self.busy_s += service_s
                self._scheduler.at(self._scheduler.now_s + service_s, self._end, (job, service_s))
                return
            self._serve(*job, 0.0)

    def _subscriptions(self, peer: str, frame: Frame) -> tuple[int, int]:
        """The rows of a frame, and the number of subscriptions that each is matched against; control takes no time."""
        if not isinstance(frame, BatchFrame | UrgentFrame):
            return 0, 0
        return frame.batch.count, self._match_cost(peer, frame.batch)

    def _service_s(self, rows: int, subscriptions: int) -> float:
        return rows * self._costs.service_s(subscriptions) if rows else 0.0

    def _end(self, served: tuple[Job, float]) -> None:
        job, service_s = served
        self._busy = False
        self._serve(*job, service_s)
        if not self._busy:
            self._begin()
