"""The next hops of a broker that belongs to several clusters."""

from collections.abc import Mapping

from overweave.batches.destinations import NextHops
from overweave.routing.cluster_node import ClusterNode


class MergedNextHops:
    """The next hops in all clusters of one broker; to a broker in several of them, by the shortest path."""

    def __init__(self, clusters: Mapping[str, ClusterNode]) -> None:
        self._clusters = clusters
        #: The next hops that were merged last, and the result.
        self._parts: list[NextHops] = []
        self._merged = NextHops(())

    def get(self) -> NextHops:
        """The next hops now; they are merged again only if some have changed."""
        parts = [node.next_hops for node in self._clusters.values()]
        if len(parts) == 1:
            return parts[0]
        if len(parts) != len(self._parts) or any(one is not other for one, other in zip(parts, self._parts, strict=True)):
            self._parts, self._merged = parts, self._merge()
        return self._merged

    def _merge(self) -> NextHops:
        nearest: dict[str, tuple[int, ClusterNode]] = {}
        for node in self._clusters.values():
            for broker, distance in node.topology.distances.items():
                if distance and (broker not in nearest or distance < nearest[broker][0]):
                    nearest[broker] = (distance, node)
        reach: dict[str, int] = {}
        for node in self._clusters.values():
            chosen = 0
            for broker, (_, of) in nearest.items():
                if of is node:
                    chosen |= 1 << (node.topology.number_of(broker) or 0)
            for hop, bits in node.next_hops.by_neighbour:
                if bits & chosen:
                    reach[hop] = reach.get(hop, 0) | bits & chosen
        return NextHops(reach.items())
