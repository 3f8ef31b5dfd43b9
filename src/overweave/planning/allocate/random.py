"""The allocation of the baselines MANUAL and AUTOMATIC (THESIS 7.3.1): anywhere, with no look at capacity."""

import numpy as np

from overweave.planning.allocate.base import Allocation
from overweave.planning.model import Bins, Items, Model


def uniform(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:  # noqa: ARG001
    """Every item to a random broker (AUTOMATIC)."""
    return Allocation(_pinned(items, bins, draw.integers(len(bins), size=len(items)).astype(np.int64)), len(items))


def proportional(model: Model, items: Items, bins: Bins, draw: np.random.Generator) -> Allocation:
    """Numbers of items in proportion to bandwidth, by quota, and which is random (MANUAL); equal brokers: random throughout."""
    bandwidth = model.problem.pool.bandwidth_bytes_per_s[bins.broker]
    if bandwidth.min() == bandwidth.max():
        return uniform(model, items, bins, draw)
    # Rounded, so that bandwidths in another unit deal the same.
    ends = np.round(np.cumsum(bandwidth) / bandwidth.sum(), 9)
    at = np.round((draw.permutation(len(items)) + 0.5) / max(len(items), 1), 9)
    return Allocation(_pinned(items, bins, np.searchsorted(ends, at).astype(np.int64)), len(items))


def _pinned(
    items: Items, bins: Bins, chosen: np.ndarray[tuple[int], np.dtype[np.int64]]
) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    where = {broker: bin for bin, broker in enumerate(bins.broker.tolist())}
    for item in np.flatnonzero(items.fixed >= 0).tolist():
        chosen[item] = where[int(items.fixed[item])]
    return chosen
