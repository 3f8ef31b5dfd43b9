"""The overlay at run time: the epochs that are open, each with its tree, as one versioned value (docs/decisions/0023)."""

import enum
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import NamedTuple

import msgspec

from overweave.errors import InvalidInput, OverlayError
from overweave.language.headers import FIRST_EPOCH, OverlayEpoch
from overweave.overlay.graph import Overlay


class Phase(enum.IntEnum):
    """The phase of a change to an epoch. Later phases have higher numbers."""

    PREPARED = 1
    USED = 2
    CLOSED = 3
    TRIMMED = 4
    REVERTING = 5
    REVERTED = 6


class OverlayVersion(NamedTuple):
    """The version of an overlay state: of two states the higher one is in force.

    >>> OverlayVersion(2, Phase.PREPARED) > OverlayVersion(1, Phase.TRIMMED) > OverlayVersion(1, Phase.USED)
    True
    """

    epoch: int
    phase: Phase


#: No change has it, because the first one opens epoch 1.
_JOINING = OverlayVersion(0, Phase.PREPARED)


class Member(msgspec.Struct, frozen=True, array_like=True):
    """A broker of the network."""

    id: str
    #: Where it listens; empty in the simulator.
    url: str = ""
    #: Its number in destination lists.
    number: int = 0


class EpochTree(msgspec.Struct, frozen=True, array_like=True):
    """The overlay of one epoch."""

    epoch: OverlayEpoch
    brokers: tuple[str, ...]
    links: tuple[tuple[str, str], ...]

    def neighbours(self, broker: str) -> tuple[str, ...]:
        """The neighbours of a broker; none if it is no member.

        >>> EpochTree(OverlayEpoch(1), ("B1", "B2", "B3"), (("B1", "B2"), ("B2", "B3"))).neighbours("B2")
        ('B1', 'B3')
        """
        return tuple(ends[ends[0] == broker] for ends in self.links if broker in ends)


class OverlayState(msgspec.Struct, frozen=True):
    """All open epochs of a network. Brokers adopt a state of a higher version (`rank`)."""

    version: OverlayVersion
    #: The brokers of all open epochs.
    members: tuple[Member, ...]
    #: The open epochs, the oldest first: one, or two during a change.
    trees: tuple[EpochTree, ...]
    #: The epoch in which new publications travel.
    current: OverlayEpoch
    #: The change that led here, such as the fingerprint of a plan; empty for the network file.
    change: str = ""

    def __iter__(self) -> Iterator[EpochTree]:
        return iter(self.trees)

    def tree(self, epoch: OverlayEpoch) -> EpochTree:
        """The tree of an open epoch."""
        return next(tree for tree in self.trees if tree.epoch == epoch)

    @property
    def epochs(self) -> tuple[OverlayEpoch, ...]:
        """The open epochs."""
        return tuple(tree.epoch for tree in self.trees)

    @property
    def rank(self) -> tuple[OverlayVersion, bool]:
        """Of two states the one of higher rank is in force.

        A broker that starts with the network file does not know the name of the change. So the state with the name is the higher
        one.
        """
        return self.version, bool(self.change)

    @property
    def is_joining(self) -> bool:
        """Whether it is that of a broker that has not joined its network yet (`joining_state`)."""
        return self.version == _JOINING

    @property
    def is_stable(self) -> bool:
        """Whether one epoch is open: no change is in progress, except that brokers may leave."""
        return len(self.trees) == 1


class OverlayStatus(msgspec.Struct, frozen=True):
    """The state of one broker in a change of the overlay."""

    version: OverlayVersion
    change: str
    current: OverlayEpoch
    #: The open epochs in which this broker has the full state of all its neighbours.
    synced: tuple[OverlayEpoch, ...]
    #: The number of unsettled publications of this broker by open epoch.
    unsettled: dict[OverlayEpoch, int]
    #: The neighbours by open epoch, guests included.
    neighbours: dict[OverlayEpoch, tuple[str, ...]]


class OverlayRecord(msgspec.Struct, frozen=True):
    """What a broker keeps of the overlay in its journal."""

    state: OverlayState
    #: The brokers that have joined at it.
    guests: tuple[str, ...] = ()
    #: The broker that it has joined at; empty: none. None: the journal is of an earlier version, which has it among the guests.
    contact: str | None = None


def first_state(overlay: Overlay, urls: Mapping[str, str] = {}, epoch: int = 0, version: int = 0) -> OverlayState:
    """The state of an overlay that is not changing, such as that of a network file; its version is at least its epoch.

    >>> state = first_state(Overlay(["B1", "B2"], [("B1", "B2")]))
    >>> state.version, state.current, state.trees[0].neighbours("B2")
    (OverlayVersion(epoch=0, phase=<Phase.TRIMMED: 4>), 0, ('B1',))
    """
    members = tuple(Member(id, urls.get(id, ""), number) for number, id in enumerate(overlay.ids))
    tree = EpochTree(OverlayEpoch(epoch), overlay.ids, tuple(link.ends for link in overlay.links))
    return OverlayState(OverlayVersion(max(version, epoch), Phase.TRIMMED), members, (tree,), OverlayEpoch(epoch))


@lru_cache(maxsize=16)
def overlay_of(tree: EpochTree) -> Overlay:
    """The overlay of an epoch; brokers of one process that have the same tree share it."""
    return Overlay(tree.brokers, tree.links)


def joining_state(broker: str) -> OverlayState:
    """The state of a broker that joins a network: lower than that of every network."""
    tree = EpochTree(FIRST_EPOCH, (broker,), ())
    return OverlayState(_JOINING, (Member(broker),), (tree,), FIRST_EPOCH)


def check_state(state: OverlayState, *, acyclic: bool = False) -> None:
    """Raise an error unless a state describes connected overlays of members, or ``acyclic`` ones, in one or two epochs.

    >>> tree = EpochTree(OverlayEpoch(1), ("B1", "B2"), (("B1", "B2"),))
    >>> check_state(OverlayState(OverlayVersion(1, Phase.CLOSED), (Member("B1"),), (tree,), OverlayEpoch(1)))
    Traceback (most recent call last):
    overweave.errors.InvalidInput: trees: broker 'B2' of epoch 1: expected one of the members
    """
    epochs, members = state.epochs, {member.id for member in state.members}
    if not 1 <= len(epochs) <= 2 or list(epochs) != sorted(set(epochs)):
        raise InvalidInput(f"trees: expected one or two epochs in ascending order, got {', '.join(map(str, epochs)) or 'none'}")
    if state.current not in epochs:
        raise InvalidInput(f"current: expected one of the open epochs, {', '.join(map(str, epochs))}, got {state.current}")
    if len(members) < len(state.members):
        raise InvalidInput("members: expected each broker once")
    for tree in state.trees:
        for broker in tree.brokers:
            if broker not in members:
                raise InvalidInput(f"trees: broker {broker!r} of epoch {tree.epoch}: expected one of the members")
        try:
            overlay = overlay_of(tree)
        except OverlayError as error:
            raise InvalidInput(f"trees: epoch {tree.epoch}: {error}") from None
        if not tree.brokers or not overlay.is_connected():
            raise InvalidInput(f"trees: epoch {tree.epoch}: expected a connected overlay")
        if acyclic and not overlay.is_tree():
            raise InvalidInput(f"trees: epoch {tree.epoch}: expected an overlay without cycles, which the routing protocol needs")
