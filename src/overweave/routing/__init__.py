"""Routing protocols, one file each, none of which knows another. `overweave.routing.registry` names them."""

from overweave.routing.registry import BUILT_IN, PROTOCOLS, RoutingProtocol, protocol

__all__ = ["BUILT_IN", "PROTOCOLS", "RoutingProtocol", "protocol"]
