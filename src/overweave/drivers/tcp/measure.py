"""Load as a live broker measures it: the counterpart of what the simulator models."""

import time

from overweave.contract.stimuli import LoadMeasured


class Load:
    """What a broker has done since it was measured last."""

    def __init__(self) -> None:
        self._rows = 0
        self._busy_s = 0.0
        self._bytes_before = 0
        self._since_s = time.monotonic()
        #: What was sent over connections that are closed.
        self.bytes_gone = 0
        self.measured = LoadMeasured(0.0, 0.0, 0.0, 0)

    def add(self, rows: int, busy_s: float) -> None:
        """The core was busy with so many publications for so long."""
        self._rows += rows
        self._busy_s += busy_s

    def measure(self, bytes_out: int, queue_length: int) -> LoadMeasured:
        """What was done since the last time; ``bytes_out`` counts from the start, over all connections that are open."""
        now_s = time.monotonic()
        took_s, total = max(now_s - self._since_s, 1e-9), bytes_out + self.bytes_gone
        delay_s = self._busy_s / self._rows if self._rows else 0.0
        self.measured = LoadMeasured(self._rows / took_s, max(total - self._bytes_before, 0) / took_s, delay_s, queue_length)
        self._rows, self._busy_s, self._since_s, self._bytes_before = 0, 0.0, now_s, total
        return self.measured
