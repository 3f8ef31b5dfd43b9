"""The overlay of a network file: a shape or listed brokers, with additional links, and the spare brokers beside it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from overweave.drivers.capacities import CAPACITIES, with_capacities
from overweave.drivers.toml_config import shaped, unknown
from overweave.errors import InvalidInput, OverlayError
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker, Role
from overweave.overlay.shapes import SHAPES

#: The seed of random shapes: every broker must come to the same network.
_SEED = 1


class BrokerTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table ``[[broker]]``, without its options."""

    id: str
    listen: str | None = None
    clusters: tuple[str, ...] = ()
    role: Role | None = None
    #: Known, but not in the overlay.
    spare: bool = False
    #: What it shows to its neighbours instead of ``security.token``, here or in a file.
    token: str | None = None
    token_file: Path | None = None
    #: Its capacities, for plans; the defaults are those of `Broker`.
    output_bandwidth_bytes_per_s: float | None = None
    matching_delay_base_s: float | None = None
    matching_delay_per_subscription_s: float | None = None
    capacity_hz: float | None = None

    def capacities(self) -> dict[str, float]:
        """The capacities that are given."""
        return {name: value for name in CAPACITIES if (value := getattr(self, name)) is not None}


class LinkTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table ``[[link]]``."""

    between: tuple[str, str]


class NetworkOverlay(NamedTuple):
    """The overlay with its source for error messages, and all brokers in the order of their numbers, spare ones included."""

    overlay: Overlay
    source: str
    brokers: tuple[Broker, ...]


def network_overlay(
    shape: str | None, options: Mapping[str, Any], brokers: Sequence[BrokerTable], links: Sequence[LinkTable]
) -> NetworkOverlay:
    """The overlay of a network file. A spare broker has no links; beside a shape it has a number behind the shape's brokers."""
    if shape is not None:
        overlay, source = shaped("network", shape, options, _SEED), f"network.shape {shape!r}"
        known = _beside_shape(overlay, brokers)
    elif brokers:
        known, source = _listed(brokers), "the overlay"
    else:
        raise InvalidInput(f"network.shape: expected one of {', '.join(SHAPES)}, or brokers in [[broker]], got neither")
    spares = {broker.id for broker in brokers if broker.spare}
    if len(spares) == len(known):
        raise InvalidInput("broker.spare: expected a broker that is not spare, got none")
    overlay = Overlay([each for each in known.brokers if each.id not in spares], known.links)
    without_links = overlay
    for number, link in enumerate(links):
        spare = next((end for end in link.between if end in spares), None)
        if spare is not None:
            raise InvalidInput(f"link[{number}].between: expected brokers of the overlay, and {spare!r} is spare")
        try:
            if not without_links.has_link(*link.between):
                overlay, source = overlay.with_link(link.between), "the overlay"
        except OverlayError as error:
            raise InvalidInput(f"link[{number}].between: {error}") from None
    if not overlay.is_connected():
        raise InvalidInput("link: expected links between all brokers, got some that no path joins")
    return NetworkOverlay(overlay, source, known.brokers)


def _beside_shape(overlay: Overlay, brokers: Sequence[BrokerTable]) -> Overlay:
    """The brokers of a shape with what is listed of them, and spare ones behind them."""
    known = overlay
    for number, broker in enumerate(brokers):
        _check_id(number, broker)
        if broker.spare and broker.id in overlay:
            raise InvalidInput(f"broker[{number}].spare: expected a broker that is not of the shape, got {broker.id!r}")
        if broker.spare and broker.id not in known:
            known = known.with_broker(_made(number, broker))
        elif broker.id not in known:
            raise InvalidInput(unknown(f"broker[{number}].id", broker.id, overlay.ids))
        elif broker.id in overlay and (broker.clusters or broker.role is not None or broker.capacities()):
            known = known.replace_broker(_made(number, broker))
    return known


def _listed(brokers: Sequence[BrokerTable]) -> Overlay:
    overlay = Overlay(())
    for number, broker in enumerate(brokers):
        try:
            overlay = overlay.with_broker(_made(number, broker))
        except OverlayError as error:
            raise InvalidInput(f"broker[{number}].id: expected another id, got: {error}") from None
        _check_id(number, broker)
    return overlay


def _check_id(number: int, broker: BrokerTable) -> None:
    """Refuse an id that cannot be the name of a directory, for the state of the broker."""
    if broker.id in (".", "..") or "/" in broker.id or "\\" in broker.id:
        raise InvalidInput(f"broker[{number}].id: expected a name without slashes, got {broker.id!r}")


def _made(number: int, broker: BrokerTable) -> Broker:
    if len(set(broker.clusters) - {""}) < len(broker.clusters):
        raise InvalidInput(f"broker[{number}].clusters: expected different names, got {list(broker.clusters)!r}")
    made = Broker(broker.id, cluster=next(iter(broker.clusters), None), other_clusters=broker.clusters[1:], role=broker.role)
    return with_capacities(f"broker[{number}]", made, broker.capacities())
