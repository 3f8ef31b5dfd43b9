"""Closeness metrics (THESIS 6.2.3): how much traffic two profiles share, and how little else they would bring each other."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from overweave.planning.problem import Reals


@dataclass(frozen=True)
class Closeness:
    """``both ** power / (of_sum * (x + y) - of_both * both + constant)``, for x and y set bits of which ``both`` are shared.

    It grows with ``both``, so that the smaller of x and y bounds it. One whose value is above 0 for profiles that share
    nothing pairs everything with everything.

    >>> CLOSENESS["ios"](8, 36, 24) == 8**2 / 60  # figure 6.2; its text prints 16 bits for S2, which fits none of its values
    True
    """

    power: int
    of_sum: float = 0.0
    of_both: float = 0.0
    constant: float = 0.0
    #: The value where the denominator is 0.
    cap: float = 0.0

    def __call__(self, both: int, x: int, y: int) -> float:
        """The closeness of two profiles."""
        below = self.of_sum * (x + y) - self.of_both * both + self.constant
        return self.cap if below <= 0 else float(both) ** self.power / below

    @property
    def pairs_strangers(self) -> bool:
        """Whether profiles that share nothing can be close."""
        return self.power == 0

    @property
    def parameters(self) -> Reals:
        """What kernels take."""
        return np.array([self.power, self.of_sum, self.of_both, self.constant, self.cap])


#: By name. XOR is the inverse of a count: 2 is above all that is not infinite.
CLOSENESS: Mapping[str, Closeness] = {
    "intersect": Closeness(1, constant=1.0),
    "xor": Closeness(0, of_sum=1.0, of_both=2.0, cap=2.0),
    "ios": Closeness(2, of_sum=1.0),
    "iou": Closeness(2, of_sum=1.0, of_both=1.0),
}
