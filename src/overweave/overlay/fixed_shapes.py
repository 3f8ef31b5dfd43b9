"""Shapes that leave nothing to chance; brokers are ``B1…Bn``, numbered level by level where there are levels."""

from overweave.errors import OverlayError
from overweave.overlay.checks import check_count, nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Role


def chain(brokers: int) -> Overlay:
    """Every broker joined to the next.

    >>> chain(3).neighbours("B2")
    ('B1', 'B3')
    """
    return from_parents([position - 1 for position in range(check_count("brokers", brokers, 1))])


def clustered_chain(brokers: int, clusters: int = 2) -> Overlay:
    """A chain cut into clusters of like size; the broker at a cut is the edge broker of both (DEST V-A).

    >>> chain_of_two = clustered_chain(5)
    >>> chain_of_two.members("C1"), chain_of_two.members("C2")
    (('B1', 'B2', 'B3'), ('B3', 'B4', 'B5'))
    """
    check_count("clusters", clusters, 1)
    check_count("brokers", brokers, clusters + 1)
    cuts = [cut * (brokers - 1) // clusters for cut in range(clusters + 1)]
    members = [
        [f"C{number + 1}" for number in range(clusters) if cuts[number] <= at <= cuts[number + 1]] for at in range(brokers)
    ]
    values = [Broker(f"B{at + 1}", cluster=own[0], other_clusters=tuple(own[1:])) for at, own in enumerate(members)]
    return Overlay(values, chain(brokers).links)


def star(brokers: int) -> Overlay:
    """``B1`` in the middle, every other broker joined to it alone.

    >>> star(4).degree("B1"), star(4).degree("B4")
    (3, 1)
    """
    return from_parents([-1] + [0] * (check_count("brokers", brokers, 1) - 1))


def balanced(brokers: int, degree: int) -> Overlay:
    """A tree filled level by level in which no broker has more than ``degree`` neighbours (MESH table 1).

    MESH calls the number of a broker's primary links its degree, so the root ``B1`` has ``degree`` children and everybody else
    one fewer; `fanout_tree` counts children.

    >>> balanced(120, 3).degree("B1"), balanced(120, 3).degree("B2")
    (3, 3)
    """
    check_count("brokers", brokers, 1)
    check_count("degree", degree, 2 if brokers > 2 else 1)
    # The root has one child more than the rest: without that first child the rule is the same for everybody.
    return from_parents([-1, 0, *((position - 2) // (degree - 1) for position in range(2, brokers))][:brokers])


def fanout_tree(brokers: int, fanout: int) -> Overlay:
    """A tree filled level by level in which no broker has more than ``fanout`` children (THESIS 7.2.1: 2 or 4).

    >>> fanout_tree(80, 2).degree("B1"), fanout_tree(80, 2).degree("B2")
    (2, 3)
    """
    check_count("fanout", fanout, 1)
    return from_parents([-1, *((position - 1) // fanout for position in range(1, check_count("brokers", brokers, 1)))])


def level_limited(width: int, brokers: int = 127) -> Overlay:
    """The binary tree T1, T2, … with at most ``width`` brokers on a level (STOCH 3.2; the number after the T).

    Levels are filled from the left, two children per parent, so the brokers at the right of a full level may have none (SPEC 4).
    T1 is a chain, T64 the complete tree of seven levels.

    >>> [level_limited(2, brokers=7).neighbours(broker) for broker in ("B1", "B2", "B3")]
    [('B2', 'B3'), ('B1', 'B4', 'B5'), ('B1',)]
    """
    check_count("width", width, 1)
    check_count("brokers", brokers, 1)
    parents = [-1]
    above, size = 0, 1
    while len(parents) < brokers:
        start, below = len(parents), min(width, 2 * size, brokers - len(parents))
        parents.extend(above + place // 2 for place in range(below))
        above, size = start, below
    return from_parents(parents)


def peer(clusters: int, edge_brokers_per_cluster: int, heads: str = "chain") -> Overlay:
    """Cluster heads joined to each other, edge brokers joined to their head alone (PEER, THESIS 4.1.1).

    The heads are ``B1…Bc``, then come the edge brokers, cluster by cluster. THESIS 7.1.3 lines the heads up in a chain;
    ``heads="star"`` puts the first one in the middle. One cluster is the star of THESIS 7.1.2.

    >>> four = peer(clusters=4, edge_brokers_per_cluster=2)
    >>> four.members("C2"), four.neighbours("B2"), four.broker("B7").role
    (('B2', 'B7', 'B8'), ('B1', 'B3', 'B7', 'B8'), <Role.EDGE: 'edge'>)
    """
    check_count("clusters", clusters, 1)
    check_count("edge_brokers_per_cluster", edge_brokers_per_cluster, 0)
    if heads not in _HEADS:
        raise OverlayError(f"heads: expected one of {', '.join(_HEADS)}, got {heads!r}; {nearest(str(heads), _HEADS)}")
    brokers = [Broker(f"B{number}", cluster=f"C{number}", role=Role.CLUSTER_HEAD) for number in range(1, clusters + 1)]
    links = [link.ends for link in _HEADS[heads](clusters).links]
    for place in range(clusters * edge_brokers_per_cluster):
        head, number = place // edge_brokers_per_cluster + 1, clusters + place + 1
        brokers.append(Broker(f"B{number}", cluster=f"C{head}", role=Role.EDGE))
        links.append((f"B{head}", f"B{number}"))
    return Overlay(brokers, links)


_HEADS = {"chain": chain, "star": star}


def from_parents(parents: list[int]) -> Overlay:
    """The tree in which the broker at each position hangs under the one at ``parents[position]``; -1 marks the root.

    >>> from_parents([-1, 0, 0]) == star(3)
    True
    """
    links = ((f"B{parent + 1}", f"B{position + 1}") for position, parent in enumerate(parents) if parent >= 0)
    return Overlay((f"B{position + 1}" for position in range(len(parents))), links)
