"""Headers: routing state that travels beside a message, typed and never hidden in its content.

Every field belongs to one concern and is empty unless that concern is at work; a broker that does not know a concern passes
its field on untouched.
"""

import enum
from typing import NamedTuple, NewType

import msgspec

from overweave.errors import LanguageError

#: More hops than any sensible overlay has: a message with more is in a loop.
TTL_DEFAULT = 255
#: Lives of publishers are numbers below this.
LIVES_MAX = 1 << 64
#: The number of an epoch of the overlay: of one tree of brokers (docs/decisions/0023). The first one is that of the network file.
OverlayEpoch = NewType("OverlayEpoch", int)
FIRST_EPOCH = OverlayEpoch(0)


class Priority(enum.IntEnum):
    """The class of a publication in a queue: control before publications (THESIS fig 7.1). Values are wire numbers."""

    CONTROL = 0
    #: Control in the urgent lane: before all data and all other control, but it may be lost.
    URGENT = 2
    PUBLICATION = 1


class Epoch(NamedTuple):
    """The position of an update among all updates of one broker: its incarnation, and a number within that.

    >>> Epoch(2) > Epoch(1, 1 << 40), Epoch(2, 1).next()
    (True, Epoch(incarnation=2, number=2))
    """

    incarnation: int
    number: int = 0

    def next(self) -> "Epoch":
        """The next epoch of the same incarnation."""
        return Epoch(self.incarnation, self.number + 1)


#: An epoch before all others.
NEVER = Epoch(-1)


class Origin(NamedTuple):
    """The broker of the client that made a statement, and the epoch there."""

    broker: str
    epoch: Epoch


class Header(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """The routing state of a message: its origin, its destinations and its path.

    >>> Header(publisher="p1", sequence=7).next_hop().next_hop().hops
    2
    """

    #: Who published it, and the how-manieth of its life it is, a number of 64 bits that no other client of this name has:
    #: together the identity by which duplicates are dropped. See `overweave.language.generations` about its highest byte.
    publisher: str = ""
    sequence: int = 0
    published_at_s: float = 0.0
    life: int = 0
    #: The broker where it entered the overlay, or the cluster (DEST).
    source: str | None = None
    #: The numbers of the brokers that it is meant for, in order, where routing goes by destination (DEST).
    destinations: tuple[int, ...] = ()
    #: The brokers that it has passed or bypassed (MESH).
    path: tuple[str, ...] = ()
    #: The advertisement whose tree it travels on, where overlays have cycles (SPEC 0).
    tree: str | None = None
    #: The epoch of the overlay that a control message belongs to.
    overlay_epoch: OverlayEpoch = FIRST_EPOCH
    cluster: str | None = None
    #: Whether what a subscription wants comes another way, as long as that is there; and where a statement was made first, with
    #: its number there: a withdrawal that says so ends all ways that it has been told on (both DEST).
    backup: bool = False
    origin: Origin | None = None
    #: Set when its journey is to be recorded (THESIS ch 5).
    trace: str | None = None
    hops: int = 0
    ttl: int = TTL_DEFAULT
    priority: Priority = Priority.PUBLICATION

    def __post_init__(self) -> None:
        if self.sequence < 0 or self.hops < 0 or self.ttl < 0:
            wrong = next(name for name in ("sequence", "hops", "ttl") if getattr(self, name) < 0)
            raise LanguageError(f"header field {wrong}: expected a number from 0 on, got {getattr(self, wrong)}")
        if not 0 <= self.life < LIVES_MAX:
            raise LanguageError(f"header field life: expected a number of 64 bits, got {self.life}")

    @property
    def epoch(self) -> Epoch:
        """The epoch of an update between brokers, by its incarnation and sequence number."""
        return Epoch(self.life, self.sequence)

    def next_hop(self, hops: int = 1) -> "Header":
        """The header after some more hops."""
        return msgspec.structs.replace(self, hops=self.hops + hops, ttl=max(self.ttl - hops, 0))
