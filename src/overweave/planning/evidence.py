"""The evidence of a problem: how much of the traffic the profiles have seen, and whether that is enough to plan on."""

import msgspec
import numpy as np

from overweave.errors import PlanningError
from overweave.planning.problem import Problem, Reals

#: Below this share of a full vector the estimate of a subscription's load is a guess (THESIS 6.1.2, 7.3.8).
FILL_MIN = 0.1


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What profiles hold. The fill of a publisher is the share of its vectors' bits that stand for a publication."""

    #: How long it took to fill the windows, at the publishers' rates: the shortest and the longest.
    duration_s_min: float
    duration_s_max: float
    window_bits: int
    fill_mean: float
    fill_min: float
    publishers: int
    subscriptions: int
    #: Subscriptions that received nothing in the window belong to units without a vector.
    idle_units: int
    #: The highest rate of all publishers together in any interval, over the mean; None if unknown.
    peak_over_mean: float | None = None
    sufficient: bool = True


def evidence_of(problem: Problem, rates_hz: Reals | None = None, fill_min: float = FILL_MIN) -> Evidence:
    """The evidence; ``rates_hz`` are rates of all publishers together in successive intervals, if they are known."""
    publishers, units = problem.publishers, problem.units
    bits = problem.vectors.words.shape[1] * 64
    fill = publishers.window / max(bits, 1)
    used = publishers.rate_hz > 0
    lasted = publishers.window[used] / publishers.rate_hz[used]
    peak = None
    if rates_hz is not None and len(rates_hz) and rates_hz.mean() > 0:
        peak = float(rates_hz.max() / rates_hz.mean())
    return Evidence(
        duration_s_min=float(lasted.min(initial=np.inf)) if used.any() else 0.0,
        duration_s_max=float(lasted.max(initial=0.0)),
        window_bits=bits,
        fill_mean=float(fill.mean()) if len(fill) else 0.0,
        fill_min=float(fill.min(initial=1.0)) if len(fill) else 0.0,
        publishers=len(publishers),
        subscriptions=len(units.subscriptions),
        idle_units=int((np.diff(units.row_start) == 0).sum()),
        peak_over_mean=peak,
        sufficient=bool(len(fill) and fill.mean() >= fill_min),
    )


def check_evidence(evidence: Evidence, fill_min: float = FILL_MIN) -> None:
    """Raise an error for insufficient evidence, with the numbers."""
    if not evidence.sufficient:
        raise PlanningError(
            f"profiles: expected vectors of {evidence.window_bits} bits to be filled to {fill_min:.0%} on average,"
            f" found {evidence.fill_mean:.1%} after {evidence.duration_s_max:.3g} s"
        )
