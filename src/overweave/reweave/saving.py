"""The saving of a plan on a network: all of it before its tree is there, then the part of the clients that still have to move."""

from overweave.contract.observation import Observation
from overweave.planning.plan import Plan
from overweave.reweave.states import current_tree, has_tree_of
from overweave.reweave.target import Target, is_change_of


def is_applied(plan: Plan, target: Target, observation: Observation) -> bool:
    """Whether the network has the tree of a plan, by its change: clients may be at other brokers again, or still."""
    return is_change_of(plan, observation) and has_tree_of(observation.state, target)


def saving_of(plan: Plan, target: Target, observation: Observation, moves: int) -> float:
    """The share of brokers or of the message rate that is still to be saved, whichever is more; more brokers save nothing.

    Once a plan is applied, its saving of the message rate is counted in proportion to the clients that it moves.
    """
    brokers = 1 - len(target.brokers) / len(current_tree(observation.state).brokers)
    rate = _rate_saving(plan)
    if is_applied(plan, target, observation):
        rate *= min(moves / max(len(target.clients), 1), 1.0)
    return brokers if brokers < 0 else max(brokers, rate)


def _rate_saving(plan: Plan) -> float:
    before = 0.0 if plan.before is None else sum(each.input_hz for each in plan.before.load.values())
    return 1 - sum(each.input_hz for each in plan.load.values()) / before if before > 0 else 0.0
