"""Flows of a problem over a tree: for every publisher what goes over each link in either direction, wherever it is placed."""

from dataclasses import dataclass

import numpy as np

from overweave.planning.kernels.flow import carry, flow, total_rates
from overweave.planning.problem import Problem, Reals, Whole
from overweave.planning.tree import Tree


@dataclass(frozen=True, eq=False)
class Flows:
    """Bits of each publisher's window (rows) for each node (columns)."""

    tree: Tree
    #: Wanted at or below the node, and anywhere else: what its link to the parent carries if the publisher is above or below.
    down: Whole
    up: Whole
    #: Delivered to clients of the node.
    delivered: Whole
    #: Filters at the node that received something of the publisher.
    filters: Whole

    def total_rates(self, publisher: int) -> Whole:
        """Bits that arrive at all brokers with the publisher at each node (THESIS algorithm 6)."""
        out = np.empty(len(self.tree), np.int64)
        total_rates(self.tree.parent, self.down[publisher], self.up[publisher], out)
        return out

    def carried(self, publisher: int, node: int, window: int) -> tuple[Whole, Whole]:
        """Bits that arrive at each node, and bits that it sends to other nodes, with the publisher at ``node``.

        All it publishes arrives there, also what nobody wants.
        """
        count = len(self.tree)
        on_path, arrivals, forwards = np.zeros((3, count), np.int64)
        carry(self.tree.parent, node, self.down[publisher], self.up[publisher], window, on_path, arrivals, forwards)
        return arrivals, forwards


def flows_of(problem: Problem, tree: Tree, unit_node: Whole) -> Flows:
    """The flows with every unit at its node."""
    units, vectors, count, publishers = problem.units, problem.vectors, len(tree), len(problem.publishers)
    owner = np.repeat(np.arange(len(units)), np.diff(units.row_start))
    node, publisher = unit_node[owner], vectors.publisher[units.rows]
    delivered, filters = np.zeros((publishers, count), np.int64), np.zeros((publishers, count), np.int64)
    np.add.at(delivered, (publisher, node), units.row_deliveries)
    np.add.at(filters, (publisher, node), units.filters[owner])
    down, up = np.zeros((publishers, count), np.int64), np.zeros((publishers, count), np.int64)
    order = np.lexsort((units.rows, node, publisher))
    key = publisher[order] * count + node[order]
    first = np.flatnonzero(np.diff(key, prepend=-1))
    width = vectors.words.shape[1]
    united = (
        np.bitwise_or.reduceat(vectors.words[units.rows[order]], first, axis=0) if len(first) else np.zeros((0, width), np.uint64)
    )
    source, at = publisher[order][first], node[order][first]
    ends = np.searchsorted(source, np.arange(publishers + 1))
    below, above = np.empty((2, count, width), np.uint64)
    for p in range(publishers):
        local = np.zeros((count, width), np.uint64)
        local[at[ends[p] : ends[p + 1]]] = united[ends[p] : ends[p + 1]]
        flow(tree.parent, tree.child_start, local, below, above, down[p], up[p])
    return Flows(tree, down, up, delivered, filters)


def table_entries(flows: Flows, problem: Problem, unit_node: Whole, homes: Whole) -> Whole:
    """Filters in each broker's table under filter-based routing: its own, from below, and from above for publishers below.

    Those from above are counted per publisher below, so a filter on several of them counts more than once: an upper bound.
    """
    tree = flows.tree
    local = np.zeros(len(tree), np.int64)
    np.add.at(local, unit_node, problem.units.filters)
    below, wanted = local.copy(), flows.filters.copy()
    for v in range(len(tree) - 1, 0, -1):
        below[tree.parent[v]] += below[v]
        wanted[:, tree.parent[v]] += wanted[:, v]
    above = np.zeros(len(tree), np.int64)
    for p, home in enumerate(homes.tolist()):
        for v in tree.path_to_root(home)[:-1]:
            above[v] += wanted[p, 0] - wanted[p, v]
    found: Whole = below + np.minimum(above, below[0] - below)
    return found


def per_bit(problem: Problem, values: Reals) -> Reals:
    """What one bit of each publisher's window stands for."""
    return values / np.maximum(problem.publishers.window, 1)
