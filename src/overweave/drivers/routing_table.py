"""The table ``[routing]`` of scenarios and network files: the options of a routing protocol."""

from collections.abc import Mapping, Sequence
from typing import Any

from overweave.drivers.toml_config import fields, values
from overweave.errors import InvalidInput
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.routing.options import RoutingOptions
from overweave.routing.registry import protocol


def read_options(path: str, name: str, given: Mapping[str, Any], beside: Sequence[str] = ()) -> RoutingOptions:
    """The options of the protocol ``name`` in a table that stands at ``path``; keys ``beside`` them are not options.

    >>> read_options("routing", "covering", {"root": "B2"})
    RootOptions(root='B2')
    >>> read_options("routing", "covering", {"rot": "B2"})
    Traceback (most recent call last):
    overweave.errors.InvalidInput: routing.rot: unknown key, the nearest known one is 'root'; 'covering' has the options root
    """
    kind = protocol(name).options
    own = {key: value for key, value in given.items() if key not in beside}
    known = [*fields(kind), *beside]
    for key in own:
        if key not in known:
            near = f"{nearest(key, known)}; " if known else ""
            raise InvalidInput(f"{path}.{key}: unknown key, {near}{name!r} has {_listed(fields(kind))}")
    try:
        return values(kind, path, own)
    except InvalidInput as error:
        raise _located(path, error) from None


def check_options(path: str, options: RoutingOptions, overlay: Overlay) -> None:
    """Refuse options that do not suit the overlay."""
    try:
        options.check(overlay)
    except InvalidInput as error:
        raise _located(path, error) from None


def _located(path: str, error: InvalidInput) -> InvalidInput:
    """An error of an options struct, which knows its fields but not its table."""
    text = str(error)
    return InvalidInput(text if text.startswith(f"{path}.") else f"{path}.{text}")


def _listed(names: Sequence[str]) -> str:
    return f"the options {', '.join(names)}" if names else "no options"
