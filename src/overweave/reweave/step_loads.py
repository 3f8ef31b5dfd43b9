"""The predicted load of a network on its way from one overlay to another, from profiles."""

from collections.abc import Mapping, Sequence

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.load import predict
from overweave.planning.plan import BrokerLoad, loads_of
from overweave.planning.problem import Problem, Whole
from overweave.planning.tree import Tree, parents_of
from overweave.reweave.difference import Predict
from overweave.reweave.target import Links


def predict_of(problem: Problem, planned: Mapping[str, str]) -> Predict:
    """The model of a problem. Clients and publishers that are nowhere now are at their broker of the plan."""
    position = {id: i for i, id in enumerate(problem.pool.ids)}

    def predicted(brokers: Sequence[str], links: Links, places: Mapping[str, str]) -> Mapping[str, BrokerLoad]:
        for id in brokers:
            if id not in position:
                raise PlanningError(f"profiles: broker {id!r}: expected one of the network file")
        number = {id: i for i, id in enumerate(brokers)}
        neighbours: dict[int, list[int]] = {i: [] for i in range(len(brokers))}
        for one, other in links:
            neighbours[number[one]].append(number[other])
            neighbours[number[other]].append(number[one])
        parents = parents_of(neighbours, 0)
        tree, nodes = Tree.of([position[id] for id in brokers], [parents[i] for i in range(len(brokers))])
        node = {id: int(nodes[i]) for id, i in number.items()}

        def at(ids: Sequence[str]) -> Whole:
            homes = (places.get(id, planned.get(id, brokers[0])) for id in ids)
            return np.array([node.get(home, 0) for home in homes], np.int64)

        load = predict(problem, tree, at(problem.units.ids), at(problem.publishers.ids))
        return loads_of(load, [problem.pool.ids[broker] for broker in tree.broker.tolist()])

    return predicted
