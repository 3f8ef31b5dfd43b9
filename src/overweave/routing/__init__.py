"""Routing protocols, one file each, none of which knows another. `PROTOCOLS` names them."""

from collections.abc import Callable
from typing import NamedTuple

from overweave.batches.destinations import NUMBERS_MAX
from overweave.overlay.graph import Overlay
from overweave.overlay.paths import path_between
from overweave.routing.base import Routing
from overweave.routing.destination import DestinationBased
from overweave.routing.filter import FilterBased
from overweave.routing.filter_general import FilterBasedGeneral
from overweave.routing.flooding import Flooding
from overweave.routing.hierarchical import Hierarchical
from overweave.routing.identity import AdvertisementBased, HierarchicalIdentity, PeerToPeer
from overweave.routing.merc import Merc
from overweave.routing.simple import Simple
from overweave.routing.summaries import Covering, Identical


class RoutingProtocol(NamedTuple):
    """How to make a protocol at one broker, whether it needs an overlay without cycles, whether brokers learn the overlay,
    how many there may be, whether publications have to be advertised, and whether they are routed around failed links.
    """

    make: Callable[[str, Overlay], Routing]
    acyclic: bool
    knows_overlay: bool = False
    brokers_max: int | None = None
    needs_advertisements: bool = False
    reroutes: bool = False


def _parent(broker: str, overlay: Overlay) -> str | None:
    """The neighbour towards the root, which is the first broker of the overlay."""
    path = path_between(overlay, broker, overlay.ids[0])
    return None if path is None or len(path) < 2 else path[1]


PROTOCOLS: dict[str, RoutingProtocol] = {
    "flooding": RoutingProtocol(lambda _, __: Flooding(), Flooding.acyclic),
    "simple": RoutingProtocol(lambda _, __: Simple(), Simple.acyclic),
    "hierarchical-simple": RoutingProtocol(lambda broker, overlay: Hierarchical(_parent(broker, overlay)), Hierarchical.acyclic),
    "identity": RoutingProtocol(
        lambda broker, overlay: HierarchicalIdentity(broker, Identical, _parent(broker, overlay)), HierarchicalIdentity.acyclic
    ),
    "covering": RoutingProtocol(
        lambda broker, overlay: HierarchicalIdentity(broker, Covering, _parent(broker, overlay)), HierarchicalIdentity.acyclic
    ),
    "identity-peer": RoutingProtocol(lambda broker, _: PeerToPeer(broker, Identical), PeerToPeer.acyclic),
    "covering-peer": RoutingProtocol(lambda broker, _: PeerToPeer(broker, Covering), PeerToPeer.acyclic),
    "identity-advertised": RoutingProtocol(
        lambda broker, _: AdvertisementBased(broker, Identical), AdvertisementBased.acyclic, needs_advertisements=True
    ),
    "filter": RoutingProtocol(lambda _, __: FilterBased(), FilterBased.acyclic, needs_advertisements=True),
    "filter-general": RoutingProtocol(
        lambda broker, _: FilterBasedGeneral(broker), FilterBasedGeneral.acyclic, needs_advertisements=True
    ),
    "destination": RoutingProtocol(
        lambda broker, overlay: DestinationBased(broker, overlay.position(broker)),
        DestinationBased.acyclic,
        knows_overlay=True,
        brokers_max=NUMBERS_MAX,
        needs_advertisements=True,
        reroutes=True,
    ),
    "merc": RoutingProtocol(Merc, Merc.acyclic, brokers_max=NUMBERS_MAX, needs_advertisements=True, reroutes=True),
}
