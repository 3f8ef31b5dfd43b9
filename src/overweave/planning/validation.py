"""The validation of a plan against its problem: structure, load, capacity and goals."""

from collections.abc import Mapping

import numpy as np

from overweave.errors import GoalNotMet, PlanningError
from overweave.planning.load import Predicted, predict
from overweave.planning.plan import Plan, fingerprint, moves_of
from overweave.planning.problem import Problem, Whole
from overweave.planning.tree import Tree, parents_of

#: Floats are compared with this relative tolerance.
_CLOSE = 1e-9


def validate_plan(plan: Plan, problem: Problem, *, capacity: bool = True) -> Predicted:
    """Check a plan against its problem and return its recomputed load; the error names the defect.

    Every client and publisher exactly once, a client's publishing side with it, the overlay a tree, capacity less headroom
    respected with publishers in their places (unless ``capacity`` is off, as for the baselines), goals met.
    """
    if plan.fingerprint != fingerprint(problem):
        raise PlanningError("plan: fingerprint: expected a plan for this network, found one for another")
    tree, unit_node, homes = read_plan(plan, problem)
    load = predict(problem, tree, unit_node, homes, link_delay_s=plan.parameters.get("link_delay_s", 0.0))
    ids = [problem.pool.ids[broker] for broker in tree.broker.tolist()]
    for node, id in enumerate(ids):
        told, now = plan.load[id], (load.input_hz[node], load.output_bytes_per_s[node])
        if not np.allclose((told.input_hz, told.output_bytes_per_s), now, rtol=_CLOSE, atol=_CLOSE):
            raise PlanningError(f"plan: load: broker {id!r}: expected {now}, found {told}")
    if capacity:
        _check_capacity(problem, ids, load)
    check_goals(problem, plan, load)
    return load


def _check_capacity(problem: Problem, ids: list[str], load: Predicted) -> None:
    most = (1 - problem.goals.headroom) * (1 + _CLOSE)
    for name in ("input_utilisation", "output_utilisation"):
        values = getattr(load, name)
        for node in np.flatnonzero(values > most)[:1].tolist():
            raise GoalNotMet("headroom", f"broker {ids[node]!r}: {name} {values[node]:.4g}, at most {most:.4g} is allowed")


def check_goals(problem: Problem, plan: Plan, load: Predicted) -> None:
    """Raise `GoalNotMet` for the first goal that a plan misses, capacity aside."""
    goals = problem.goals
    for id, broker in goals.pins.items():
        at = {plan.clients.get(id, broker), plan.publishers.get(id, broker)}
        if at != {broker}:
            raise GoalNotMet("pins", f"{id!r} is not at {broker!r}")
    for id in goals.exclude:
        if id in plan.brokers:
            raise GoalNotMet("exclude", f"broker {id!r} is used")
    if goals.brokers_max is not None and len(plan.brokers) > goals.brokers_max:
        raise GoalNotMet("brokers_max", f"at most {goals.brokers_max}, the plan uses {len(plan.brokers)}")
    if goals.moves_max is not None and moves_of(plan.changes) > goals.moves_max:
        raise GoalNotMet("moves_max", f"at most {goals.moves_max}, the plan moves {moves_of(plan.changes)}")
    if goals.delay_s_max is not None and not load.delay_s <= goals.delay_s_max:
        raise GoalNotMet("delay_s_max", f"at most {goals.delay_s_max:g} s, the plan has {load.delay_s:.4g} s")


def read_plan(plan: Plan, problem: Problem) -> tuple[Tree, Whole, Whole]:
    """The tree of a plan, and the node of every unit and publisher; the error names what does not fit the problem."""
    position = {id: i for i, id in enumerate(problem.pool.ids)}
    for id in plan.brokers:
        if id not in position:
            raise PlanningError(f"plan: brokers: {id!r} is not in the pool")
    if len(set(plan.brokers)) < len(plan.brokers) or set(plan.load) != set(plan.brokers):
        raise PlanningError("plan: brokers: expected every broker once, with its load")
    tree, numbers = _tree(plan, position)
    node = dict(zip(plan.brokers, numbers.tolist(), strict=True))
    unit_node = _places("clients", problem.units.ids, plan.clients, node)
    homes = _places("publishers", problem.publishers.ids, plan.publishers, node)
    for p, unit in enumerate(problem.publishers.unit.tolist()):
        if unit >= 0 and homes[p] != unit_node[unit]:
            raise PlanningError(f"plan: publishers: {problem.publishers.ids[p]!r} is not where its client is")
    for id, unit in zip(problem.units.subscriptions, problem.units.subscription_unit.tolist(), strict=True):
        if plan.subscribers.get(id) != plan.clients[problem.units.ids[unit]]:
            raise PlanningError(f"plan: subscribers: {id!r} is not where its client is")
    return tree, unit_node, homes


def _tree(plan: Plan, position: Mapping[str, int]) -> tuple[Tree, Whole]:
    number = {id: i for i, id in enumerate(plan.brokers)}
    neighbours: dict[int, list[int]] = {i: [] for i in range(len(plan.brokers))}
    for link in plan.links:
        if not set(link) <= number.keys():
            raise PlanningError(f"plan: links: {link[0]}-{link[1]}: expected brokers of the plan")
        one, other = (number[end] for end in link)
        neighbours[one].append(other)
        neighbours[other].append(one)
    parents = parents_of(neighbours, 0)
    if len(plan.links) != len(plan.brokers) - 1 or len(parents) != len(plan.brokers):
        raise PlanningError("plan: links: expected a tree over all brokers")
    return Tree.of([position[id] for id in plan.brokers], [parents[i] for i in range(len(plan.brokers))])


def _places(field: str, ids: tuple[str, ...], places: Mapping[str, str], node: Mapping[str, int]) -> Whole:
    if places.keys() != set(ids):
        odd = sorted(places.keys() ^ set(ids))[0]
        raise PlanningError(f"plan: {field}: expected each of the problem's exactly once, {odd!r} differs")
    for id, broker in places.items():
        if broker not in node:
            raise PlanningError(f"plan: {field}: {id!r}: broker {broker!r} is not in the plan")
    return np.array([node[places[id]] for id in ids], np.int64)
