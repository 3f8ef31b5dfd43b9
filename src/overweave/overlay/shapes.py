"""Every shape an overlay can be given by name; a new one is a function and a line in `SHAPES`."""

import inspect
from collections.abc import Callable, Mapping

from overweave.errors import OverlayError
from overweave.overlay.checks import nearest
from overweave.overlay.fixed_shapes import balanced, chain, clustered_chain, fanout_tree, level_limited, peer, star
from overweave.overlay.graph import Overlay
from overweave.overlay.random_shapes import random_graph, random_tree, transit_stub, waxman

#: By the name that files and the command line use.
SHAPES: Mapping[str, Callable[..., Overlay]] = {
    "chain": chain,
    "clustered-chain": clustered_chain,
    "star": star,
    "balanced": balanced,
    "fanout-tree": fanout_tree,
    "level-limited": level_limited,
    "peer": peer,
    "random-tree": random_tree,
    "random-graph": random_graph,
    "waxman": waxman,
    "transit-stub": transit_stub,
}


def make_overlay(shape: str, **options: object) -> Overlay:
    """The overlay of this shape; the options are the arguments of its function.

    >>> make_overlay("balanced", brokers=120, degree=3)
    Overlay(120 brokers B1…B120, 119 primary links)
    >>> make_overlay("balanced", brokrs=120, degree=3)
    Traceback (most recent call last):
    overweave.errors.OverlayError: shape 'balanced': unknown option 'brokrs', the nearest known one is 'brokers'
    """
    function = SHAPES.get(shape)
    if function is None:
        raise OverlayError(f"unknown shape {shape!r}, {nearest(str(shape), SHAPES)}")
    parameters = inspect.signature(function).parameters
    for option in options:
        if option not in parameters:
            raise OverlayError(f"shape {shape!r}: unknown option {option!r}, {nearest(option, parameters)}")
    for name, parameter in parameters.items():
        if parameter.default is inspect.Parameter.empty and name not in options:
            raise OverlayError(f"shape {shape!r}: expected the option {name!r}, which is missing")
    try:
        return function(**options)
    except OverlayError as error:
        raise OverlayError(f"shape {shape!r}: {error}") from None
