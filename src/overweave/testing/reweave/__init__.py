"""Seeds of plans that are applied to simulated networks under faults, against a brute-force oracle of deliveries."""

from overweave.testing.reweave.run import FAULTS, GRAPHS, Outcome, run_seed

__all__ = ["FAULTS", "GRAPHS", "Outcome", "run_seed"]
