"""A network to be measured: a tree of brokers with every client's place, and the tree in preorder for kernels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from overweave.overlay.graph import Overlay

Numbers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Network:
    """Brokers are numbered from 0."""

    brokers: int
    #: Pairs of brokers, one fewer than brokers.
    links: Numbers
    #: The broker of each publisher and of each subscription.
    publisher: Numbers
    subscriber: Numbers

    def overlay(self) -> Overlay:
        """The tree as an overlay of brokers B1 …"""
        ids = broker_ids(self.brokers)
        return Overlay(ids, ((ids[one], ids[other]) for one, other in self.links.tolist()))


def broker_ids(count: int) -> list[str]:
    """The ids of a number of brokers.

    >>> broker_ids(2)
    ['B1', 'B2']
    """
    return [f"B{number}" for number in range(1, count + 1)]


@dataclass(frozen=True, eq=False)
class Preorder:
    """A tree whose brokers have new numbers: those at and below broker b are b … ``end[b]`` - 1, and 0 is the root."""

    #: The new number of each broker.
    number: Numbers
    #: -1 for the root.
    parent: Numbers
    end: Numbers
    #: The children of b are ``children[child_start[b] : child_start[b + 1]]``, ascending.
    child_start: Numbers
    children: Numbers

    @property
    def degree(self) -> Numbers:
        """Neighbours of each broker."""
        found: Numbers = np.diff(self.child_start) + (self.parent >= 0)
        return found


def preorder(brokers: int, links: Numbers) -> Preorder:
    """The tree from broker 0 down.

    >>> tree = preorder(4, np.array([[2, 0], [2, 1], [0, 3]]))
    >>> tree.number.tolist(), tree.parent.tolist(), tree.end.tolist()
    ([0, 2, 1, 3], [-1, 0, 1, 0], [4, 3, 3, 4])
    """
    neighbours: list[list[int]] = [[] for _ in range(brokers)]
    for one, other in links.tolist():
        neighbours[one].append(other)
        neighbours[other].append(one)
    number, parent, end = np.full(brokers, -1), np.full(brokers, -1), np.arange(1, brokers + 1)
    stack, seen = [(0, -1)], 0
    while stack:
        broker, above = stack.pop()
        number[broker], parent[seen] = seen, above
        # The last that is put on the stack comes first: neighbours in ascending order.
        stack += [(each, seen) for each in sorted(neighbours[broker], reverse=True) if number[each] < 0]
        seen += 1
    if seen != brokers or len(links) != brokers - 1:
        raise ValueError(f"links: expected a tree of {brokers:,} brokers, found {seen:,} joined by {len(links):,} links")
    for broker in range(brokers - 1, 0, -1):
        end[parent[broker]] = max(end[parent[broker]], end[broker])
    children = np.argsort(parent, kind="stable")[1:]
    start = np.searchsorted(parent[children], np.arange(brokers + 1))
    return Preorder(number, parent, end, start.astype(np.int64), children)
