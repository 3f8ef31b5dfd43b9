"""The summary of a sweep: which scenarios were overloaded, and how many faults occurred in all of them."""

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from overweave.drivers.sim.faults import FaultCounts
from overweave.pipeline.sweeps.results import KEY

OVERLOADED = "overloaded"
FAULTS = "faults_"


def overloaded_scenarios(metrics: pa.Table) -> list[dict[str, str]]:
    """The scenarios with overloaded brokers, and these with their utilisations."""
    if OVERLOADED not in metrics.column_names:
        return []
    found = metrics.filter(pc.is_valid(metrics[OVERLOADED]))
    rows: list[dict[str, str]] = found.select([KEY, OVERLOADED]).to_pylist()
    return rows


def fault_totals(metrics: pa.Table) -> FaultCounts:
    """The faults of all scenarios together, by class."""
    totals: dict[str, Any] = {
        name: pc.sum(metrics[f"{FAULTS}{name}"]).as_py() or 0
        for name in FaultCounts.__struct_fields__
        if f"{FAULTS}{name}" in metrics.column_names
    }
    return FaultCounts(**totals)
