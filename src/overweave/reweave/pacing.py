"""The rate of migrations: half of it while deliveries slow down, and back up in steps."""

from overweave.reweave.baseline import Baseline
from overweave.reweave.deliveries import Deliveries

#: The interval between two samples.
SAMPLE_S = 0.5
#: Delays and unsettled publications above this many times their usual value slow migrations down.
_TOLERANCE = 2.0
#: What is never too much: delays and unsettled publications of a network at rest vary.
_DELAY_S_MIN, _UNSETTLED_MIN = 0.05, 100
#: The factors of a backoff and of a recovery, and the least share of the full rate.
_BACKOFF, _RECOVERY, _LEAST = 0.5, 1.25, 1 / 64
#: How fast calm samples become usual, and others: a disturbance of some minutes does not become the standard.
_CALM_S, _SLOW_S = 2.0, 300.0


class Pacing:
    """The rate of migrations in clients per second.

    >>> pacing = Pacing(40.0)
    >>> pacing.sample(Deliveries(0.2, 10)), pacing.sample(Deliveries(0.9, 10)), pacing.rate_hz
    (False, True, 20.0)
    """

    def __init__(self, rate_hz: float) -> None:
        self._full_hz = self.rate_hz = rate_hz
        self._delay_s = Baseline(factor=_TOLERANCE, harmless=_DELAY_S_MIN, calm_s=_CALM_S, slow_s=_SLOW_S)
        self._unsettled = Baseline(factor=_TOLERANCE, harmless=_UNSETTLED_MIN, calm_s=_CALM_S, slow_s=_SLOW_S)

    @property
    def interval_s(self) -> float:
        """The time between two migrations."""
        return 1.0 / self.rate_hz

    def sample(self, deliveries: Deliveries, elapsed_s: float = SAMPLE_S) -> bool:
        """Adapt the rate to the deliveries since the last sample; whether it backed off."""
        slow = deliveries.delay_s is not None and self._delay_s.add(deliveries.delay_s, elapsed_s)
        full = self._unsettled.add(deliveries.unsettled, elapsed_s)
        if slow or full:
            self.back_off()
            return True
        self.rate_hz = min(self.rate_hz * _RECOVERY, self._full_hz)
        return False

    def back_off(self) -> None:
        """Halve the rate."""
        self.rate_hz = max(self.rate_hz * _BACKOFF, self._full_hz * _LEAST)
