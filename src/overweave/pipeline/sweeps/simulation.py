"""The kind ``simulation``: a scenario in the simulator, with the metrics of ``overweave simulate``."""

from overweave.drivers.sim.metrics import Metrics
from overweave.drivers.sim.runner import simulate
from overweave.drivers.sim.scenario import ARRAYS, Scenario, scenario_of
from overweave.drivers.toml_config import fields
from overweave.pipeline.sweeps.base import Document, Evaluator


def read(document: Document) -> Scenario:
    """The scenario, whose overlay can be made and suits its protocol."""
    scenario = scenario_of(document)
    scenario.make_overlay()
    scenario.make_timeline(scenario.workload.ids())
    return scenario


def evaluate(scenario: Scenario) -> Metrics:
    """Simulate it."""
    return simulate(scenario)


SIMULATION = Evaluator(
    read,
    evaluate,
    Metrics,
    keys=tuple(fields(Scenario)),
    drawn=("delay_s_mean", "publication_hops", "yield", "control_messages_setup"),
    per_task=4,
    arrays=ARRAYS,
)
