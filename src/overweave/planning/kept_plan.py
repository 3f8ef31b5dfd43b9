"""A plan of earlier evidence on the current problem: new and removed clients, moves, and plans that start from it."""

from dataclasses import replace

import msgspec
import numpy as np

from overweave.planning.plan import Plan, changes, fingerprint, moves_of
from overweave.planning.problem import Problem, Today, Whole


def kept(plan: Plan, problem: Problem) -> Plan:
    """The plan with the clients and publishers of a problem: removed ones are left out, new ones get a place.

    That is the broker where it is, if the plan uses that one, else the one with most output to spare. All brokers of the plan
    have to be in the pool. Loads stay what they were.
    """
    pool, units = problem.pool, problem.units
    position = {id: i for i, id in enumerate(pool.ids)}
    brokers = np.array([position[id] for id in plan.brokers], np.int64)
    spare = pool.bandwidth_bytes_per_s[brokers] - np.array([plan.load[id].output_bytes_per_s for id in plan.brokers])
    used, today = set(plan.brokers), problem.today

    def place(id: str, known: dict[str, str], at: Whole | None, i: int, output_bytes_per_s: float) -> str:
        if id in known:
            return known[id]
        here = -1 if at is None else int(at[i])
        if here >= 0 and pool.ids[here] in used:
            return pool.ids[here]
        most = int(spare.argmax())
        spare[most] -= output_bytes_per_s
        return plan.brokers[most]

    unit_at, publisher_at = (None, None) if today is None else (today.units, today.publishers)
    outputs = units.output_bytes_per_s.tolist()
    clients = {id: place(id, plan.clients, unit_at, i, outputs[i]) for i, id in enumerate(units.ids)}
    publishers = {}
    for i, (id, unit) in enumerate(zip(problem.publishers.ids, problem.publishers.unit.tolist(), strict=True)):
        publishers[id] = clients[units.ids[unit]] if unit >= 0 else place(id, plan.publishers, publisher_at, i, 0.0)
    owner = units.subscription_unit.tolist()
    subscribers = {id: clients[units.ids[unit]] for id, unit in zip(units.subscriptions, owner, strict=True)}
    return msgspec.structs.replace(plan, clients=clients, publishers=publishers, subscribers=subscribers)


def anchored(problem: Problem, plan: Plan) -> Problem:
    """The problem with clients at the places of the plan, so that a new plan moves few; new ones are where they are."""
    position, today = {id: i for i, id in enumerate(problem.pool.ids)}, problem.today

    def places(ids: tuple[str, ...], known: dict[str, str], at: Whole | None) -> Whole:
        nowhere = [-1] * len(ids) if at is None else at.tolist()
        found = (position.get(known[id], -1) if id in known else now for id, now in zip(ids, nowhere, strict=True))
        return np.fromiter(found, np.int64, len(ids))

    units = places(problem.units.ids, plan.clients, None if today is None else today.units)
    publishers = places(problem.publishers.ids, plan.publishers, None if today is None else today.publishers)
    return replace(problem, today=Today(units, publishers, plan.links))


def restated(plan: Plan, problem: Problem) -> Plan:
    """A plan of an anchored problem as one of the problem itself: what changes is said of the network as it is."""
    found = changes(problem, plan.brokers, plan.links, plan.clients, plan.publishers)
    totals = msgspec.structs.replace(plan.totals, moves=None if problem.today is None else moves_of(found))
    return msgspec.structs.replace(plan, changes=found, totals=totals, fingerprint=fingerprint(problem))


def moves_between(one: Plan, other: Plan) -> tuple[int, float]:
    """Clients and publishers with different places, in number and as a share of those in both plans."""
    moved = both = 0
    for before, after in ((one.clients, other.clients), (one.publishers, other.publishers)):
        common = before.keys() & after.keys()
        both += len(common)
        moved += sum(before[id] != after[id] for id in common)
    return moved, moved / both if both else 0.0
