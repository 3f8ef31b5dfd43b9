"""The load of the network as it is, predicted from the same profiles: what a plan is compared with."""

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.load import Predicted, predict
from overweave.planning.problem import Problem
from overweave.planning.tree import Tree, parents_of


def current_load(problem: Problem, link_delay_s: float = 0.0) -> tuple[tuple[str, ...], Predicted]:
    """The brokers of today's overlay and the load of each.

    The overlay has to be a tree with everybody in it: rates on other overlays depend on the routing protocol.
    """
    today, pool = problem.today, problem.pool
    if today is None:
        raise PlanningError("today: expected to know the network as it is")
    for kind, ids, places in (
        ("client", problem.units.ids, today.units),
        ("publisher", problem.publishers.ids, today.publishers),
    ):
        for i in np.flatnonzero(places < 0)[:1].tolist():
            raise PlanningError(f"today: {kind} {ids[i]!r}: expected a broker, found none")
    tree = current_tree(problem)
    node = np.full(len(pool), -1, np.int64)
    node[tree.broker] = np.arange(len(tree))
    load = predict(problem, tree, node[today.units], node[today.publishers], link_delay_s=link_delay_s)
    return tuple(pool.ids[broker] for broker in tree.broker.tolist()), load


def current_tree(problem: Problem) -> Tree:
    """Today's overlay: all that have a link, a client or a publisher, as a tree."""
    today = problem.today
    if today is None:
        raise PlanningError("today: expected to know the network as it is")
    position = {id: i for i, id in enumerate(problem.pool.ids)}
    neighbours: dict[int, list[int]] = {}
    for link in today.links:
        for id in link:
            if id not in position:
                raise PlanningError(f"today: links: broker {id!r} is not in the pool")
        one, other = (position[id] for id in link)
        neighbours.setdefault(one, []).append(other)
        neighbours.setdefault(other, []).append(one)
    for places in (today.units, today.publishers):
        for broker in np.unique(places[places >= 0]).tolist():
            neighbours.setdefault(broker, [])
    if not neighbours:
        raise PlanningError("today: expected a network with a broker, found none")
    return _tree(neighbours, len(today.links))


def _tree(neighbours: dict[int, list[int]], links: int) -> Tree:
    brokers = sorted(neighbours)
    parents = parents_of(neighbours, brokers[0])
    if len(parents) != len(brokers) or links != len(brokers) - 1:
        raise PlanningError(f"today: links: expected a tree over the {len(brokers)} brokers in use, found {links} links")
    place = {broker: i for i, broker in enumerate(brokers)}
    return Tree.of(brokers, [place.get(parents[broker], -1) for broker in brokers])[0]
