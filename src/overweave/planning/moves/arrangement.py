"""An arrangement: brokers joined to a tree, and the broker of every unit and publisher."""

from dataclasses import dataclass, replace

import numpy as np

from overweave.planning.load import Predicted
from overweave.planning.problem import Problem, Whole
from overweave.planning.tree import Tree


@dataclass(frozen=True, eq=False)
class Arrangement:
    """Brokers are positions in the pool; -1: not placed yet."""

    tree: Tree
    units: Whole
    publishers: Whole

    def node_of(self, brokers: int) -> Whole:
        """The node of every broker of the pool, -1 outside the tree."""
        found = np.full(brokers + 1, -1, np.int64)  # the last is that of -1
        found[self.tree.broker] = np.arange(len(self.tree))
        return found

    def kept(self) -> "Arrangement":
        """The arrangement with no client at brokers outside the tree."""
        inside = [np.isin(places, self.tree.broker) for places in (self.units, self.publishers)]
        return replace(self, units=np.where(inside[0], self.units, -1), publishers=np.where(inside[1], self.publishers, -1))


@dataclass(frozen=True, eq=False)
class Settled:
    """An arrangement with everybody in place and no broker without its headroom, and its load."""

    arrangement: Arrangement
    load: Predicted
    #: Clients and publishers at another broker today.
    moves: int

    @property
    def brokers(self) -> int:
        """How many brokers it uses."""
        return len(self.arrangement.tree)

    @property
    def input_hz_mean(self) -> float:
        """The mean message rate of its brokers."""
        return float(self.load.input_hz.mean())


def moves_from_today(problem: Problem, arrangement: Arrangement) -> int:
    """Clients and publishers that are somewhere else today."""
    today = problem.today
    if today is None:
        return 0
    pairs = (today.units, arrangement.units), (today.publishers, arrangement.publishers)
    return sum(int(((now >= 0) & (now != then)).sum()) for now, then in pairs)


def contracted(tree: Tree, node: int, heir: int) -> Tree:
    """The tree without a node; its other links go to ``heir``, one of its neighbours.

    >>> tree, _ = Tree.of([7, 8, 9], [-1, 0, 0])
    >>> contracted(tree, 0, 2).broker.tolist(), contracted(tree, 0, 2).parent.tolist()
    ([9, 8], [-1, 0])
    """
    parents = tree.parent.copy()
    parents[parents == node] = heir
    if tree.parent[heir] == node:
        parents[heir] = tree.parent[node]
    kept = [i for i in range(len(tree)) if i != node]
    place = {old: new for new, old in enumerate(kept)}
    return Tree.of(tree.broker[kept].tolist(), [place.get(int(parents[i]), -1) for i in kept])[0]


def extended(tree: Tree, broker: int, parent: int) -> Tree:
    """The tree with one more broker below a node."""
    return Tree.of([*tree.broker.tolist(), broker], [*tree.parent.tolist(), parent])[0]


def neighbours(tree: Tree, node: int) -> list[int]:
    """The nodes that a node has links to."""
    below = list(range(int(tree.child_start[node]), int(tree.child_start[node + 1])))
    return below if node == 0 else [int(tree.parent[node]), *below]


def star(tree: Tree, centre: int) -> Tree:
    """The brokers of a tree, all linked to one of its nodes."""
    return Tree.of(tree.broker.tolist(), [-1 if node == centre else centre for node in range(len(tree))])[0]


def links_between(tree: Tree) -> tuple[tuple[int, int], ...]:
    """The links of a tree by brokers, in one order; the broker itself where it is alone."""
    pairs = ((int(tree.broker[node]), int(tree.broker[max(int(tree.parent[node]), 0)])) for node in range(len(tree)))
    return tuple(sorted((min(pair), max(pair)) for pair in pairs if pair[0] != pair[1] or len(tree) == 1))


def rerooted(tree: Tree) -> Tree:
    """The same links from the first broker down in canonical order, independent of the root."""
    neighbours: dict[int, list[int]] = {broker: [] for broker in sorted(tree.broker.tolist())}
    for one, other in links_between(tree) if len(tree) > 1 else ():
        neighbours[one].append(other)
        neighbours[other].append(one)
    order = [min(neighbours)]
    parents = {order[0]: -1}
    for at, broker in enumerate(order):  # grows as it goes
        for other in sorted(neighbours[broker]):
            if other not in parents:
                parents[other] = at
                order.append(other)
    return Tree.of(order, [parents[broker] for broker in order])[0]
