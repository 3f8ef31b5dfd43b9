"""Overload: the additional delay of publications at a simulated broker that gets more than its capacity (MINIMAL 6.1).

The load is how many publications have arrived in the last second, the overload what exceeds the capacity. A publication waits in
proportion to it before it is served, and nothing overtakes.
"""

from collections import deque

#: The length of the interval that the load counts.
INTERVAL_S = 1.0
#: A publication that arrived exactly an interval ago is out of the load, whatever the rounding errors of times.
TOLERANCE_S = 1e-6


class Overload:
    """The load of one broker.

    >>> load = Overload(capacity_hz=2.0, delay_s=0.5)
    >>> [load.release_s(now_s, 1) for now_s in (0.0, 0.25, 0.5, 1.25)]
    [0.0, 0.25, 1.0, 1.25]
    >>> load.peak
    3
    """

    def __init__(self, capacity_hz: float, delay_s: float) -> None:
        self.capacity_hz = capacity_hz
        self._capacity = capacity_hz * INTERVAL_S
        #: For each publication of the overload.
        self._delay_s = delay_s
        self._arrivals: deque[tuple[float, int]] = deque()
        self._load = 0
        #: When the last publication that arrived may be served.
        self.last_release_s = 0.0
        #: The highest load so far.
        self.peak = 0

    def release_s(self, now_s: float, count: int) -> float:
        """When publications that arrive now may be served."""
        self._arrivals.append((now_s, count))
        self._load += count
        while self._arrivals[0][0] <= now_s - INTERVAL_S + TOLERANCE_S:
            self._load -= self._arrivals.popleft()[1]
        self.peak = max(self.peak, self._load)
        wait_s = self._delay_s * max(0.0, self._load - self._capacity)
        self.last_release_s = max(self.last_release_s, now_s + wait_s)
        return self.last_release_s
