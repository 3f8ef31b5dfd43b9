"""A tree of brokers with everybody's place in it, as arrays in breadth-first order: parents come before their children."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from overweave.planning.problem import Whole


@dataclass(frozen=True, eq=False)
class Tree:
    """Node 0 is the root. The children of node i are ``child_start[i]`` … ``child_start[i + 1] - 1``."""

    #: The position in the pool of each node's broker.
    broker: Whole
    #: -1 for the root.
    parent: Whole
    child_start: Whole

    def __len__(self) -> int:
        return len(self.broker)

    @classmethod
    def of(cls, brokers: Sequence[int], parents: Sequence[int]) -> tuple["Tree", Whole]:
        """A tree of brokers with the position of each one's parent (-1: root), and the node of each.

        >>> tree, nodes = Tree.of([7, 8, 9], [1, -1, 1])
        >>> tree.broker.tolist(), tree.parent.tolist(), nodes.tolist()
        ([8, 7, 9], [-1, 0, 0], [1, 0, 2])
        """
        children: list[list[int]] = [[] for _ in brokers]
        order: list[int] = []
        for i, parent in enumerate(parents):
            (children[parent] if parent >= 0 else order).append(i)
        start = [1]
        for i in order:  # grows as it goes
            order.extend(children[i])
            start.append(len(order))
        nodes = np.empty(len(brokers), np.int64)
        nodes[order] = np.arange(len(order))
        above = np.array([nodes[parents[i]] if parents[i] >= 0 else -1 for i in order], np.int64)
        return cls(np.array([brokers[i] for i in order], np.int64), above, np.array(start, np.int64)), nodes

    @property
    def depth(self) -> Whole:
        """Links from the root, per node."""
        found = np.zeros(len(self), np.int64)
        for node in range(1, len(self)):
            found[node] = found[self.parent[node]] + 1
        return found

    def path_to_root(self, node: int) -> list[int]:
        """The nodes from one up to the root, both included."""
        path = [node]
        while self.parent[path[-1]] >= 0:
            path.append(int(self.parent[path[-1]]))
        return path


@dataclass(frozen=True, eq=False)
class Design:
    """A tree, the node of every item, and of every publisher that has a place already (-1: it starts at the root)."""

    tree: Tree
    item: Whole
    publisher: Whole
    #: Clusters that items were placed as, in the lowest layer.
    clusters: int


def parents_of(neighbours: Mapping[int, Sequence[int]], root: int) -> dict[int, int]:
    """The parent of every node that is reachable from ``root``, by depth-first search; -1 for the root."""
    parents, open = {root: -1}, [root]
    while open:
        at = open.pop()
        for other in neighbours[at]:
            if other not in parents:
                parents[other] = at
                open.append(other)
    return parents
