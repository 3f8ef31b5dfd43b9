"""Which brokers could reach each other: the stated rule by which routing that finds other paths may lose something.

Under ``destination`` and ``merc`` a publication is for the subscribers whose broker can be reached from a moment before it is
published until it is delivered (decisions 0008 and 0009). As long as no link is away for longer than failure detectors wait,
nobody notices, and there is no excuse.
"""

import itertools

import msgspec

from overweave.drivers.sim.network import SimulatedNetwork
from overweave.overlay.graph import Overlay
from overweave.testing.paths import Ends, cluster_of_links, reachable

STEP_S = 0.05


class _Look(msgspec.Struct, frozen=True):
    #: Open links between brokers that are not paused.
    links: frozenset[Ends]
    #: Brokers that run, with their incarnation.
    lives: frozenset[tuple[str, int]]


class Reach:
    """The open links and running brokers at each step of a run of a protocol that routes around failures."""

    def __init__(self, overlay: Overlay, protocol: str, link_timeout_s: float, network: SimulatedNetwork, until_s: float) -> None:
        self._network, self._until_s = network, until_s
        self._link_timeout_s = link_timeout_s
        #: To notice a change and tell everybody; and to arrive, with some detours.
        self._notice_s, self._arrive_s = 0.5 + 3 * self._link_timeout_s, 2.0 + 3 * self._link_timeout_s
        self._looks: list[_Look] = []
        self._cluster = cluster_of_links(overlay, by_cluster=protocol == "merc")
        self._found: dict[tuple[str, int, int], frozenset[str]] = {}
        self._look()

    def excuses(self, one: str, other: str, at_s: float, settled_s: float | None = None) -> bool:
        """Whether a publication from one broker to another may be lost; it may have waited until it was settled."""
        first = max(0, int((at_s - self._notice_s) / STEP_S))
        last = int((max(at_s, settled_s or at_s) + self._arrive_s) / STEP_S) + 2
        return self._was_noticed(first, last) and other not in self._reachable(one, first, last)

    def _look(self, _: object = None) -> None:
        network = self._network
        paused = {id for id in network.running() if network.nodes[id].frozen}
        links = frozenset(ends for ends in network.connections() if ends in self._cluster and not paused & set(ends))
        self._looks.append(_Look(links, frozenset((id, network.incarnation(id)) for id in network.running())))
        if network.scheduler.now_s < self._until_s:
            network.scheduler.at(len(self._looks) * STEP_S, self._look)

    def _was_noticed(self, first: int, last: int) -> bool:
        """Whether a link was away for about as long as failure detectors wait, at some time around."""
        steps = int(0.6 * self._link_timeout_s / STEP_S)
        looks = self._looks[max(0, first - steps) : last]
        for ends in {ends for ends in self._cluster if ends[0] < ends[1]}:
            away = (ends not in look.links for look in looks)
            if any(is_away and sum(1 for _ in run) + 1 >= steps for is_away, run in itertools.groupby(away)):
                return True
        return False

    def _reachable(self, broker: str, first: int, last: int) -> frozenset[str]:
        """The brokers to whom a path stood all the time, through each cluster at most once."""
        key = broker, first, last
        if key not in self._found:
            looks = self._looks[first:last]
            links = frozenset.intersection(*(look.links for look in looks))
            living = {id for id, _ in frozenset.intersection(*(look.lives for look in looks))}
            self._found[key] = reachable(broker, links, living, self._cluster)
        return self._found[key]
