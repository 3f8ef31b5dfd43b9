"""The integral of a queue's length over time: the sum of all waiting times (Little's law)."""


class QueueIntegral:
    """The length of one queue, with its integral and the number of departures since the last reading.

    >>> queue = QueueIntegral()
    >>> queue.enter(2, now_s=1.0)
    >>> queue.leave(1, now_s=2.0)
    >>> queue.read(now_s=4.0), queue.read(now_s=5.0)
    ((1, 4.0), (0, 1.0))
    """

    __slots__ = ("_area_s", "_left", "_length", "_since_s")

    def __init__(self) -> None:
        self._length = self._left = 0
        self._area_s = self._since_s = 0.0

    def enter(self, count: int, now_s: float) -> None:
        """Count arrivals in the queue."""
        self._advance(now_s)
        self._length += count

    def leave(self, count: int, now_s: float) -> None:
        """Count departures."""
        self._advance(now_s)
        self._length -= count
        self._left += count

    def read(self, now_s: float) -> tuple[int, float]:
        """The number of departures and the integral, since the last call."""
        self._advance(now_s)
        found = self._left, self._area_s
        self._left, self._area_s = 0, 0.0
        return found

    def _advance(self, now_s: float) -> None:
        self._area_s += self._length * (now_s - self._since_s)
        self._since_s = now_s
