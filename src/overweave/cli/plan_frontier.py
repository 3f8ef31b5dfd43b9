"""The frontier of savings against moves in ``overweave plan``."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import msgspec

from overweave.errors import InvalidInput

if TYPE_CHECKING:
    from overweave.planning.evidence import Evidence
    from overweave.planning.plan import FrontierPoint, Plan
    from overweave.planning.problem import Problem

#: Clients times brokers up to which the frontier takes about a second and is computed by default.
CHEAP = 100_000
#: Points listed as text; the file and JSON have all.
_ROWS_MAX = 12


def frontier(
    problem: "Problem", plan: "Plan", evidence: "Evidence", wanted: bool | None, show: Callable[[str], None]
) -> tuple["FrontierPoint", ...]:
    """The frontier if wanted, or by default if cheap; an unknown current network is an error only if wanted."""
    from overweave.planning.algorithms import algorithm
    from overweave.planning.make import make_plan
    from overweave.planning.moves.frontier import frontier_of
    from overweave.planning.options import Options

    cheap = len(problem.units) * len(problem.pool) <= CHEAP
    if wanted is False or (wanted is None and not cheap) or not algorithm(plan.algorithm).keeps_capacity:
        return ()
    try:
        if problem.goals.moves_max is not None:
            # The frontier ends at the plan without that limit.
            problem = replace(problem, goals=msgspec.structs.replace(problem.goals, moves_max=None))
            options = msgspec.convert(plan.parameters, Options)
            plan = make_plan(problem, plan.algorithm, options, plan.seed, evidence)
        show("savings against moves")
        return frontier_of(problem, plan)
    except InvalidInput as error:
        if wanted:
            raise InvalidInput(f"--frontier: {error}") from None
        return ()


def frontier_rows(points: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Evenly spread points, with the first and the last.

    >>> [row["moves"] for row in frontier_rows([{"moves": i} for i in range(100)])][::11]
    [0, 99]
    """
    if len(points) <= _ROWS_MAX:
        return list(points)
    return [points[round(i * (len(points) - 1) / (_ROWS_MAX - 1))] for i in range(_ROWS_MAX)]
