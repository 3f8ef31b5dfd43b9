"""The explanation of a place: the cost of every other broker of the plan."""

import msgspec
import numpy as np

from overweave.errors import PlanningError
from overweave.planning.flows import flows_of, per_bit
from overweave.planning.plan import Plan
from overweave.planning.problem import Problem, counted
from overweave.planning.validation import read_plan


class Alternative(msgspec.Struct, frozen=True):
    """A broker as the place of a client or publisher, all others staying where they are."""

    broker: str
    #: The broker of the plan.
    chosen: bool
    #: Publications per second that arrive at all brokers together (publishers), or that this one gets more (clients).
    input_hz: float
    #: What the broker has left with it, headroom kept; below 0 it has no room.
    room_bytes_per_s: float


def explain(plan: Plan, problem: Problem, id: str) -> list[Alternative]:
    """The places of a client or free publisher, the cheapest first; brokers without room come last."""
    if id in problem.publishers.ids and problem.publishers.unit[problem.publishers.ids.index(id)] < 0:
        found = _publisher(plan, problem, problem.publishers.ids.index(id))
    elif id in problem.units.ids:
        found = _client(plan, problem, problem.units.ids.index(id))
    else:
        raise PlanningError(f"{id!r}: expected a client, a publisher or a broker, found none that is called so")
    return sorted(found, key=lambda each: (each.room_bytes_per_s < 0, each.input_hz, not each.chosen, each.broker))


def _room(plan: Plan, problem: Problem, broker: str) -> float:
    bandwidth = float(problem.pool.bandwidth_bytes_per_s[problem.pool.ids.index(broker)])
    return bandwidth * (1 - problem.goals.headroom) - plan.load[broker].output_bytes_per_s


def _publisher(plan: Plan, problem: Problem, publisher: int) -> list[Alternative]:
    tree, unit_node, homes = read_plan(plan, problem)
    flows = flows_of(problem, tree, unit_node)
    rate = float(per_bit(problem, problem.publishers.rate_hz)[publisher])
    size = float(per_bit(problem, problem.publishers.bytes_per_s)[publisher])
    window, home = int(problem.publishers.window[publisher]), int(homes[publisher])
    totals, before = flows.total_rates(publisher), flows.carried(publisher, home, window)[1]
    found = []
    for node, broker in enumerate(tree.broker.tolist()):
        id = problem.pool.ids[broker]
        more = (flows.carried(publisher, node, window)[1] - before)[node] * size
        found.append(Alternative(id, node == home, float(totals[node] * rate), _room(plan, problem, id) - float(more)))
    return found


def _client(plan: Plan, problem: Problem, unit: int) -> list[Alternative]:
    units, vectors = problem.units, problem.vectors
    own = {
        int(vectors.publisher[row]): vectors.words[row] for row in units.rows[units.row_start[unit] : units.row_start[unit + 1]]
    }
    received = {id: {p: np.zeros_like(words) for p, words in own.items()} for id in plan.brokers}
    for other, id in enumerate(units.ids):
        for row in units.rows[units.row_start[other] : units.row_start[other + 1]] if other != unit else ():
            if (p := int(vectors.publisher[row])) in own:
                received[plan.clients[id]][p] |= vectors.words[row]
    rate, here, output = (
        per_bit(problem, problem.publishers.rate_hz),
        plan.clients[units.ids[unit]],
        units.output_bytes_per_s[unit],
    )
    found = []
    for id in plan.brokers:
        new = sum(float(counted((words & ~received[id][p])[None, :])[0] * rate[p]) for p, words in own.items())
        found.append(Alternative(id, id == here, new, _room(plan, problem, id) - (0.0 if id == here else float(output))))
    return found
