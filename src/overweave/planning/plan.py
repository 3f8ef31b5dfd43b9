"""A plan: brokers, links, and everybody's place, with the load that is predicted. A value with one text form."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec
import numpy as np

from overweave.errors import GoalNotMet, PlanningError
from overweave.overlay.parts import link_ends
from overweave.planning.evaluation import Evaluation
from overweave.planning.evidence import Evidence
from overweave.planning.load import Predicted, predict
from overweave.planning.planned_for import PlannedFor, fingerprint_of, planned_for
from overweave.planning.problem import Goals, Problem, Today, Whole
from overweave.planning.tree import Tree

#: Of the form of `plan.json`.
VERSION = 1
#: Floats are compared with this relative tolerance.
_CLOSE = 1e-9


class BrokerLoad(msgspec.Struct, frozen=True):
    """The predicted load of a broker."""

    input_hz: float
    output_bytes_per_s: float
    input_utilisation: float
    output_utilisation: float


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """One difference between today and a plan; ``kind`` is what changes, ``id`` whom it concerns."""

    #: client, publisher, broker or link.
    kind: str
    id: str
    #: The broker before and after; for brokers and links themselves "used" or "linked".
    before: str | None = None
    after: str | None = None


class Totals(msgspec.Struct, frozen=True):
    """A plan in a few numbers, over the brokers that it uses."""

    brokers: int
    input_hz_mean: float
    input_hz_deviation: float
    input_hz_max: float
    input_utilisation_mean: float
    input_utilisation_max: float
    output_utilisation_mean: float
    output_utilisation_max: float
    overloaded: int
    hops: float | None
    delay_s: float | None
    clusters: int
    moves: int | None
    #: What the brokers cost together, where somebody says what they cost.
    cost: float | None = None


class Before(msgspec.Struct, frozen=True, kw_only=True):
    """The network that a plan changes: its links, and the load that the same profiles predict for it."""

    links: tuple[tuple[str, str], ...]
    load: dict[str, BrokerLoad]
    totals: Totals


class FrontierPoint(msgspec.Struct, frozen=True):
    """What can be had for some moves: a plan of its own, in a few numbers."""

    moves: int
    brokers: int
    input_hz_mean: float
    output_utilisation_max: float
    overloaded: int


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What `plan.json` says."""

    version: int = VERSION
    algorithm: str
    parameters: dict[str, Any]
    seed: int
    #: The network it was made for.
    fingerprint: str
    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]
    clients: dict[str, str]
    subscribers: dict[str, str]
    publishers: dict[str, str]
    load: dict[str, BrokerLoad]
    totals: Totals
    changes: tuple[Change, ...]
    evidence: Evidence
    goals: Goals
    #: None where nobody knows the network as it is.
    before: Before | None = None
    #: Savings against moves, from today's network to the plan as it would be without a limit on moves; empty: not computed.
    frontier: tuple[FrontierPoint, ...] = ()
    #: The network it was made for, to say what differs from another.
    network: PlannedFor | None = None
    #: What given publications did on it, where somebody asked.
    evaluation: Evaluation | None = None
    #: The file beside the plan that says where clients are, if they are too many for JSON.
    placements: str | None = None
    #: Likewise the file that has the changes.
    changes_file: str | None = None

    def encode(self) -> bytes:
        """The canonical JSON: equal plans are equal bytes."""
        return msgspec.json.format(msgspec.json.encode(self, order="deterministic"), indent=1) + b"\n"

    @classmethod
    def decode(cls, data: bytes) -> "Plan":
        """A plan from its JSON; another version is refused."""
        try:
            plan = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise PlanningError(f"plan: {error}") from None
        if plan.version != VERSION:
            raise PlanningError(f"plan: version: expected {VERSION}, found {plan.version}")
        return plan


def fingerprint(problem: Problem) -> str:
    """What tells networks apart; see `fingerprint_of`."""
    return fingerprint_of(planned_for(problem), problem.publishers.ids, problem.units.ids)


def totals_of(load: Predicted, clusters: int, moves: int | None, cost: float | None = None) -> Totals:
    """The numbers of a prediction."""

    def number(value: float) -> float | None:
        return float(value) if np.isfinite(value) else None

    return Totals(
        brokers=len(load.input_hz),
        input_hz_mean=float(load.input_hz.mean()),
        input_hz_deviation=float(load.input_hz.std()),
        input_hz_max=float(load.input_hz.max()),
        input_utilisation_mean=float(load.input_utilisation.mean()),
        input_utilisation_max=float(load.input_utilisation.max()),
        output_utilisation_mean=float(load.output_utilisation.mean()),
        output_utilisation_max=float(load.output_utilisation.max()),
        overloaded=len(load.overloaded),
        hops=number(load.hops),
        delay_s=number(load.delay_s),
        clusters=clusters,
        moves=moves,
        cost=cost,
    )


def links_of(tree: Tree, ids: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """The links of a tree, in one order."""
    pairs = ((ids[tree.broker[node]], ids[tree.broker[tree.parent[node]]]) for node in range(1, len(tree)))
    return tuple(sorted(link_ends(*pair) for pair in pairs))


def changes(
    problem: Problem,
    brokers: Iterable[str],
    links: Iterable[tuple[str, str]],
    units: Mapping[str, str],
    publishers: Mapping[str, str],
) -> tuple[Change, ...]:
    """What differs from today: clients and publishers that move, brokers and links that come and go. Nothing without a today."""
    today = problem.today
    if today is None:
        return ()
    found = [*_moves("client", problem, problem.units.ids, today.units, units)]
    found += _moves("publisher", problem, problem.publishers.ids, today.publishers, publishers)
    used = _used_today(problem, today)
    now, then = dict.fromkeys(used, "used"), dict.fromkeys(brokers, "used")
    found += [Change("broker", id, now.get(id), then.get(id)) for id in sorted(now.keys() ^ then.keys())]
    old, new = {link_ends(*link) for link in today.links}, {link_ends(*link) for link in links}
    found += [
        Change("link", f"{link[0]} {link[1]}", "linked" if link in old else None, "linked" if link in new else None)
        for link in sorted(old ^ new)
    ]
    return tuple(found)


def _moves(kind: str, problem: Problem, ids: tuple[str, ...], before: Whole, after: Mapping[str, str]) -> list[Change]:
    brokers = problem.pool.ids
    rows = zip(ids, before.tolist(), strict=True)
    found = [
        Change(kind, id, brokers[at] if at >= 0 else None, after[id]) for id, at in rows if at < 0 or brokers[at] != after[id]
    ]
    return sorted(found, key=lambda change: change.id)


def _used_today(problem: Problem, today: Today) -> set[str]:
    at = np.concatenate([today.units, today.publishers])
    return {problem.pool.ids[i] for i in np.unique(at[at >= 0]).tolist()} | {id for link in today.links for id in link}


def moves_of(found: Iterable[Change]) -> int:
    """Clients and publishers that are somewhere today and move."""
    return sum(change.kind in ("client", "publisher") and change.before is not None for change in found)


def validate_plan(plan: Plan, problem: Problem, *, capacity: bool = True) -> Predicted:
    """Check a plan against its problem and return the load, computed anew; the error names what is wrong.

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
    neighbours: list[list[int]] = [[] for _ in plan.brokers]
    for link in plan.links:
        if not set(link) <= number.keys():
            raise PlanningError(f"plan: links: {link[0]}-{link[1]}: expected brokers of the plan")
        one, other = (number[end] for end in link)
        neighbours[one].append(other)
        neighbours[other].append(one)
    parents, open = {0: -1}, [0]
    while open:
        at = open.pop()
        for other in neighbours[at]:
            if other not in parents:
                parents[other] = at
                open.append(other)
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
