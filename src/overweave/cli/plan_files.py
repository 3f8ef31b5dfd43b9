"""Plan files of ``apply`` and ``reweave``: the plan, and its target on an observed network."""

from pathlib import Path

from overweave.cli.operators import Target
from overweave.contract.observation import Observation
from overweave.errors import InvalidInput
from overweave.planning.plan import Plan
from overweave.reweave import target as targets


def read_plan(path: Path) -> Plan:
    """The plan of a file; errors name the file."""
    try:
        plan = Plan.decode(path.read_bytes())
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    if plan.placements is not None:
        raise InvalidInput(f"{path}: placements: expected the places of clients in the plan, found {plan.placements}")
    return plan


def plan_target(plan: Plan, path: Path, observation: Observation, network: Target) -> targets.Target:
    """The target of a plan on an observed network; a plan that was made for another network is an error."""
    try:
        targets.check_tree(plan)
        if not targets.is_change_of(plan, observation):
            targets.check_current(plan, observation, available=set(network.network.urls))
    except InvalidInput as error:
        raise InvalidInput(f"{path}: {error}") from None
    return targets.target_of(plan, observation)
