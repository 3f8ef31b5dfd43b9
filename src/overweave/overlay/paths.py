"""Distances, next hops, neighbourhoods and paths, counted in links.

Among several shortest paths the one whose next broker has the smallest position is taken, at every hop; so `next_hops`,
`path_between` and, towards its root, `overweave.overlay.trees.spanning_tree` always agree. A broker that cannot be reached
is no error: its distance is -1, its next hop and path None.
"""

from collections.abc import Iterable

import numpy as np
import rustworkx
from numpy.typing import NDArray

from overweave.errors import OverlayError
from overweave.overlay.checks import check_count
from overweave.overlay.graph import Overlay

#: In a matrix of distances or next hops: not reachable.
UNREACHABLE = -1


def distances(overlay: Overlay) -> NDArray[np.int32]:
    """The number of links between any two brokers, by their positions; -1 where there is no path.

    >>> distances(Overlay(["B1", "B2", "B3"], [("B1", "B2")])).tolist()
    [[0, 1, -1], [1, 0, -1], [-1, -1, 0]]
    """
    matrix = rustworkx.distance_matrix(overlay.lookup.graph, null_value=UNREACHABLE).astype(np.int32)
    np.fill_diagonal(matrix, 0)
    matrix.flags.writeable = False
    return matrix


class NextHops:
    """For every pair of brokers: how far, and over which neighbour first. Made by `next_hops`.

    >>> next_hops(Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])).next_hop("B1", "B3")
    'B2'
    """

    __slots__ = ("_ids", "_positions", "distances", "table")

    def __init__(self, overlay: Overlay, matrix: NDArray[np.int32], table: NDArray[np.int32]) -> None:
        self._ids = overlay.ids
        self._positions = {broker_id: position for position, broker_id in enumerate(overlay.ids)}
        #: As `distances` returns it.
        self.distances = matrix
        #: The position of the next hop by the positions of source and destination; -1: unreachable.
        self.table = table

    def next_hop(self, source: str, destination: str) -> str | None:
        """The first broker on the way, ``source`` itself when it is the destination, None when there is no way.

        >>> hops = next_hops(Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B2", "B3")]))
        >>> hops.next_hop("B1", "B3"), hops.next_hop("B1", "B1"), hops.next_hop("B1", "B4")
        ('B2', 'B1', None)
        """
        hop = int(self.table[self._position(source), self._position(destination)])
        return None if hop == UNREACHABLE else self._ids[hop]

    def distance(self, source: str, destination: str) -> int | None:
        """The number of links on the way, None when there is no way.

        >>> hops = next_hops(Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B2", "B3")]))
        >>> hops.distance("B1", "B3"), hops.distance("B1", "B4")
        (2, None)
        """
        links = int(self.distances[self._position(source), self._position(destination)])
        return None if links == UNREACHABLE else links

    def path(self, source: str, destination: str) -> tuple[str, ...] | None:
        """Every broker on the way, both ends included, None when there is no way.

        >>> hops = next_hops(Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B2", "B3")]))
        >>> hops.path("B1", "B3"), hops.path("B1", "B4")
        (('B1', 'B2', 'B3'), None)
        """
        path, end = [self._position(source)], self._position(destination)
        while path[-1] != end:
            hop = int(self.table[path[-1], end])
            if hop == UNREACHABLE:
                return None
            path.append(hop)
        return tuple(self._ids[position] for position in path)

    def split(self, source: str, destinations: Iterable[str]) -> dict[str | None, tuple[str, ...]]:
        """The destinations by the next hop that serves them, as D-DBR splits its lists (DEST III-B); None: unreachable.

        >>> next_hops(Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")])).split("B2", ["B3", "B1", "B2"])
        {'B3': ('B3',), 'B1': ('B1',), 'B2': ('B2',)}
        """
        lists: dict[str | None, list[str]] = {}
        for destination in destinations:
            lists.setdefault(self.next_hop(source, destination), []).append(destination)
        return {hop: tuple(served) for hop, served in lists.items()}

    def _position(self, broker_id: str) -> int:
        try:
            return self._positions[broker_id]
        except KeyError:
            raise OverlayError(f"broker {broker_id!r} is not in the overlay") from None


def next_hops(overlay: Overlay) -> NextHops:
    """The next hop between any two brokers: O(brokers x links), done row by row in numpy.

    >>> hops = next_hops(Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B1", "B3"), ("B2", "B4"), ("B3", "B4")]))
    >>> hops.next_hop("B1", "B4"), hops.path("B1", "B4"), hops.distance("B1", "B4")
    ('B2', ('B1', 'B2', 'B4'), 2)
    """
    matrix = distances(overlay)
    table = np.full_like(matrix, UNREACHABLE)
    for position in range(len(overlay)):
        # Backwards, so that among neighbours one link nearer the smallest position is written last.
        for neighbour in sorted(overlay.lookup.graph.neighbors(position), reverse=True):
            np.copyto(table[position], neighbour, where=matrix[neighbour] < matrix[position])
        table[position, position] = position
    table.flags.writeable = False
    return NextHops(overlay, matrix, table)


def path_between(overlay: Overlay, source: str, destination: str) -> tuple[str, ...] | None:
    """One shortest path, both ends included; None when there is none. For many paths ask `next_hops` once.

    >>> path_between(Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]), "B3", "B1")
    ('B3', 'B2', 'B1')
    """
    graph, at = overlay.lookup.graph, overlay.position(source)
    links_left = distances_from(overlay, overlay.position(destination))
    if at not in links_left:
        return None
    path = [at]
    while links_left[at]:
        at = min(neighbour for neighbour in graph.neighbors(at) if links_left[neighbour] < links_left[at])
        path.append(at)
    return tuple(overlay.ids[position] for position in path)


def neighbourhood(overlay: Overlay, broker_id: str, radius: int) -> dict[str, int]:
    """Every broker at most ``radius`` links away with its distance, nearest first, itself at 0 (MESH 3: the delta-neighbourhood).

    >>> neighbourhood(Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]), "B3", 1)
    {'B3': 0, 'B2': 1}
    """
    check_count("radius", radius, 0)
    found = distances_from(overlay, overlay.position(broker_id))
    return {overlay.ids[position]: links for position, links in found.items() if links <= radius}


def diameter(overlay: Overlay) -> int:
    """The distance of the two brokers that are farthest apart; the overlay has to be connected.

    >>> diameter(Overlay(["B1", "B2", "B3"], [("B1", "B2"), ("B2", "B3")]))
    2
    """
    return int(_connected_distances(overlay, "diameter").max())


def average_path_length(overlay: Overlay) -> float:
    """The mean distance of two different brokers, 0 when there is one broker; the overlay has to be connected.

    >>> average_path_length(Overlay(["B1", "B2", "B3", "B4"], [("B1", "B2"), ("B2", "B3"), ("B2", "B4")]))
    1.5
    """
    matrix, size = _connected_distances(overlay, "average path length"), len(overlay)
    return float(matrix.sum(dtype=np.int64)) / (size * (size - 1)) if size > 1 else 0.0


def distances_from(overlay: Overlay, position: int) -> dict[int, int]:
    """For this package: the distance of every reachable position, by distance, then position."""
    layers = rustworkx.graph_bfs_layers(overlay.lookup.graph, [position])
    return {index: links for links, layer in enumerate(layers) for index in sorted(layer)}


def _connected_distances(overlay: Overlay, asked: str) -> NDArray[np.int32]:
    if not overlay.brokers or not overlay.is_connected():
        raise OverlayError(f"{asked}: expected a connected overlay with at least one broker, got {overlay!r}")
    return distances(overlay)
