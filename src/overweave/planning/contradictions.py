"""Goals that contradict each other, whatever the traffic: named before any search."""

from typing import TYPE_CHECKING

from overweave.errors import GoalNotMet

if TYPE_CHECKING:
    from overweave.planning.problem import Problem


def check_contradictions(problem: "Problem") -> None:
    """Raise `GoalNotMet` with both goals where no plan at all can meet them."""
    goals = problem.goals
    if goals.brokers_max is not None and goals.brokers_max < 1:
        raise GoalNotMet("brokers_max", f"expected at least 1, found {goals.brokers_max}")
    if goals.moves_max is not None and goals.moves_max < 0:
        raise GoalNotMet("moves_max", f"expected a number from 0 on, found {goals.moves_max}")
    needed = sorted(set(goals.pins.values()))
    if goals.brokers_max is not None and len(needed) > goals.brokers_max:
        raise GoalNotMet("brokers_max", f"at most {goals.brokers_max}, but pins need {len(needed)}: {', '.join(needed[:5])}")
    if goals.moves_max is None or problem.today is None:
        return
    excluded = [id for id, at in _places(problem).items() if at in goals.exclude]
    pinned = [id for id, at in _places(problem).items() if goals.pins.get(id, at) != at]
    moving = sorted({*excluded, *pinned})
    if len(moving) > goals.moves_max:
        why = "pins" if not excluded else "exclude" if not pinned else "pins and exclude"
        raise GoalNotMet("moves_max", f"at most {goals.moves_max}, but {why} alone move {len(moving)}: {', '.join(moving[:5])}")


def _places(problem: "Problem") -> dict[str, str]:
    """Where clients and publishers are today, if they are anywhere; a publisher that is a client is counted once."""
    today, pool = problem.today, problem.pool.ids
    assert today is not None
    rows = [
        *zip(problem.publishers.ids, today.publishers.tolist(), strict=True),
        *zip(problem.units.ids, today.units.tolist(), strict=True),
    ]
    return {id: pool[at] for id, at in rows if at >= 0}
