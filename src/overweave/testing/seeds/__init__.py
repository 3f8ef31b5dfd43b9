"""Simulated runs by seed: a random network, random faults, clients that come and go, and the properties that must hold.

``python -m overweave.testing.seeds --seeds 10000 --jobs 2`` runs many; the guide to testing says how to read the result.
"""

from overweave.testing.seeds.checks import PROPERTIES, Failure
from overweave.testing.seeds.scenario import FAULT_CLASSES, Scenario, draw
from overweave.testing.seeds.simulate import Outcome, run_seed

__all__ = ["FAULT_CLASSES", "PROPERTIES", "Failure", "Outcome", "Scenario", "draw", "run_seed"]
