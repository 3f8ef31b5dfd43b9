"""The load meter: the accumulator of a broker's load that live and simulated brokers feed."""

from overweave.contract.stimuli import LoadMeasured

#: The period between two measurements.
MEASURE_S = 1.0
_PERIOD_S_MIN = 1e-9
#: All clients together, in `LoadMeasured.output_delays_s`.
CLIENTS = ""


class LoadMeter:
    """Rows, times and bytes of one broker since the last measurement; time is an argument.

    Waiting times are sums over all that waited, or the integral of a queue's length, which is the same (Little's law).

    >>> meter = LoadMeter(now_s=0.0, output_bandwidth_bytes_per_s=500.0)
    >>> meter.arrived(rows=20)
    >>> meter.served(rows=10, busy_s=2.0)
    >>> meter.put(1200)
    >>> meter.sent(800, busy_s=1.6)
    >>> load = meter.measure(now_s=2.0, queue_length=3)
    >>> load.input_hz, load.matching_delay_s, load.input_ratio, load.cpu_ratio, round(load.output_ratio, 2)
    (10.0, 0.2, 2.0, 1.0, 1.2)
    """

    __slots__ = (
        "_arrived",
        "_bandwidth",
        "_busy_s",
        "_output_busy_s",
        "_put_bytes",
        "_queued",
        "_sent_bytes",
        "_served",
        "_since_s",
        "_waited_s",
        "measured",
    )

    def __init__(self, now_s: float, output_bandwidth_bytes_per_s: float | None = None) -> None:
        self._bandwidth = output_bandwidth_bytes_per_s
        self._reset(now_s)
        #: The last measurement.
        self.measured = LoadMeasured()

    def arrived(self, rows: int) -> None:
        """Count arrivals of publications."""
        self._arrived += rows

    def served(self, rows: int, busy_s: float) -> None:
        """Count served publications, and the time that the broker was busy with them."""
        self._served += rows
        self._busy_s += busy_s

    def waited(self, row_seconds: float) -> None:
        """Add waiting time of publications in the input queue."""
        self._waited_s += row_seconds

    def put(self, size_bytes: int) -> None:
        """Count bytes put into the output queues."""
        self._put_bytes += size_bytes

    def sent(self, size_bytes: int, busy_s: float) -> None:
        """Count bytes that left the output queues, and the time that the output was busy with them."""
        self._sent_bytes += size_bytes
        self._output_busy_s += busy_s

    def queued(self, peer: str, count: float, waited_s: float) -> None:
        """Count frames, or bytes, that left the output queue to a neighbour or to `CLIENTS`, with the sum of their waits."""
        counted, total_s = self._queued.get(peer, (0.0, 0.0))
        self._queued[peer] = counted + count, total_s + waited_s

    def measure(
        self,
        now_s: float,
        queue_length: int,
        subscriptions: int = 0,
        memory_bytes: int | None = None,
        memory_bytes_max: int | None = None,
    ) -> LoadMeasured:
        """The load since the last measurement; the arguments are values of this moment."""
        window_s = max(now_s - self._since_s, _PERIOD_S_MIN)
        left, waited_s = (sum(column) for column in zip((0.0, 0.0), *self._queued.values(), strict=True))
        self.measured = LoadMeasured(
            input_hz=self._arrived / window_s,
            put_bytes_per_s=self._put_bytes / window_s,
            matching_delay_s=self._busy_s / self._served if self._served else 0.0,
            queue_length=queue_length,
            window_s=window_s,
            subscriptions=subscriptions,
            sent_bytes_per_s=self._sent_bytes / window_s,
            output_busy=min(self._output_busy_s / window_s, 1.0),
            output_bandwidth_bytes_per_s=self._bandwidth,
            input_delay_s=self._waited_s / max(self._served, 1),
            output_delay_s=waited_s / left if left else 0.0,
            output_delays_s={peer: total_s / count if count else 0.0 for peer, (count, total_s) in sorted(self._queued.items())},
            memory_bytes=memory_bytes,
            memory_bytes_max=memory_bytes_max,
        )
        self._reset(now_s)
        return self.measured

    def _reset(self, now_s: float) -> None:
        self._since_s = now_s
        self._arrived = self._served = self._put_bytes = self._sent_bytes = 0
        self._busy_s = self._waited_s = self._output_busy_s = 0.0
        self._queued: dict[str, tuple[float, float]] = {}
