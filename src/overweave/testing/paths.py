"""Paths that stand: which brokers can be reached over given links, through each cluster at most once (decision 0009)."""

import itertools
from collections.abc import Collection, Mapping

from overweave.overlay.graph import Overlay
from overweave.routing.clusters import cluster_components, cluster_of_link

Ends = tuple[str, str]


def cluster_of_links(overlay: Overlay, *, by_cluster: bool) -> dict[Ends, str]:
    """The cluster that each link lies in, in both directions; all of the overlay is one to protocols that know no clusters."""
    parts = cluster_components(overlay)
    found: dict[Ends, str] = {}
    for one, other in (link.ends for link in overlay.links):
        cluster = cluster_of_link(overlay, one, other)
        found[one, other] = found[other, one] = parts[one].get(cluster, cluster) if by_cluster else ""
    return found


def reachable(broker: str, links: Collection[Ends], living: Collection[str], clusters: Mapping[Ends, str]) -> frozenset[str]:
    """The brokers that can be reached from one, over links that are given in at least one direction.

    >>> links = [("B1", "B2"), ("B2", "B3")]
    >>> clusters = {ends: "" for link in links for ends in (link, link[::-1])}
    >>> sorted(reachable("B1", links, {"B1", "B2", "B3"}, clusters)), sorted(reachable("B1", links, {"B1", "B3"}, clusters))
    (['B1', 'B2', 'B3'], ['B1'])
    """
    both = set(itertools.chain(links, (ends[::-1] for ends in links)))
    found: set[tuple[str, str | None, frozenset[str | None]]] = set()
    stack: list[tuple[str, str | None, frozenset[str | None]]] = [(broker, None, frozenset())] if broker in living else []
    while stack:
        state = at, cluster, passed = stack.pop()
        if state in found:
            continue
        found.add(state)
        for one, other in both:
            if one == at and other in living:
                next = clusters[one, other]
                if next == cluster:
                    stack.append((other, cluster, passed))
                elif next not in passed:
                    stack.append((other, next, passed | {cluster}))
    return frozenset(at for at, _, _ in found)
