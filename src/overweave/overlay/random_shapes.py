"""Shapes drawn at random; the same arguments and seed give the same overlay, always.

DEST V draws its overlays with the generator GT-ITM, which we replace by the plain random models below.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from overweave.errors import OverlayError
from overweave.overlay.checks import check_count, check_number
from overweave.overlay.fixed_shapes import from_parents
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker

_Pair = tuple[int, int]
#: Attempts to draw a random shape that is connected.
_TRIES = 200


def random_tree(brokers: int, degree_max: int, seed: int) -> Overlay:
    """A tree that grows from ``B1``: every broker joins one drawn from those with fewer than ``degree_max`` neighbours.

    >>> tree = random_tree(50, degree_max=3, seed=1)
    >>> tree.is_tree(), max(tree.degree(broker) for broker in tree.ids)
    (True, 3)
    """
    check_count("brokers", brokers, 1)
    check_count("degree_max", degree_max, min(2, brokers - 1))
    draw = _generator(seed)
    parents, room = [-1], [(0, degree_max)]
    for position in range(1, brokers):
        at = int(draw.integers(len(room)))
        parent, free = room[at]
        parents.append(parent)
        room[at] = (parent, free - 1)
        if free == 1:
            room[at] = room[-1]
            room.pop()
        if degree_max > 1:
            room.append((position, degree_max - 1))
    return from_parents(parents)


def random_graph(brokers: int, degree: float, seed: int) -> Overlay:
    """A connected overlay in which brokers have ``degree`` neighbours on average (DEST V: 100 brokers, 6).

    A uniformly drawn tree keeps it connected, uniformly drawn further links make up the number.

    >>> overlay = random_graph(100, degree=6, seed=1)
    >>> len(overlay.links), overlay.is_connected()
    (300, True)
    >>> random_graph(5, degree=1, seed=1)
    Traceback (most recent call last):
    overweave.errors.OverlayError: degree: expected from 1.6 (a tree) to 4 (all pairs) for 5 brokers, got 1
    """
    check_count("brokers", brokers, 1)
    size = _links_for(brokers, degree, brokers - 1, brokers * (brokers - 1) // 2)
    draw = _generator(seed)
    tree = _uniform_tree(range(brokers), draw)
    pairs = tree | _other_pairs(brokers, tree, size - len(tree), draw)
    return _joined([Broker(f"B{number}") for number in range(1, brokers + 1)], pairs)


def waxman(brokers: int, degree: float, seed: int, reach: float = 0.2) -> Overlay:
    """Brokers in a square, linked the likelier the nearer they are (Waxman's model, which GT-ITM draws flat networks with).

    The chance of a link falls by e with every ``reach`` of the square's diagonal; as many links are drawn as give brokers
    ``degree`` neighbours on average, again and again until all are connected, which takes a degree that is not too small.

    >>> overlay = waxman(100, degree=6, seed=1)
    >>> len(overlay.links), overlay.is_connected()
    (300, True)
    """
    check_count("brokers", brokers, 1)
    check_number("reach", reach, above=0.0)
    size = _links_for(brokers, degree, brokers - 1, brokers * (brokers - 1) // 2)
    draw = _generator(seed)
    first, second = np.triu_indices(brokers, 1)
    for _ in range(_TRIES):
        places = draw.random((brokers, 2))
        away = np.linalg.norm(places[first] - places[second], axis=1)
        chances = np.exp(-away / (reach * np.sqrt(2)))
        chosen = draw.choice(len(first), size, replace=False, p=chances / chances.sum())
        pairs = {(int(first[pair]), int(second[pair])) for pair in chosen}
        overlay = _joined([Broker(f"B{number}") for number in range(1, brokers + 1)], pairs)
        if overlay.is_connected():
            return overlay
    raise OverlayError(f"degree: expected one at which {brokers} brokers are likely to be connected, got {degree:g}")


def transit_stub(
    clusters: int,
    brokers_per_cluster: int,
    degree: float,
    seed: int,
    joined_pairs: int | None = None,
    edge_brokers_per_pair: int = 1,
) -> Overlay:
    """Clusters of internal brokers, joined pair by pair by edge brokers that belong to both (DEST IV and V-A).

    ``joined_pairs`` pairs of clusters are joined, by default as few as connect all (a tree of clusters); more make cycles
    of clusters, several edge brokers per pair survive the loss of one. Every link stays inside a cluster, every
    cluster is connected by itself, and ``degree`` is the average over all brokers. Internal brokers come
    first, cluster by cluster, then the edge brokers, pair by pair.

    DEST's own overlay, 10 transit and 90 stub brokers in 10 clusters:

    >>> overlay = transit_stub(clusters=10, brokers_per_cluster=9, degree=6, seed=1, joined_pairs=10)
    >>> len(overlay), len(overlay.links), sum(len(broker.clusters) == 2 for broker in overlay.brokers)
    (100, 300, 10)
    """
    check_count("clusters", clusters, 1)
    check_count("brokers_per_cluster", brokers_per_cluster, 1)
    check_count("edge_brokers_per_pair", edge_brokers_per_pair, 1)
    pairs_max = clusters * (clusters - 1) // 2
    joins = clusters - 1 if joined_pairs is None else check_count("joined_pairs", joined_pairs, clusters - 1, pairs_max)
    draw = _generator(seed)
    cluster_tree = _uniform_tree(range(clusters), draw)
    joined = sorted(cluster_tree | _other_pairs(clusters, cluster_tree, joins - len(cluster_tree), draw))
    brokers = _clustered_brokers(clusters, brokers_per_cluster, joined, edge_brokers_per_pair)
    return _joined(brokers, _links_inside(_positions_by_cluster(brokers), len(brokers), degree, draw))


def _clustered_brokers(clusters: int, internal: int, joined: list[_Pair], edge: int) -> list[Broker]:
    homes: list[tuple[int, ...]] = [(cluster,) for cluster in range(clusters) for _ in range(internal)]
    homes += [pair for pair in joined for _ in range(edge)]
    names = [tuple(f"C{cluster + 1}" for cluster in home) for home in homes]
    return [Broker(f"B{at + 1}", cluster=own[0], other_clusters=own[1:]) for at, own in enumerate(names)]


def _positions_by_cluster(brokers: list[Broker]) -> list[list[int]]:
    clusters: dict[str, list[int]] = {}
    for position, broker in enumerate(brokers):
        for cluster in broker.clusters:
            clusters.setdefault(cluster, []).append(position)
    return list(clusters.values())


def _links_inside(clusters: list[list[int]], brokers: int, degree: float, draw: np.random.Generator) -> set[_Pair]:
    """Links between members of a cluster: a tree for each, then any pairs until the average degree is reached."""
    possible = {pair for members in clusters for pair in itertools.combinations(members, 2)}
    size = _links_for(brokers, degree, sum(len(members) - 1 for members in clusters), len(possible))
    pairs = set().union(*(_uniform_tree(members, draw) for members in clusters))
    free = sorted(possible - pairs)
    return pairs | {free[at] for at in draw.choice(len(free), size - len(pairs), replace=False)} if free else pairs


def _uniform_tree(nodes: Sequence[int], draw: np.random.Generator) -> set[_Pair]:
    """One of all labelled trees on ``nodes``, each as likely as the others.

    Aldous, "The random walk construction of uniform spanning trees" (1990): node i joins node min(i - 1, uniform), then the
    nodes are shuffled.
    """
    size = len(nodes)
    label = [nodes[at] for at in draw.permutation(size)]
    parents = np.minimum(np.arange(size - 1), draw.integers(size, size=size - 1))
    return {_sorted_pair(label[parent], label[at + 1]) for at, parent in enumerate(parents.tolist())}


def _other_pairs(size: int, taken: set[_Pair], count: int, draw: np.random.Generator) -> set[_Pair]:
    """``count`` pairs of 0…size-1 that are not taken, drawn by their number in the list of all pairs, which is never built."""
    row_starts = np.cumsum([0, *range(size - 1, 0, -1)])
    numbers = np.array(sorted(row_starts[one] + other - one - 1 for one, other in taken), dtype=np.int64)
    free = draw.choice(size * (size - 1) // 2 - len(numbers), count, replace=False) if count else np.empty(0, dtype=np.int64)
    # The k-th free pair is the k-th of all pairs, moved up by the taken ones before it.
    drawn = free + np.searchsorted(numbers - np.arange(len(numbers)), free, side="right")
    rows = np.searchsorted(row_starts, drawn, side="right") - 1
    return set(zip(rows.tolist(), (drawn - row_starts[rows] + rows + 1).tolist(), strict=True))


def _links_for(brokers: int, degree: float, minimum: int, maximum: int) -> int:
    """How many links give ``brokers`` an average ``degree``."""
    total = brokers * check_number("degree", degree)
    low, high = 2 * minimum / brokers, 2 * maximum / brokers
    # A degree that was divided out need not come back whole.
    if not 2 * minimum - 1e-6 <= total <= 2 * maximum + 1e-6:
        raise OverlayError(
            f"degree: expected from {low:g} (a tree) to {high:g} (all pairs) for {brokers} brokers, got {degree:g}"
        )
    if abs(total / 2 - round(total / 2)) > 1e-6:
        raise OverlayError(f"degree: expected brokers x degree to be even, each link has two ends; got {brokers} x {degree:g}")
    return round(total / 2)


def _joined(brokers: list[Broker], pairs: set[_Pair]) -> Overlay:
    return Overlay(brokers, ((brokers[one].id, brokers[other].id) for one, other in pairs))


def _sorted_pair(one: int, other: int) -> _Pair:
    return (one, other) if one < other else (other, one)


def _generator(seed: int) -> np.random.Generator:
    return np.random.default_rng(check_count("seed", seed, 0))
