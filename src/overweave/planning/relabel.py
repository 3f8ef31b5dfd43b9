"""Which broker is which: of all that have the capacity, those with which the fewest clients move compared with today.

That is an assignment problem between the nodes of the tree and the brokers of the pool.
"""

from dataclasses import replace

import numpy as np

from overweave.planning.kernels.assign import assign
from overweave.planning.load import Predicted
from overweave.planning.problem import Problem, Whole
from overweave.planning.tree import Tree

#: The cost of a forbidden assignment: above any number of clients.
_NEVER = 1 << 40


def relabelled(problem: Problem, tree: Tree, unit_node: Whole, homes: Whole, load: Predicted, pinned: Whole) -> Tree:
    """The tree with other brokers for its nodes; without a today, as it is. Nodes of pinned brokers keep theirs."""
    today, pool = problem.today, problem.pool
    if today is None:
        return tree
    cost = np.zeros((len(tree), len(pool)), np.int64)
    for nodes, brokers in ((unit_node, today.units), (homes, today.publishers)):
        known = brokers >= 0
        np.add.at(cost, (nodes[known], brokers[known]), -1)
    cost *= 4  # of equally good ones, the broker that the plan has; then an old one rather than a new one
    cost[np.arange(len(tree)), tree.broker] -= 1
    used = np.zeros(len(pool), np.bool_)
    used[today.units[today.units >= 0]] = True
    used[today.publishers[today.publishers >= 0]] = True
    cost[:, used] -= 2
    cost[~_capable(problem, tree, load)] = _NEVER
    for broker in {pool.ids.index(id) for id in problem.goals.exclude}:
        cost[tree.broker != broker, broker] = _NEVER
    for node in np.flatnonzero(np.isin(tree.broker, pinned)).tolist():
        own = cost[node, tree.broker[node]]
        cost[node], cost[:, tree.broker[node]] = _NEVER, _NEVER
        cost[node, tree.broker[node]] = min(int(own), 0)
    return replace(tree, broker=assigned(cost))


def _capable(problem: Problem, tree: Tree, load: Predicted) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """Whether a broker can carry a node's load less headroom; the node's own always may."""
    pool, free = problem.pool, 1 - problem.goals.headroom
    match_s = pool.base_s[None, :] + pool.slope_s[None, :] * load.table_entries[:, None]
    capable = load.output_bytes_per_s[:, None] < pool.bandwidth_bytes_per_s[None, :] * free
    capable &= load.input_hz[:, None] * match_s <= free
    capable &= load.input_hz[:, None] <= pool.capacity_hz[None, :] * free
    capable[np.arange(len(tree)), tree.broker] = True
    return capable


def assigned(cost: np.ndarray[tuple[int, int], np.dtype[np.int64]]) -> Whole:
    """The column of every row at the least total cost.

    >>> assigned(np.array([[4, 1, 3], [2, 0, 5]])).tolist()
    [1, 0]
    """
    rows, columns = cost.shape
    row_potential = np.zeros(rows, np.int64)
    column_potential, row_of, shortest, before, seen = np.zeros((5, columns + 1), np.int64)
    assign(np.ascontiguousarray(cost), row_potential, column_potential, row_of, shortest, before, seen)
    found = np.empty(rows, np.int64)
    for column in np.flatnonzero(row_of[:columns] >= 0).tolist():
        found[row_of[column]] = column
    return found
