"""The rate of migrations: half of it while deliveries slow down, and back up in steps."""

#: Delays and unsettled publications above this many times their usual value slow migrations down.
_TOLERANCE = 2.0
#: What is never too much: delays and unsettled publications of a network at rest vary.
_DELAY_S_MIN, _UNSETTLED_MIN = 0.05, 100
#: The factors of a backoff and of a recovery, the least share of the full rate, and the weight of a sample in the usual value.
_BACKOFF, _RECOVERY, _LEAST, _WEIGHT = 0.5, 1.25, 1 / 64, 0.2


class Pacing:
    """The rate of migrations in clients per second.

    >>> pacing = Pacing(40.0)
    >>> pacing.sample(delay_s=0.2, unsettled=10), pacing.sample(delay_s=0.9, unsettled=10), pacing.rate_hz
    (False, True, 20.0)
    """

    def __init__(self, rate_hz: float) -> None:
        self._full_hz = self.rate_hz = rate_hz
        self._delay_s: float | None = None
        self._unsettled: float | None = None

    @property
    def interval_s(self) -> float:
        """The time between two migrations."""
        return 1.0 / self.rate_hz

    def sample(self, delay_s: float | None, unsettled: int) -> bool:
        """Adapt the rate to the 99th percentile of delays and to the unsettled publications; whether it backed off."""
        slow = delay_s is not None and self._delay_s is not None and delay_s > max(_DELAY_S_MIN, _TOLERANCE * self._delay_s)
        full = self._unsettled is not None and unsettled > max(_UNSETTLED_MIN, _TOLERANCE * self._unsettled)
        if slow or full:
            self.rate_hz = max(self.rate_hz * _BACKOFF, self._full_hz * _LEAST)
            return True
        # Only calm samples count as usual, so that a long disturbance does not become the standard.
        self._delay_s = delay_s if self._delay_s is None or delay_s is None else _mean(self._delay_s, delay_s)
        self._unsettled = unsettled if self._unsettled is None else _mean(self._unsettled, unsettled)
        self.rate_hz = min(self.rate_hz * _RECOVERY, self._full_hz)
        return False


def _mean(usual: float, sample: float) -> float:
    return (1 - _WEIGHT) * usual + _WEIGHT * sample
