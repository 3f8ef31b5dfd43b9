"""Routing protocols, one file each, none of which knows another. `PROTOCOLS` names them."""

from collections.abc import Callable
from typing import NamedTuple

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


class RoutingProtocol(NamedTuple):
    """How to make a protocol at one broker, whether it needs an overlay without cycles, whether brokers learn the overlay,
    how many there may be, whether publications have to be advertised, and whether they are routed around failed links.
    """

    #: Given the broker, the overlay and the incarnation.
    make: Callable[[str, Overlay, int], Engine]
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
    "flooding": RoutingProtocol(lambda *_: Engine(Flooding()), acyclic=True),
    "simple": RoutingProtocol(lambda *_: Engine(Simple()), acyclic=True),
    "hierarchical-simple": RoutingProtocol(lambda id, overlay, _: Engine(Hierarchical(_parent(id, overlay))), acyclic=True),
    "identity": RoutingProtocol(
        lambda id, overlay, _: Engine(HierarchicalIdentity(id, Identical, _parent(id, overlay))), acyclic=True
    ),
    "covering": RoutingProtocol(
        lambda id, overlay, _: Engine(HierarchicalIdentity(id, Covering, _parent(id, overlay))), acyclic=True
    ),
    "identity-peer": RoutingProtocol(lambda id, *_: Engine(PeerToPeer(id, Identical)), acyclic=True),
    "covering-peer": RoutingProtocol(lambda id, *_: Engine(PeerToPeer(id, Covering)), acyclic=True),
    "identity-advertised": RoutingProtocol(
        lambda id, *_: Engine(AdvertisementBased(id, Identical), needs_advertisements=True),
        acyclic=True,
        needs_advertisements=True,
    ),
    "filter": RoutingProtocol(
        lambda *_: Engine(FilterBased(), needs_advertisements=True), acyclic=True, needs_advertisements=True
    ),
    "filter-general": RoutingProtocol(
        lambda id, _, incarnation: FilterBasedGeneral(id, incarnation).engine(), acyclic=False, needs_advertisements=True
    ),
    "destination": RoutingProtocol(
        lambda id, overlay, incarnation: DestinationBased(id, overlay.position(id), incarnation).engine(),
        acyclic=False,
        knows_overlay=True,
        brokers_max=NUMBERS_MAX,
        needs_advertisements=True,
        reroutes=True,
    ),
    "merc": RoutingProtocol(
        lambda id, overlay, incarnation: Merc(id, overlay, incarnation).engine(),
        acyclic=False,
        brokers_max=NUMBERS_MAX,
        needs_advertisements=True,
        reroutes=True,
    ),
}
