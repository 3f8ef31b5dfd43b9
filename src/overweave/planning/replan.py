"""Whether a plan is kept or replaced when the evidence changes: looked at when enough changed, replaced when that pays.

Two thresholds keep plans from following every swing. A new plan is only thought of when the evidence changed by more than
``change`` since the last time, and it only replaces the current one when, on today's evidence, it saves more than ``gain`` and
what the moves between both are worth. What must not stay is replaced at any price: where a broker is overloaded, or after a
change has used up half of its reserve; where a goal is missed, or a broker is gone.
"""

from collections.abc import Callable
from dataclasses import dataclass

import msgspec
import numpy as np

from overweave.errors import GoalNotMet, InvalidInput
from overweave.planning.current import current_load
from overweave.planning.evidence_change import DEVIATIONS, Observed, deliveries_deviation, evidence_change, observe
from overweave.planning.kept_plan import anchored, kept, moves_between, restated
from overweave.planning.load import Predicted, predict
from overweave.planning.plan import Plan
from overweave.planning.problem import Problem, Whole
from overweave.planning.validation import check_goals, read_plan

#: The share of a broker's reserve that may be used up when the evidence has changed, before the plan is replaced.
RESERVE_USED_MAX = 0.5


class Thresholds(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a plan is thought over, and when it is replaced; all are shares."""

    #: Of deliveries that changed beyond chance since a plan was last made.
    change: float = 0.1
    #: Of brokers (of their cost, where it is known) or of the message rate that a new plan has to save at least.
    gain: float = 0.05
    #: That it has to save besides if everybody moves; for some it is so much less.
    move_price: float = 0.1

    def needed(self, moved: float) -> float:
        """What has to be saved if a share of clients and publishers moves.

        >>> round(Thresholds().needed(0.5), 3)
        0.1
        """
        return self.gain + self.move_price * moved


class Standing(msgspec.Struct, frozen=True):
    """A plan, or the network as it is, on today's evidence."""

    brokers: int
    cost: float
    #: Publications that arrive at all brokers together.
    input_hz: float
    #: The highest share of what a broker can carry, input or output.
    utilisation_max: float


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the current plan, and why."""

    #: first, kept or replaced.
    action: str
    reason: str
    #: None where there was nothing to compare with.
    change: float | None = None
    #: The saving of the candidate plan, the required saving, and the moves; None without a candidate.
    saving: float | None = None
    needed: float | None = None
    moves: int | None = None
    #: The plan that is current from now on, the plan before, and the network as it is, on today's evidence.
    standing: Standing | None = None
    before: Standing | None = None
    today: Standing | None = None

    @property
    def pending_brokers(self) -> int | None:
        """Brokers that the network would save if it were as the plan has it."""
        return None if self.standing is None or self.today is None else self.today.brokers - self.standing.brokers

    @property
    def pending_input_hz(self) -> float | None:
        """Likewise of the message rate."""
        return None if self.standing is None or self.today is None else self.today.input_hz - self.standing.input_hz


@dataclass(frozen=True, eq=False)
class Current:
    """The current plan, and the evidence of the last planning (None: unknown)."""

    plan: Plan
    observed: Observed | None = None


def replan(
    current: Current | None, problem: Problem, thresholds: Thresholds, make: Callable[[Problem], Plan]
) -> tuple[Decision, Current]:
    """The decision on today's evidence, and what holds from now on; ``make`` makes a plan of a problem.

    What ``make`` raises comes through where there is no plan, or none that can stay; else the plan is kept.
    """
    observed, today = observe(problem), _today(problem)
    if current is None:
        made = make(problem)
        decision = Decision(action="first", reason="there was no plan", standing=standing(made, problem), today=today)
        return decision, Current(made, observed)
    change = None if current.observed is None else evidence_change(current.observed, observed)
    changed = change is not None and change > thresholds.change
    before, forced = _state(current.plan, problem, changed)
    if forced is None and change is not None and not changed and _same_pool(current.observed, observed):
        reason = f"the evidence changed by {change:.1%} beyond chance; up to {thresholds.change:.1%} nothing is done"
        return Decision(action="kept", reason=reason, change=change, standing=before, today=today), current
    try:
        made = _made(problem, current.plan, make)
    except InvalidInput as error:
        if before is None:
            raise
        reason = f"no other plan was found: {error}"
        decision = Decision(action="kept", reason=reason, change=change, standing=before, today=today)
        return decision, Current(current.plan, observed)
    after = standing(made, problem)
    moves, moved = moves_between(current.plan, made)
    saving, needed = _saving(before, after), thresholds.needed(moved)
    if before is not None and after.utilisation_max >= max(before.utilisation_max, 1.0):
        # Who plans without capacity in mind may make it worse.
        forced = None
    reason, replaced = _judged(forced, saving, needed, moves)
    decision = Decision(
        action="replaced" if replaced else "kept",
        reason=reason,
        change=change,
        saving=saving,
        needed=needed,
        moves=moves,
        standing=after if replaced else before,
        before=before,
        today=today,
    )
    return decision, Current(made if replaced else current.plan, observed)


def standing(plan: Plan, problem: Problem) -> Standing:
    """A plan on a problem whose clients and publishers are those of the plan."""
    tree, units, homes = read_plan(plan, problem)
    return _standing(problem, tree.broker, predict(problem, tree, units, homes))


def _made(problem: Problem, current: Plan, make: Callable[[Problem], Plan]) -> Plan:
    """A new plan that moves few compared with the current one; where moves are limited, with the network as it is."""
    if problem.goals.moves_max is not None:
        return make(problem)
    return restated(make(anchored(problem, current)), problem)


def _state(plan: Plan, problem: Problem, changed: bool) -> tuple[Standing | None, str | None]:
    """A plan of before on today's evidence, and why it cannot stay, if it cannot."""
    offered = set(problem.pool.ids)
    for id in plan.brokers:
        if id not in offered:
            return None, f"broker {id!r} is not on offer any more"
    now = kept(plan, problem)
    tree, units, homes = read_plan(now, problem)
    load = predict(problem, tree, units, homes, link_delay_s=plan.parameters.get("link_delay_s", 0.0))
    found = _standing(problem, tree.broker, load)
    most = _utilisation_max(plan, problem.goals.headroom, changed)
    used = np.maximum(load.input_utilisation, load.output_utilisation)
    for node in np.flatnonzero(used > most).tolist():
        # Without a change it may be chance: the lower bound counts.
        chance = 0.0 if changed else DEVIATIONS * deliveries_deviation(problem, np.flatnonzero(units == node))
        if used[node] * (1 - chance) > most:
            id = problem.pool.ids[tree.broker[node]]
            return found, f"broker {id!r} is used to {used[node]:.1%}, more than {most:.1%}"
    try:
        check_goals(problem, now, load)
    except GoalNotMet as error:
        return found, str(error)
    return found, None


def _utilisation_max(plan: Plan, headroom: float, changed: bool) -> float:
    """How far a broker may be used. Reserves are for swings, so without a change all of it may be."""
    most = 1 - headroom * (1 - RESERVE_USED_MAX) if changed else 1.0
    planned = max(max(each.input_utilisation, each.output_utilisation) for each in plan.load.values())
    # Who plans without capacity in mind has brokers above it from the beginning.
    return most if planned <= most else planned * (1 + RESERVE_USED_MAX)


def _today(problem: Problem) -> Standing | None:
    try:
        ids, load = current_load(problem)
    except InvalidInput:
        return None
    position = {id: i for i, id in enumerate(problem.pool.ids)}
    return _standing(problem, np.array([position[id] for id in ids], np.int64), load)


def _standing(problem: Problem, brokers: Whole, load: Predicted) -> Standing:
    utilisation = np.maximum(load.input_utilisation, load.output_utilisation)
    cost = float(problem.pool.costs[brokers].sum())
    return Standing(len(brokers), cost, float(load.input_hz.sum()), float(utilisation.max()))


def _same_pool(before: Observed | None, now: Observed) -> bool:
    return before is not None and all(
        np.array_equal(getattr(before.pool, name), getattr(now.pool, name))
        for name in ("ids", "bandwidth_bytes_per_s", "base_s", "slope_s", "capacity_hz", "costs")
    )


def _saving(before: Standing | None, after: Standing) -> float | None:
    """The share of brokers or of the message rate that is saved, whichever is more; what costs more brokers saves nothing."""
    if before is None:
        return None
    brokers = 1 - after.cost / before.cost if before.cost > 0 else 0.0
    if brokers < 0:
        return brokers
    return max(brokers, 1 - after.input_hz / before.input_hz if before.input_hz > 0 else 0.0)


def _judged(forced: str | None, saving: float | None, needed: float, moves: int) -> tuple[str, bool]:
    """Why the plan is replaced or kept, and whether it is replaced."""
    if forced is not None or saving is None:
        return str(forced), True
    if saving > needed:
        return f"a new plan saves {saving:.1%}, which pays for {moves:,} moves: {needed:.1%} is needed", True
    return f"a new plan would save {saving:.1%}, which does not pay for {moves:,} moves: {needed:.1%} is needed", False
