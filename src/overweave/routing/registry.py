"""The registry of routing protocols: the built-in ones, and those that installed distributions register.

A third-party protocol is a `RoutingProtocol` and an entry point of the group ``overweave.routing``
(docs/guides/add-a-routing-protocol.md). A broken registration is an error only where its name is used.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import msgspec

from overweave.batches.destinations import NUMBERS_MAX
from overweave.errors import InvalidInput
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.routing.base import Engine, Routing
from overweave.routing.destination import DestinationBased
from overweave.routing.epochs import EpochRouting
from overweave.routing.filter import FilterBased
from overweave.routing.filter_general import FilterBasedGeneral
from overweave.routing.flooding import Flooding
from overweave.routing.hierarchical import Hierarchical
from overweave.routing.identity import AdvertisementBased, HierarchicalIdentity, PeerToPeer
from overweave.routing.ingress import ByEpoch
from overweave.routing.installed import Registration, registrations
from overweave.routing.merc import Merc
from overweave.routing.options import AdvertisementTreeOptions, ClusterOptions, RootOptions, RoutingOptions
from overweave.routing.simple import Simple
from overweave.routing.summaries import Covering, Identical
from overweave.routing.sync import EpochSync

#: Makes a protocol at one broker from the broker's id, the overlay, the broker's incarnation and the options.
Factory = Callable[[str, Overlay, int, Any], Engine]


@dataclass(frozen=True)
class RoutingProtocol:
    """A routing protocol: its factory, the type of its options, and its static facts."""

    factory: Factory
    #: It needs an overlay without cycles.
    acyclic: bool = True
    #: Brokers learn the overlay.
    knows_overlay: bool = False
    brokers_max: int | None = None
    #: Publications reach other brokers only if an advertisement of their publisher covers them.
    needs_advertisements: bool = False
    #: Publications are routed around failed links.
    reroutes: bool = False
    options: type[RoutingOptions] = RoutingOptions

    def __post_init__(self) -> None:
        if not (isinstance(self.options, type) and issubclass(self.options, RoutingOptions)):
            raise TypeError(f"options: expected a subclass of RoutingOptions, got {self.options!r}")
        required = [each.name for each in msgspec.structs.fields(self.options) if each.required]
        if required:
            raise TypeError(f"options: expected a default for each field, found none for {', '.join(required)}")

    def make(self, broker: str, overlay: Overlay, incarnation: int = 1, options: RoutingOptions | None = None) -> Engine:
        """The protocol at one broker; without options, with their defaults. One on trees also routes over several epochs."""
        options = self.options() if options is None else options
        engine = self.factory(broker, overlay, incarnation, options)
        if not self.acyclic or engine != Engine(
            engine.routing, needs_advertisements=engine.needs_advertisements, name=engine.name
        ):
            return engine._replace(check=options.check)  # epochs would have to share its capabilities: its overlay cannot change

        epochs = EpochRouting(partial(self._tables, broker, incarnation, options), engine.routing, overlay)
        ingress = partial(ByEpoch, epochs)
        return engine._replace(routing=epochs, ingress=ingress, sync=EpochSync, epochs=epochs, check=options.check)

    def _tables(self, broker: str, incarnation: int, options: RoutingOptions, overlay: Overlay) -> Routing:
        return self.factory(broker, overlay, incarnation, options).routing


BUILT_IN: dict[str, RoutingProtocol] = {
    "flooding": RoutingProtocol(lambda *_: Engine(Flooding())),
    "simple": RoutingProtocol(lambda *_: Engine(Simple())),
    "hierarchical-simple": RoutingProtocol(
        lambda broker, overlay, _, options: Engine(Hierarchical(options.parent_of(broker, overlay))), options=RootOptions
    ),
    "identity": RoutingProtocol(
        lambda broker, overlay, _, options: Engine(HierarchicalIdentity(broker, Identical, options.parent_of(broker, overlay))),
        options=RootOptions,
    ),
    "covering": RoutingProtocol(
        lambda broker, overlay, _, options: Engine(HierarchicalIdentity(broker, Covering, options.parent_of(broker, overlay))),
        options=RootOptions,
    ),
    "identity-peer": RoutingProtocol(lambda broker, *_: Engine(PeerToPeer(broker, Identical))),
    "covering-peer": RoutingProtocol(lambda broker, *_: Engine(PeerToPeer(broker, Covering))),
    "identity-advertised": RoutingProtocol(
        lambda broker, *_: Engine(AdvertisementBased(broker, Identical), needs_advertisements=True), needs_advertisements=True
    ),
    "filter": RoutingProtocol(lambda *_: Engine(FilterBased(), needs_advertisements=True), needs_advertisements=True),
    "filter-general": RoutingProtocol(
        lambda broker, _, incarnation, options: FilterBasedGeneral(broker, incarnation, options).engine(),
        acyclic=False,
        needs_advertisements=True,
        options=AdvertisementTreeOptions,
    ),
    "destination": RoutingProtocol(
        lambda broker, overlay, incarnation, _: DestinationBased(broker, overlay.position(broker), incarnation).engine(),
        acyclic=False,
        knows_overlay=True,
        brokers_max=NUMBERS_MAX,
        needs_advertisements=True,
        reroutes=True,
    ),
    "merc": RoutingProtocol(
        lambda broker, overlay, incarnation, options: Merc(broker, overlay, incarnation, options).engine(),
        acyclic=False,
        brokers_max=NUMBERS_MAX,
        needs_advertisements=True,
        reroutes=True,
        options=ClusterOptions,
    ),
}


class BrokenProtocol(InvalidInput):
    """A registration that cannot be used; the text names the protocol, the distribution and the reason."""


class _Protocols(Mapping[str, RoutingProtocol]):
    """The built-in protocols, and the installed ones that can be loaded."""

    def __getitem__(self, name: str) -> RoutingProtocol:
        return BUILT_IN[name] if name in BUILT_IN else _load(name, registrations()[name])

    def __contains__(self, name: object) -> bool:
        return name in BUILT_IN or name in registrations()

    def __iter__(self) -> Iterator[str]:
        yield from BUILT_IN
        yield from (each.name for each in listing() if each.distribution is not None and each.error is None)

    def __len__(self) -> int:
        return sum(1 for _ in self)


#: Every protocol by its name. A clash with a built-in name is the built-in protocol here, and an error in `protocol`.
PROTOCOLS: Mapping[str, RoutingProtocol] = _Protocols()


def protocol(name: str, path: str = "protocol") -> RoutingProtocol:
    """The protocol of a name that the field ``path`` has.

    >>> protocol("fliter", "routing.protocol")
    Traceback (most recent call last):
    overweave.errors.InvalidInput: routing.protocol: unknown 'fliter', the nearest known one is 'filter'
    """
    known = registrations()
    if name not in BUILT_IN and name not in known:
        names = [*BUILT_IN, *known]
        near = difflib.get_close_matches(name, names, n=1)
        listed = f"expected one of {', '.join(names)} (see 'overweave protocols')"
        raise InvalidInput(f"{path}: unknown {name!r}, {nearest(name, near) if near else listed}")
    try:
        return _load(name, known[name]) if name in known else BUILT_IN[name]
    except BrokenProtocol as error:
        raise BrokenProtocol(f"{path}: {error}") from None


class Listed(NamedTuple):
    """A line of the list of protocols: built in or of a distribution; usable or with an error."""

    name: str
    distribution: str | None
    protocol: RoutingProtocol | None
    error: str | None = None


def listing() -> list[Listed]:
    """All protocols, the built-in ones first, with the error of each broken registration."""
    listed = [Listed(name, None, each) for name, each in BUILT_IN.items()]
    for name, registered in sorted(registrations().items()):
        distribution = ", ".join(each.distribution.metadata["Name"] for each in registered)
        try:
            listed.append(Listed(name, distribution, _load(name, registered)))
        except BrokenProtocol as error:
            listed.append(Listed(name, distribution, None, str(error)))
    return listed


def _load(name: str, registered: Sequence[Registration]) -> RoutingProtocol:
    first, *others = registered
    if name in BUILT_IN:
        raise BrokenProtocol(f"expected a name of its own, found the built-in {name!r} again: {first.source}")
    if others:
        raise BrokenProtocol(f"expected one registration of {name!r}, found {first.source} and {others[0].source}")
    try:
        found = first.load()
    except Exception as error:  # a module of somebody else may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise BrokenProtocol(f"cannot import {name!r}, {first.source}: {reason}") from error
    if not isinstance(found, RoutingProtocol):
        raise BrokenProtocol(f"expected a RoutingProtocol for {name!r}, found {type(found).__name__}: {first.source}")
    return found
