"""Frame faults: the loss, duplication and reordering of single frames."""

from collections import Counter

import numpy as np

from overweave.drivers.sim.faults import Faults


class FrameFaults:
    """Draws the faults of each frame, and counts them."""

    __slots__ = ("_counts", "_faults", "_random")

    def __init__(self, faults: Faults, random: np.random.Generator, counts: Counter[str]) -> None:
        self._faults, self._random, self._counts = faults, random, counts

    def delays_s(self, now_s: float) -> list[float]:
        """The additional delay of each copy of a frame; none if it is lost."""
        faults, random = self._faults, self._random.random
        if now_s >= faults.until_s:
            return [0.0]
        if random() < faults.loss:
            self._counts["lost_frames"] += 1
            return []
        copies = 1
        if random() < faults.duplication:
            copies = 2
            self._counts["duplicated_frames"] += 1
        delays_s = [random() * faults.delay_spike_s if random() < faults.reordering else 0.0 for _ in range(copies)]
        if any(delays_s):
            self._counts["reordered_frames"] += 1
        return delays_s
