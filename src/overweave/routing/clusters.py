"""In which clusters brokers and links are (DEST IV): a link is in one, and a cluster whose links do not lead to all its brokers
counts as several.
"""

from functools import lru_cache

from overweave.overlay.graph import Overlay

#: The cluster of brokers that belong to none.
_WHOLE = "*"


@lru_cache(maxsize=16)
def cluster_components(overlay: Overlay) -> dict[str, dict[str, str]]:
    """Of all brokers, each cluster with the name of the part of it that its links lead to from there.

    Without clusters all brokers are in one, whatever the links: those may change, and brokers may join.
    """
    if not overlay.clusters:
        return {id: {_WHOLE: _WHOLE} for id in overlay.ids}
    within: dict[tuple[str, str], list[str]] = {}
    for link in overlay.links:
        cluster = cluster_of_link(overlay, *link.ends)
        for one, other in (link.ends, link.ends[::-1]):
            within.setdefault((cluster, one), []).append(other)
    parts: dict[str, dict[str, str]] = {id: {} for id in overlay.ids}
    names: set[str] = set()
    for id in overlay.ids:
        for cluster in overlay.broker(id).clusters or (_WHOLE,):
            name, queue = f"{cluster}:{id}" if cluster in names else cluster, [id]
            while queue:
                at = queue.pop()
                if cluster not in parts[at]:
                    parts[at][cluster] = name
                    names.add(cluster)
                    queue += within.get((cluster, at), [])
    return parts


def cluster_of_link(overlay: Overlay, one: str, other: str) -> str:
    """The first cluster that both ends of a link belong to, or else one of its own. Brokers that joined later are in none.

    >>> from overweave.overlay.parts import Broker
    >>> overlay = Overlay([Broker("B1", cluster="C1"), Broker("B2", cluster="C2"), Broker("B3", cluster="C1")])
    >>> [cluster_of_link(overlay, *ends) for ends in (("B3", "B1"), ("B2", "B1"), ("N1", "B2"), ("N2", "N1"))]
    ['C1', 'B1-B2', 'B2-N1', '*']
    """
    ends = sorted((one, other), key=lambda end: (overlay.position(end) if end in overlay else len(overlay.ids), end))
    first, second = ((overlay.broker(end).clusters if end in overlay else ()) or (_WHOLE,) for end in ends)
    return next((cluster for cluster in first if cluster in second), "-".join(ends))
