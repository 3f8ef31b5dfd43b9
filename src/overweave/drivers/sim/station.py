"""A station: the queues of one simulated broker (THESIS fig 7.1).

Frames wait in one input queue, control before publications, and are served one at a time; what goes out shares the broker's
bandwidth.
"""

from collections import deque
from collections.abc import Callable
from functools import partial

from overweave.contract.frames import Data, Frame
from overweave.drivers.sim.costs import Costs, frame_bytes
from overweave.drivers.sim.kernel import Kernel
from overweave.language.messages import Publish

Job = tuple[str, Frame]


class Station:
    """The input queue, the matching engine and the uplink of one broker."""

    def __init__(
        self, kernel: Kernel, costs: Costs, subscriptions: Callable[[], int], serve: Callable[[str, Frame], None]
    ) -> None:
        self._kernel = kernel
        self._costs = costs
        self._subscriptions = subscriptions
        self._serve = serve
        self._control: deque[Job] = deque()
        self._publications: deque[Job] = deque()
        self._busy = False
        self._output_free_s = 0.0
        #: Seconds that the engine and the uplink have worked, and the longest queue.
        self.busy_s = 0.0
        self.output_busy_s = 0.0
        self.queue_max = 0

    def take(self, peer: str, frame: Frame) -> None:
        """A frame has arrived."""
        publication = isinstance(frame, Data) and isinstance(frame.content, Publish)
        (self._publications if publication else self._control).append((peer, frame))
        self.queue_max = max(self.queue_max, len(self._control) + len(self._publications))
        if not self._busy:
            self._begin()

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
        queue = self._control or self._publications
        while queue:
            peer, frame = queue.popleft()
            takes_s = self._costs.service_s(frame, self._subscriptions())
            if takes_s > 0:
                self._busy = True
                self.busy_s += takes_s
                self._kernel.at(self._kernel.now_s + takes_s, partial(self._end, peer, frame))
                return
            self._serve(peer, frame)
            queue = self._control or self._publications

    def _end(self, peer: str, frame: Frame) -> None:
        self._busy = False
        self._serve(peer, frame)
        if not self._busy:
            self._begin()
