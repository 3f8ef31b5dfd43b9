"""The brokers of a workload, all alike or of three sizes."""

import numpy as np
from pyspark.sql import DataFrame

from overweave.pipeline.workloads.base import Source, numbered
from overweave.pipeline.workloads.counter_rng import Whole, pick_by_share, share_ends

#: About 195 quotes of 220 bytes: so the thesis' 80 brokers just saturate under MANUAL at 8,000 subscriptions; the text gives
#: no figure, and ``overweave reproduce thesis-allocation`` finds it.
BANDWIDTH_BYTES_PER_S = 43_000.0
#: How many brokers of 80 have which share of the bandwidth (THESIS 7.3.2, heterogeneous scenario).
SIZES = ((15, 1.0), (25, 0.5), (40, 0.25))
#: As a broker of the simulator takes by default.
MATCHING_DELAY_BASE_S, MATCHING_DELAY_PER_SUBSCRIPTION_S = 1e-5, 1e-7


def brokers(source: Source, count: int, *, heterogeneous: bool = False, capacity_hz: float | None = None) -> DataFrame:
    """The table ``brokers``: ``B1`` … ``Bcount``, the large ones first."""
    ends, parts = share_ends(np.array([float(number) for number, _ in SIZES])), np.array([part for _, part in SIZES])

    def make(rows: Whole) -> dict[str, object]:
        part = parts[pick_by_share(ends, (rows + 0.5) / count)] if heterogeneous else np.ones(len(rows))
        return {
            "broker": numbered("B", rows),
            "output_bandwidth_bytes_per_s": BANDWIDTH_BYTES_PER_S * part,
            "matching_delay_base_s": np.full(len(rows), MATCHING_DELAY_BASE_S),
            "matching_delay_per_subscription_s": np.full(len(rows), MATCHING_DELAY_PER_SUBSCRIPTION_S),
            "capacity_hz": [capacity_hz] * len(rows),
            "url": [None] * len(rows),
        }

    return source.table("brokers", count, make)
