"""The overlay of a network file: a shape or listed brokers, with additional links."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from overweave.drivers.capacities import CAPACITIES, with_capacities
from overweave.drivers.toml_config import shaped, unknown
from overweave.errors import InvalidInput, OverlayError
from overweave.overlay.graph import Overlay
from overweave.overlay.parts import Broker
from overweave.overlay.shapes import SHAPES

#: The seed of random shapes: every broker must come to the same network.
_SEED = 1


class BrokerTable(msgspec.Struct, frozen=True, kw_only=True):
    """One table ``[[broker]]``, without its options."""

    id: str
    listen: str | None = None
    clusters: tuple[str, ...] = ()
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


def network_overlay(
    shape: str | None, options: Mapping[str, Any], brokers: Sequence[BrokerTable], links: Sequence[LinkTable]
) -> tuple[Overlay, str]:
    """The overlay of a network file, and its source for error messages."""
    if shape is not None:
        overlay, source = shaped("network", shape, options, _SEED), f"network.shape {shape!r}"
        for number, broker in enumerate(brokers):
            if broker.id not in overlay:
                raise InvalidInput(unknown(f"broker[{number}].id", broker.id, overlay.ids))
            if broker.clusters or broker.capacities():
                overlay = overlay.replace_broker(_made(number, broker))
    elif brokers:
        overlay, source = _listed(brokers), "the overlay"
    else:
        raise InvalidInput(f"network.shape: expected one of {', '.join(SHAPES)}, or brokers in [[broker]], got neither")
    without_links = overlay
    for number, link in enumerate(links):
        try:
            if not without_links.has_link(*link.between):
                overlay, source = overlay.with_link(link.between), "the overlay"
        except OverlayError as error:
            raise InvalidInput(f"link[{number}].between: {error}") from None
    if not overlay.is_connected():
        raise InvalidInput("link: expected links between all brokers, got some that no path joins")
    return overlay, source


def _listed(brokers: Sequence[BrokerTable]) -> Overlay:
    overlay = Overlay(())
    for number, broker in enumerate(brokers):
        try:
            overlay = overlay.with_broker(_made(number, broker))
        except OverlayError as error:
            raise InvalidInput(f"broker[{number}].id: expected another id, got: {error}") from None
        # It names a directory of the broker's state.
        if broker.id in (".", "..") or "/" in broker.id or "\\" in broker.id:
            raise InvalidInput(f"broker[{number}].id: expected a name without slashes, got {broker.id!r}")
    return overlay


def _made(number: int, broker: BrokerTable) -> Broker:
    if len(set(broker.clusters) - {""}) < len(broker.clusters):
        raise InvalidInput(f"broker[{number}].clusters: expected different names, got {list(broker.clusters)!r}")
    made = Broker(broker.id, cluster=next(iter(broker.clusters), None), other_clusters=broker.clusters[1:])
    return with_capacities(f"broker[{number}]", made, broker.capacities())
