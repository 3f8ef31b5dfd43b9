"""The frontier of savings against moves: the fewest brokers for a limited number of moving clients and publishers."""

from collections.abc import Iterable
from dataclasses import replace

from overweave.errors import GoalNotMet, PlanningError
from overweave.planning.canonical import canonical
from overweave.planning.current import current_load, current_tree
from overweave.planning.load import Predicted, predict
from overweave.planning.model import Model, make_model
from overweave.planning.moves.arrangement import Arrangement, Settled, moves_from_today, rerooted
from overweave.planning.moves.search import Rank, Search
from overweave.planning.plan import FrontierPoint, Plan
from overweave.planning.problem import Problem
from overweave.planning.validation import read_plan

#: Of two points with as many brokers, the one with more moves has to have a mean rate that is lower by this share.
CLEARLY = 0.02


def frontier_of(problem: Problem, plan: Plan) -> tuple[FrontierPoint, ...]:
    """The frontier between today's network and a plan for it; `PlanningError` where that is not known to be a tree."""
    ordered = canonical(problem)
    _, now = current_load(ordered)
    tree, unit_node, homes = read_plan(plan, ordered)
    full = Arrangement(tree, tree.broker[unit_node], tree.broker[homes])
    points = Frontier(make_model(ordered), full, plan.parameters.get("link_delay_s", 0.0)).points()
    # Today's own network comes first, also where it lacks the headroom.
    today = _point(0, now)
    found = (_point(each.moves, each.load) for each in points)
    return today, *(each for each in found if each.moves or each.brokers < today.brokers)


def _point(moves: int, load: Predicted) -> FrontierPoint:
    return FrontierPoint(
        moves, len(load.input_hz), float(load.input_hz.mean()), float(load.output_utilisation.max()), len(load.overloaded)
    )


class Frontier:
    """What can be had for how many moves, between today's network and a plan."""

    def __init__(self, model: Model, plan: Arrangement, link_delay_s: float = 0.0) -> None:
        plan = replace(plan, tree=rerooted(plan.tree))
        self._problem, self._plan, self._search = model.problem, plan, Search(model, link_delay_s)
        node_of = plan.node_of(len(model.problem.pool))
        load = predict(model.problem, plan.tree, node_of[plan.units], node_of[plan.publishers], link_delay_s=link_delay_s)
        self.end = Settled(plan, load, moves_from_today(model.problem, plan))

    def points(self) -> list[Settled]:
        """From the fewest moves to the plan, which is the last; all others save something that none with fewer moves does."""
        start = self._search.start()
        found = [] if start is None else [start, *self._descents(start, None), *self._search.widen(start)]
        found += self._search.towards(self._plan)
        good = [each for each in found if meets(self._problem, each) and each.moves < self.end.moves]
        return [*best_of(good), self.end]

    def within(self, moves_max: int) -> Settled:
        """The arrangement with the fewest brokers within the limit of moves; `GoalNotMet` names the necessary number."""
        near = [each for each in self._search.towards(self._plan) if each.moves <= moves_max]
        try:
            start, brokers = self._search.start(), len(current_tree(self._problem))
        except PlanningError as error:
            # Without links the number of superfluous brokers is unknown.
            return self._best(near, moves_max, f"the plan moves {self.end.moves} ({error})")
        # A search without a limit may end below it: a displaced client may return to its place.
        ways = [] if start is None else [start, *self._search.widen(start), *self._descents(start, None)]
        if start is not None and start.moves <= moves_max:
            ways += self._descents(start, moves_max)
        found = [*near, *(each for each in ways if each.moves <= moves_max)]
        if start is None or start.moves:
            least = min(each.moves for each in (*ways, self.end))
            return self._best(found, moves_max, f"to keep pins, exclusions and headroom takes {least}")
        if not any(each.brokers < brokers for each in found):
            # Nothing to mend and nothing saved: to leave all as it is would be no plan, unless it is the best one.
            needed = min((each.moves for each in (*ways, self.end) if each.brokers < brokers), default=None)
            found = found if needed is None else []
            return self._best(found, moves_max, f"to remove one of {brokers} brokers takes {needed}")
        return self._best(found, moves_max, f"the plan moves {self.end.moves}")

    def _best(self, found: Iterable[Settled], moves_max: int, otherwise: str) -> Settled:
        good = [each for each in found if meets(self._problem, each)]
        if not good:
            raise GoalNotMet("moves_max", f"at most {moves_max}, {otherwise}")
        return min(good, key=_quality)

    def _descents(self, start: Settled, moves_max: int | None) -> list[Settled]:
        """By the fewest moves alone, and towards the plan: its brokers are removed last."""
        used = set(self._plan.tree.broker.tolist())
        towards: Rank = lambda broker: (int(broker in used),)  # noqa: E731
        return [each for rank in (_any, towards) for each in self._search.descend(start, rank, moves_max)]


def meets(problem: Problem, found: Settled) -> bool:
    """Whether the goals on brokers and delay are met; the others always are."""
    goals = problem.goals
    if goals.brokers_max is not None and found.brokers > goals.brokers_max:
        return False
    return goals.delay_s_max is None or found.load.delay_s <= goals.delay_s_max


def best_of(found: Iterable[Settled]) -> list[Settled]:
    """By moves, those with fewer brokers than all with fewer moves, or as many brokers and a mean rate that is clearly lower."""
    kept: list[Settled] = []
    for each in sorted(found, key=lambda each: (each.moves, *_quality(each))):
        last = kept[-1] if kept else None
        if (
            last is None
            or each.brokers < last.brokers
            or (each.brokers == last.brokers and each.input_hz_mean < last.input_hz_mean * (1 - CLEARLY))
        ):
            kept.append(each)
    return kept


def _quality(found: Settled) -> tuple[int, float, int]:
    return found.brokers, found.input_hz_mean, found.moves


def _any(broker: int) -> tuple[int, ...]:  # noqa: ARG001
    return ()
