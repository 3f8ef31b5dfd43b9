"""The parts of an overlay: brokers with their resources, and the links between them.

Both are values. A change is a new value (`dataclasses.replace`), checked like the first one.
"""

import enum
from dataclasses import dataclass
from typing import TypeVar

from overweave.errors import OverlayError
from overweave.overlay.checks import check_id, check_number, nearest

_Member = TypeVar("_Member", bound=enum.StrEnum)


class LinkKind(enum.StrEnum):
    """What a link is to the brokers at its ends (MESH 6).

    >>> LinkKind("soft")
    <LinkKind.SOFT: 'soft'>
    """

    #: Part of the primary network, on which every end-to-end path is built.
    PRIMARY = "primary"
    #: A connection beside the primary network that bypasses brokers.
    SOFT = "soft"
    #: No connection: a soft link that is only being considered.
    CANDIDATE = "candidate"


class Role(enum.StrEnum):
    """What a broker is to its cluster in PEER (THESIS 4.1.1): heads serve publishers, edge brokers subscribers.

    >>> Role.CLUSTER_HEAD.value
    'cluster_head'
    """

    CLUSTER_HEAD = "cluster_head"
    EDGE = "edge"


@dataclass(frozen=True, slots=True)
class Broker:
    """A broker and what it can carry; the fields are the columns of the table ``brokers``.

    MERC's edge brokers belong to more than one cluster (DEST IV): the first is ``cluster``, the rest ``other_clusters``.

    >>> Broker("B1", cluster="C1", other_clusters=("C2",)).clusters
    ('C1', 'C2')
    >>> Broker("B1", output_bandwidth_bytes_per_s=0)
    Traceback (most recent call last):
    overweave.errors.OverlayError: broker 'B1': output_bandwidth_bytes_per_s: expected a finite number above 0, got 0
    """

    id: str
    output_bandwidth_bytes_per_s: float = 1_000_000.0
    matching_delay_base_s: float = 1e-5
    matching_delay_per_subscription_s: float = 1e-7
    capacity_hz: float | None = None
    url: str | None = None
    cluster: str | None = None
    other_clusters: tuple[str, ...] = ()
    role: Role | None = None

    def __post_init__(self) -> None:
        check_id("broker id", self.id)
        where = f"broker {self.id!r}"
        _set(self, "output_bandwidth_bytes_per_s", _number(self, "output_bandwidth_bytes_per_s", above=0.0))
        _set(self, "matching_delay_base_s", _number(self, "matching_delay_base_s"))
        _set(self, "matching_delay_per_subscription_s", _number(self, "matching_delay_per_subscription_s"))
        if self.capacity_hz is not None:
            _set(self, "capacity_hz", _number(self, "capacity_hz", above=0.0))
        if self.url is not None:
            check_id(f"{where}: url", self.url)
        _set(self, "other_clusters", tuple(self.other_clusters))
        for cluster in self.clusters:
            check_id(f"{where}: cluster", cluster)
        if len(set(self.clusters)) < len(self.clusters) or (self.other_clusters and self.cluster is None):
            raise OverlayError(f"{where}: other_clusters: expected clusters besides its cluster, each once, got {self.clusters}")
        if self.role is not None:
            _set(self, "role", _member(Role, self.role, f"{where}: role"))

    @property
    def clusters(self) -> tuple[str, ...]:
        """Every cluster it belongs to; more than one makes it an edge broker of MERC.

        >>> Broker("B1").clusters, Broker("B1", cluster="C1", other_clusters=("C2",)).clusters
        ((), ('C1', 'C2'))
        """
        return self.other_clusters if self.cluster is None else (self.cluster, *self.other_clusters)


@dataclass(frozen=True, slots=True)
class Link:
    """A link between two brokers; it has no direction, so its ends are kept in one order: short ids first, then by text.

    >>> Link("B10", "B2") == Link("B2", "B10"), Link("B10", "B2").ends
    (True, ('B2', 'B10'))
    >>> Link("B1", "B1")
    Traceback (most recent call last):
    overweave.errors.OverlayError: link 'B1'-'B1': expected two different brokers
    """

    first: str
    second: str
    kind: LinkKind = LinkKind.PRIMARY
    delay_s: float | None = None

    def __post_init__(self) -> None:
        first, second = link_ends(check_id("link end", self.first), check_id("link end", self.second))
        _set(self, "first", first)
        _set(self, "second", second)
        where = f"link {first!r}-{second!r}"
        if first == second:
            raise OverlayError(f"{where}: expected two different brokers")
        _set(self, "kind", _member(LinkKind, self.kind, f"{where}: kind"))
        if self.delay_s is not None:
            _set(self, "delay_s", check_number(f"{where}: delay_s", self.delay_s))

    @property
    def ends(self) -> tuple[str, str]:
        """The ids of both brokers, in the link's own order.

        >>> Link("B2", "B1").ends
        ('B1', 'B2')
        """
        return self.first, self.second


def link_ends(one: str, other: str) -> tuple[str, str]:
    """Two ids in the order in which a link keeps them.

    >>> link_ends("B10", "B2")
    ('B2', 'B10')
    """
    return (one, other) if (len(one), one) <= (len(other), other) else (other, one)


def _set(part: Broker | Link, field: str, value: object) -> None:
    object.__setattr__(part, field, value)


def _number(broker: Broker, field: str, above: float | None = None) -> float:
    return check_number(f"broker {broker.id!r}: {field}", getattr(broker, field), above=above)


def _member(members: type[_Member], value: object, where: str) -> _Member:
    try:
        return members(str(value))
    except ValueError:
        known = [member.value for member in members]
        raise OverlayError(f"{where}: expected one of {', '.join(known)}, got {value!r}; {nearest(str(value), known)}") from None
