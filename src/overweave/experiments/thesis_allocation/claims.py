"""The claims of THESIS 7.3, each with the published result and ours.

Shares are changes: -0.9 is 90 % less. Where the text gives a figure in passing ("about", "on average") ours holds if it has the
same sign and is within a factor of two. Delays are compared with headroom, since a broker at 100 % has an endless queue.
"""

from overweave.experiments.thesis_allocation.claim_tools import SCENARIOS
from overweave.experiments.thesis_allocation.claims_brokers import of_bandwidths, of_brokers, of_rates
from overweave.experiments.thesis_allocation.claims_load import of_delays, of_overload, of_paths, of_utilisation
from overweave.experiments.thesis_allocation.claims_parts import of_breakdown, of_lengths, of_metrics, of_times

__all__ = [
    "SCENARIOS",
    "of_bandwidths",
    "of_breakdown",
    "of_brokers",
    "of_delays",
    "of_lengths",
    "of_metrics",
    "of_overload",
    "of_paths",
    "of_rates",
    "of_times",
    "of_utilisation",
]
