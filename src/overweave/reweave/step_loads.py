"""The predicted load of a network in transition from one overlay to another, from profiles."""

from collections.abc import Mapping, Sequence

import numpy as np

from overweave.errors import PlanningError
from overweave.planning.load import predict
from overweave.planning.plan import BrokerLoad, loads_of
from overweave.planning.prefix_load import Moving, prefix_utilisation
from overweave.planning.problem import Problem, Whole
from overweave.planning.tree import Tree, parents_of
from overweave.reweave.difference import Peak
from overweave.reweave.situation import Move
from overweave.reweave.target import Links

#: The most prefixes of migrations with a prediction of their own: of more moves, every second, third … prefix.
PREFIXES_MAX = 512


class ProfileModel:
    """The model of a problem. Clients and publishers that are nowhere now are at their broker of the plan."""

    def __init__(self, problem: Problem, planned: Mapping[str, str]) -> None:
        self._problem, self._planned = problem, planned
        self._position = {id: i for i, id in enumerate(problem.pool.ids)}

    def load(self, brokers: Sequence[str], links: Links, places: Mapping[str, str]) -> Mapping[str, BrokerLoad]:
        """See `LoadModel.load`."""
        tree, node = self._tree(brokers, links)
        units, publishers = (self._nodes(of.ids, brokers, node, places) for of in (self._problem.units, self._problem.publishers))
        load = predict(self._problem, tree, units, publishers)
        return loads_of(load, [self._problem.pool.ids[broker] for broker in tree.broker.tolist()])

    def peaks(self, brokers: Sequence[str], links: Links, places: Mapping[str, str], moves: Sequence[Move]) -> list[Peak]:
        """See `LoadModel.peaks`."""
        tree, node = self._tree(brokers, links)
        stride = max(1, -(-len(moves) // PREFIXES_MAX))
        count = -(-len(moves) // stride)
        steps = {move.client: i // stride + 1 for i, move in enumerate(moves)}
        later = {**places, **{move.client: move.to for move in moves}}

        def moving(ids: Sequence[str]) -> Moving:
            before, after = (self._nodes(ids, brokers, node, at) for at in (places, later))
            return Moving(before, after, np.array([steps.get(id, 0) for id in ids], np.int64))

        shares = prefix_utilisation(
            self._problem, tree, moving(self._problem.units.ids), moving(self._problem.publishers.ids), count
        )
        most = shares.argmax(axis=1)
        ids = [self._problem.pool.ids[broker] for broker in tree.broker.tolist()]
        return [Peak(min(i * stride, len(moves)), ids[most[i]], float(shares[i, most[i]])) for i in range(1, count + 1)]

    def _tree(self, brokers: Sequence[str], links: Links) -> tuple[Tree, dict[str, int]]:
        """The tree of some links, and the node of each broker."""
        for id in brokers:
            if id not in self._position:
                raise PlanningError(f"profiles: broker {id!r}: expected one of the network file")
        number = {id: i for i, id in enumerate(brokers)}
        neighbours: dict[int, list[int]] = {i: [] for i in range(len(brokers))}
        for one, other in links:
            neighbours[number[one]].append(number[other])
            neighbours[number[other]].append(number[one])
        parents = parents_of(neighbours, 0)
        tree, nodes = Tree.of([self._position[id] for id in brokers], [parents[i] for i in range(len(brokers))])
        return tree, {id: int(nodes[i]) for id, i in number.items()}

    def _nodes(self, ids: Sequence[str], brokers: Sequence[str], node: Mapping[str, int], places: Mapping[str, str]) -> Whole:
        homes = (places.get(id, self._planned.get(id, brokers[0])) for id in ids)
        return np.array([node.get(home, 0) for home in homes], np.int64)
