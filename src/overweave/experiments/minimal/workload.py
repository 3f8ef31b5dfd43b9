"""The workloads of MINIMAL 6.1 with the data for counting: publication times and matching clients.

A publisher of rate r publishes every 1,000 / r ticks. The paper does not say when it begins: at a uniform time within its first
period, because publishers that all began together would publish in bursts.
"""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from overweave.experiments.minimal.kernels import count_inside, list_inside
from overweave.pipeline.workloads.boxes import Boxes, BoxesOptions, make_boxes
from overweave.pipeline.workloads.counter_rng import CounterRng, Real, Whole

#: Ticks per time unit (6.1).
UNIT_TICKS = 1_000.0
#: Both readings of how boxes are drawn (`overweave.pipeline.workloads.boxes`).
Generator = Literal["corners", "widths"]
GENERATORS: tuple[Generator, ...] = ("corners", "widths")


@dataclass(frozen=True, eq=False)
class Workload:
    """Boxes, publications in time, and the subscriptions that each matches."""

    options: BoxesOptions
    seed: int
    boxes: Boxes
    #: When each publication is published.
    at_ticks: Real
    #: Matching subscriptions, one publication after the other, and where each one's end.
    matches: NDArray[np.int32]
    ends: Whole

    @property
    def publications(self) -> int:
        """How many are published."""
        return len(self.at_ticks)


def make_workload(clients: int, generator: Generator, seed: int) -> Workload:
    """The workload of a number of clients, a quarter of them publishers."""
    options = BoxesOptions(publishers=clients // 4, subscriptions=clients - clients // 4, boxes=generator)
    boxes = make_boxes(options, seed)
    period = UNIT_TICKS / boxes.rates[boxes.publisher]
    phase = CounterRng(seed, "phase").uniform(np.arange(options.publishers))
    matches, ends = match(boxes.points, boxes.subscriptions)
    return Workload(options, seed, boxes, (phase[boxes.publisher] + boxes.sequence) * period, matches, ends)


def match(points: Real, boxes: Real) -> tuple[NDArray[np.int32], Whole]:
    """The boxes that contain each point, and where each point's end.

    >>> match(np.array([[1.0, 5.0], [1.0, 5.0]]), np.array([[[0.0, 5.0], [4.0, 9.0]], [[0.0, 0.0], [9.0, 9.0]]]))[1].tolist()
    [1, 2]
    """
    counts = np.empty(points.shape[1], np.int64)
    count_inside(points, boxes, counts)
    ends = np.cumsum(counts)
    found = np.empty(int(counts.sum()), np.int32)
    list_inside(points, boxes, found)
    return found, ends
