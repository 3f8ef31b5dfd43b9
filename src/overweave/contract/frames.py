"""Frames between two peers: two brokers, or a broker and a client.

Each end of a session has an epoch, and each frame names both. An end without its former state has a higher epoch; frames of
an older pair are dropped. Sequence numbers count rows of publications and control messages, from 0 in each direction.
"""

import enum
from typing import NamedTuple

import msgspec

from overweave.batches.base import Batch
from overweave.contract.overlay_state import OverlayState
from overweave.errors import InvalidInput
from overweave.language.headers import FIRST_EPOCH, OverlayEpoch
from overweave.language.messages import Control

#: Incarnations have 64 bits on the wire, and the numbers of epochs within an incarnation 32.
_INCARNATIONS_MAX, _NUMBERS_MAX = 1 << 64, 1 << 32


class SessionEpoch(NamedTuple):
    """The epoch of one end of a session: the incarnation of its core, and a number within that. Epochs are ordered."""

    incarnation: int
    number: int


#: The epoch of a peer before its first hello.
NO_EPOCH = SessionEpoch(0, 0)


def end_of_incarnation(epoch: SessionEpoch) -> SessionEpoch:
    """The last epoch of an incarnation: no end of a session gets that far."""
    return SessionEpoch(epoch.incarnation, _NUMBERS_MAX - 1)


def session_epoch(incarnation: int, number: int) -> SessionEpoch:
    """A session epoch within its bounds.

    >>> session_epoch(7, 1 << 32)
    Traceback (most recent call last):
    overweave.errors.InvalidInput: session epoch: expected a number below 4,294,967,296, got 4,294,967,296
    """
    if not 0 < incarnation < _INCARNATIONS_MAX:
        raise InvalidInput(f"session epoch: expected an incarnation from 1 to 64 bits, got {incarnation:,}")
    if not 0 <= number < _NUMBERS_MAX:
        raise InvalidInput(f"session epoch: expected a number below {_NUMBERS_MAX:,}, got {number:,}")
    return SessionEpoch(incarnation, number)


class AdvertisementsEnd(msgspec.Struct, frozen=True, tag="announced"):
    """End of the advertisements that the sender has from other peers, in one epoch of the overlay."""

    overlay_epoch: OverlayEpoch = FIRST_EPOCH


class SyncEnd(msgspec.Struct, frozen=True, tag="synced"):
    """End of the initial routing state of the sender in one epoch of the overlay (BGP: End-of-RIB)."""

    overlay_epoch: OverlayEpoch = FIRST_EPOCH


class OverlayUpdate(msgspec.Struct, frozen=True, tag="overlay"):
    """The state of the overlay at the sender, for a neighbour with a lower version."""

    state: OverlayState


class EpochOpened(msgspec.Struct, frozen=True, tag="epoch-opened"):
    """The sender has opened an epoch after the session began: it has dropped all messages of that epoch before this."""

    overlay_epoch: OverlayEpoch


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """A broker has rejected a client's control message, or its ``withdrawal``: it is not in force."""

    id: str
    code: str
    text: str
    withdrawal: bool = False


class LinkRetired(msgspec.Struct, frozen=True, tag="link-retired"):
    """The sender uses the link for no new publications; ``drained``: all its earlier messages are settled."""

    drained: bool = False


class BarrierKind(enum.Enum):
    """How a client learns that all publications that were routed without its new subscriptions have arrived."""

    #: A barrier travels behind the subscriptions from the new broker to the old one, in order, and ends the stream there.
    STREAM = "stream"
    #: The new subscriptions are settled only when everything is that was in flight before them.
    SWEEP = "sweep"


class Migrate(msgspec.Struct, frozen=True, tag="migrate"):
    """A broker orders a client to move subscriptions (None: all of them at this broker) or its publishing to another broker."""

    token: str
    to: str
    subscriptions: tuple[str, ...] | None
    publishing: bool
    barrier: BarrierKind


class BarrierRequest(msgspec.Struct, frozen=True, tag="barrier-request"):
    """A client asks its new broker for a `MigrationBarrier` to the old one, behind its subscriptions."""

    token: str
    broker: str


class MigrationBarrier(msgspec.Struct, frozen=True, tag="migration-barrier"):
    """Goes from broker to broker, behind all publications, until the old ``broker`` of a client has it."""

    token: str
    client: str
    broker: str


class StreamEnd(msgspec.Struct, frozen=True, tag="stream-end"):
    """The old broker to a client: all publications that were routed without its new subscriptions are before this."""

    token: str


class MigrationResult(msgspec.Struct, frozen=True, tag="migration-result"):
    """A client to the broker that ordered its migration: it has moved, or stays because of an ``error``."""

    token: str
    error: str | None = None


#: Messages of a migration.
MigrationMessage = Migrate | BarrierRequest | MigrationBarrier | StreamEnd | MigrationResult


class ModuleMessage(msgspec.Struct, frozen=True, tag="module"):
    """A message of a module to the same module of a neighbour; routing tables do not see it."""

    module: str
    #: The type of the message, by which it is counted.
    kind: str
    body: bytes


#: All numbered messages besides publications.
ControlMessage = (
    Control
    | AdvertisementsEnd
    | SyncEnd
    | OverlayUpdate
    | EpochOpened
    | Rejected
    | LinkRetired
    | ModuleMessage
    | MigrationMessage
)


def is_addressed(message: ControlMessage) -> bool:
    """Whether a control message has destinations: its sender then holds it until they have it, as it does publications."""
    return isinstance(message, Control) and bool(message.header.destinations)


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Opens or resumes a session: both epochs as the sender knows them, what it has settled, and the number that it expects.

    A hello that is not ``confirmed`` needs an answer. ``unmatched`` is as in `Acknowledgement`. All messages of the sender before
    ``next_sequence`` were in flight when it sent the hello.
    """

    epoch: SessionEpoch
    peer_epoch: SessionEpoch
    acknowledged: int
    expected: int
    confirmed: bool
    unmatched: int = 0
    next_sequence: int = 0


class ControlFrame(msgspec.Struct, frozen=True, gc=False, tag="word"):
    """A control message with its number. In the other direction all before ``acknowledged`` is settled."""

    epoch: SessionEpoch
    peer_epoch: SessionEpoch
    sequence: int
    acknowledged: int
    message: ControlMessage


class BatchFrame(msgspec.Struct, frozen=True, gc=False, tag="batch"):
    """Publications with the number of the first row, and a piggybacked acknowledgement."""

    epoch: SessionEpoch
    peer_epoch: SessionEpoch
    sequence: int
    acknowledged: int
    batch: Batch


class Acknowledgement(msgspec.Struct, frozen=True, tag="acknowledgement"):
    """All rows before ``acknowledged`` are settled: processed, with all that they caused. ``expected`` is the next number.

    ``ranges`` are selective acknowledgements: settled rows behind unsettled ones, by their first number and the one after
    their last. ``unmatched`` counts, for clients, the rows before ``acknowledged`` without a matching subscription.
    """

    epoch: SessionEpoch
    peer_epoch: SessionEpoch
    acknowledged: int
    expected: int
    ranges: tuple[tuple[int, int], ...] = ()
    unmatched: int = 0


class UrgentFrame(msgspec.Struct, frozen=True, gc=False, tag="urgent"):
    """Urgent control publications outside the numbered stream. They may be lost: no peer acknowledges or repeats them."""

    epoch: SessionEpoch
    peer_epoch: SessionEpoch
    batch: Batch


class UrgentMessageFrame(msgspec.Struct, frozen=True, tag="urgent-message"):
    """An urgent message of a module outside the numbered stream. It may be lost, as in `UrgentFrame`."""

    epoch: SessionEpoch
    peer_epoch: SessionEpoch
    message: ModuleMessage


Frame = Hello | ControlFrame | BatchFrame | Acknowledgement | UrgentFrame | UrgentMessageFrame
