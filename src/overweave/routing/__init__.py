"""Routing protocols, one file each, none of which knows another. `PROTOCOLS` names them."""

from collections.abc import Callable
from dataclasses import dataclass

from overweave.batches.destinations import NUMBERS_MAX
from overweave.overlay.graph import Overlay
from overweave.overlay.paths import path_between
from overweave.routing.base import Engine
from overweave.routing.destination import DestinationBased
from overweave.routing.filter import FilterBased
from overweave.routing.filter_general import FilterBasedGeneral
from overweave.routing.flooding import Flooding
from overweave.routing.hierarchical import Hierarchical
from overweave.routing.identity import AdvertisementBased, HierarchicalIdentity, PeerToPeer
from overweave.routing.merc import Merc
from overweave.routing.simple import Simple
from overweave.routing.summaries import Covering, Identical


@dataclass(frozen=True)
class RoutingProtocol:
    """A routing protocol: its factory, given broker, overlay and incarnation, and its static facts."""

    factory: Callable[[str, Overlay, int], Engine]
    #: It needs an overlay without cycles.
    acyclic: bool = True
    #: Brokers learn the overlay.
    knows_overlay: bool = False
    brokers_max: int | None = None
    #: Publications reach other brokers only if an advertisement of their publisher covers them.
    needs_advertisements: bool = False
    #: Publications are routed around failed links.
    reroutes: bool = False

    def make(self, broker: str, overlay: Overlay, incarnation: int = 1) -> Engine:
        """The protocol at one broker."""
        return self.factory(broker, overlay, incarnation)


def _parent(broker: str, overlay: Overlay) -> str | None:
    """The neighbour towards the root, which is the first broker of the overlay."""
    path = path_between(overlay, broker, overlay.ids[0])
    return None if path is None or len(path) < 2 else path[1]


PROTOCOLS: dict[str, RoutingProtocol] = {
    "flooding": RoutingProtocol(lambda *_: Engine(Flooding()), acyclic=True),
    "simple": RoutingProtocol(lambda *_: Engine(Simple()), acyclic=True),
    "hierarchical-simple": RoutingProtocol(
        lambda broker, overlay, _: Engine(Hierarchical(_parent(broker, overlay))), acyclic=True
    ),
    "identity": RoutingProtocol(
        lambda broker, overlay, _: Engine(HierarchicalIdentity(broker, Identical, _parent(broker, overlay))), acyclic=True
    ),
    "covering": RoutingProtocol(
        lambda broker, overlay, _: Engine(HierarchicalIdentity(broker, Covering, _parent(broker, overlay))), acyclic=True
    ),
    "identity-peer": RoutingProtocol(lambda broker, *_: Engine(PeerToPeer(broker, Identical)), acyclic=True),
    "covering-peer": RoutingProtocol(lambda broker, *_: Engine(PeerToPeer(broker, Covering)), acyclic=True),
    "identity-advertised": RoutingProtocol(
        lambda broker, *_: Engine(AdvertisementBased(broker, Identical), needs_advertisements=True),
        acyclic=True,
        needs_advertisements=True,
    ),
    "filter": RoutingProtocol(
        lambda *_: Engine(FilterBased(), needs_advertisements=True), acyclic=True, needs_advertisements=True
    ),
    "filter-general": RoutingProtocol(
        lambda broker, _, incarnation: FilterBasedGeneral(broker, incarnation).engine(), acyclic=False, needs_advertisements=True
    ),
    "destination": RoutingProtocol(
        lambda broker, overlay, incarnation: DestinationBased(broker, overlay.position(broker), incarnation).engine(),
        acyclic=False,
        knows_overlay=True,
        brokers_max=NUMBERS_MAX,
        needs_advertisements=True,
        reroutes=True,
    ),
    "merc": RoutingProtocol(
        lambda broker, overlay, incarnation: Merc(broker, overlay, incarnation).engine(),
        acyclic=False,
        brokers_max=NUMBERS_MAX,
        needs_advertisements=True,
        reroutes=True,
    ),
}
