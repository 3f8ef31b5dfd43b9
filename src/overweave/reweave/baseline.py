"""A moving baseline of a measure, and its outliers."""

import math


class Baseline:
    """A moving mean of logarithms: an outlier counts slowly, a lasting value becomes the baseline.

    >>> baseline = Baseline(factor=2.0, harmless=0.05, calm_s=2.0, slow_s=100.0)
    >>> baseline.add(0.1, 1.0), baseline.add(0.5, 1.0), baseline.add(0.1, 1.0)
    (False, True, False)
    >>> [baseline.add(0.5, 10.0) for _ in range(10)].index(False)
    9
    """

    def __init__(self, *, factor: float, harmless: float, calm_s: float, slow_s: float) -> None:
        #: Values are too high above this many times the baseline, and never up to ``harmless``.
        self._factor, self._least = factor, harmless / factor
        self._calm_s, self._slow_s = calm_s, slow_s
        #: The baseline; None before the first one.
        self.value: float | None = None

    def add(self, value: float, elapsed_s: float) -> bool:
        """Whether a value is too high. It counts for the time since the last one."""
        value = max(value, self._least)
        if self.value is None:
            self.value = value
            return False
        is_high = value > self._factor * self.value
        weight = -math.expm1(-elapsed_s / (self._slow_s if is_high else self._calm_s))
        self.value *= (value / self.value) ** weight
        return is_high
