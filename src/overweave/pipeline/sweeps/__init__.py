"""Sweeps: a grid of scenarios, evaluated on Spark. A kind is a file and a line in `EVALUATORS`."""

from collections.abc import Mapping

from overweave.pipeline.sweeps.analysis import ANALYSIS
from overweave.pipeline.sweeps.base import Evaluator
from overweave.pipeline.sweeps.churn import CHURN
from overweave.pipeline.sweeps.replay import REPLAY
from overweave.pipeline.sweeps.simulation import SIMULATION

#: Every kind by its name.
EVALUATORS: Mapping[str, Evaluator] = {"simulation": SIMULATION, "replay": REPLAY, "analysis": ANALYSIS, "churn": CHURN}
