"""The load meter: what a broker did since the last measurement, as live brokers and simulated ones count it."""

from overweave.contract.stimuli import LoadMeasured

#: The period between two measurements.
MEASURE_S = 1.0
_PERIOD_S_MIN = 1e-9


class LoadMeter:
    """Rows, busy time and bytes of one broker; both drivers feed it, and time is an argument.

    >>> meter = LoadMeter(now_s=0.0)
    >>> meter.add(rows=10, busy_s=0.002)
    >>> meter.measure(now_s=2.0, bytes_out=800, queue_length=3)
    LoadMeasured(input_hz=5.0, output_bytes_per_s=400.0, matching_delay_s=0.0002, queue_length=3)
    """

    __slots__ = ("_busy_s", "_bytes_before", "_rows", "_since_s", "bytes_gone", "measured")

    def __init__(self, now_s: float) -> None:
        self._rows = 0
        self._busy_s = 0.0
        self._bytes_before = 0
        self._since_s = now_s
        #: Bytes sent over connections that are closed.
        self.bytes_gone = 0
        #: The last measurement.
        self.measured = LoadMeasured(0.0, 0.0, 0.0, 0)

    def add(self, rows: int, busy_s: float) -> None:
        """Count served publications, and the time that the broker was busy with them."""
        self._rows += rows
        self._busy_s += busy_s

    def measure(self, now_s: float, bytes_out: int, queue_length: int) -> LoadMeasured:
        """The load since the last measurement; ``bytes_out`` counts from the start, over all open connections."""
        period_s, total = max(now_s - self._since_s, _PERIOD_S_MIN), bytes_out + self.bytes_gone
        delay_s = self._busy_s / self._rows if self._rows else 0.0
        output_bytes_per_s = max(total - self._bytes_before, 0) / period_s
        self.measured = LoadMeasured(self._rows / period_s, output_bytes_per_s, delay_s, queue_length)
        self._rows, self._busy_s, self._since_s, self._bytes_before = 0, 0.0, now_s, total
        return self.measured
