"""What every benchmark answers with."""

from collections.abc import Callable

import msgspec

#: Shows the current measurement.
Progress = Callable[[str], None]


class Row(msgspec.Struct, frozen=True):
    """One figure next to its baseline, both measured in the same run because machines differ and are shared.

    >>> Row("W1, 100,000 filters: ids", "µs per publication", ours=100.0, baseline=4000.0, ratio_min=25.0).ratio
    40.0
    """

    name: str
    unit: str
    ours: float
    #: None: a figure without a baseline, such as a time to load.
    baseline: float | None = None
    #: baseline / ours: how many times better, for figures of which less is better.
    ratio: float | None = None
    #: The ratio that we promise.
    ratio_min: float | None = None

    def __post_init__(self) -> None:
        if self.ratio is None and self.baseline is not None and self.ours:
            msgspec.structs.force_setattr(self, "ratio", self.baseline / self.ours)
