"""Options of routing protocols: the keys of ``[routing]``, one frozen struct per protocol."""

import msgspec

from overweave.errors import InvalidInput
from overweave.overlay.checks import nearest
from overweave.overlay.graph import Overlay
from overweave.overlay.paths import path_between

#: The largest number of ticks: days of heartbeats.
TICKS_MAX = 1_000_000


class RoutingOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The options of a protocol that has none, and the base of all others."""

    def check(self, overlay: Overlay) -> None:
        """Raise an `InvalidInput` that begins with a field's name unless the options suit the overlay."""


class RootOptions(RoutingOptions, frozen=True, kw_only=True):
    """The root of a hierarchical protocol."""

    #: A broker id; none: the first broker of the overlay.
    root: str | None = None

    def check(self, overlay: Overlay) -> None:
        """See `RoutingOptions.check`.

        >>> from overweave.overlay.shapes import make_overlay
        >>> RootOptions(root="B9").check(make_overlay("chain", brokers=3))
        Traceback (most recent call last):
        overweave.errors.InvalidInput: root: unknown 'B9', the nearest known one is 'B3'
        """
        if self.root is not None and self.root not in overlay:
            raise InvalidInput(f"root: unknown {self.root!r}, {nearest(self.root, overlay.ids)}")

    def parent_of(self, broker: str, overlay: Overlay) -> str | None:
        """The neighbour of a broker towards the root; None at the root itself, and at a broker that has not joined yet."""
        root = overlay.ids[0] if self.root is None else self.root
        path = path_between(overlay, broker, root) if root in overlay else None
        return None if path is None or len(path) < 2 else path[1]


class AdvertisementTreeOptions(RoutingOptions, frozen=True, kw_only=True):
    """Hold times of filter-based routing on overlays with cycles, in ticks of the heartbeat."""

    #: A former parent keeps our subscriptions for this long, until the new path is in force.
    parent_hold_ticks: int = 4
    #: After its start a broker subscribes at all neighbours with a path for this long.
    startup_ticks: int = 6

    def __post_init__(self) -> None:
        check_ticks("parent_hold_ticks", self.parent_hold_ticks)
        check_ticks("startup_ticks", self.startup_ticks)


class ClusterOptions(RoutingOptions, frozen=True, kw_only=True):
    """Hold times of routing by destination within clusters, in ticks of the heartbeat."""

    #: A broker that lost its path to a subscription redirects publications for this long.
    hold_down_ticks: int = 20

    def __post_init__(self) -> None:
        check_ticks("hold_down_ticks", self.hold_down_ticks)


def check_ticks(field: str, value: int) -> None:
    """Raise an `InvalidInput` unless a number of ticks is from 1 to a million.

    >>> check_ticks("startup_ticks", 1_000_001)
    Traceback (most recent call last):
    overweave.errors.InvalidInput: startup_ticks: expected an integer of at most 1,000,000, got 1000001
    """
    if value < 1:
        raise InvalidInput(f"{field}: expected an integer of at least 1, got {value}")
    if value > TICKS_MAX:
        raise InvalidInput(f"{field}: expected an integer of at most {TICKS_MAX:,}, got {value}")
