"""Frames: what crosses a connection between two peers (two brokers, or a broker and a client).

A stream between two peers is named by their incarnations: who restarts counts up, and what belongs to an older pair is dropped.
Sequence numbers count rows of publications, and all other contents as one each, from 0 in each direction of a stream.
"""

import msgspec

from overweave.batches.base import Batch
from overweave.language.messages import Control


class AdvertisementsEnd(msgspec.Struct, frozen=True, tag="announced"):
    """The sender has now told all advertisements that it knows from elsewhere."""


class SyncEnd(msgspec.Struct, frozen=True, tag="synced"):
    """The sender has now said all that its peer must know of its routing state, as if they met for the first time."""


class Rejected(msgspec.Struct, frozen=True, tag="rejected"):
    """A broker has not accepted what its client said under an id (or the ``withdrawal`` of it): it is not in force."""

    id: str
    code: str
    text: str
    withdrawal: bool = False


#: What is said besides publications.
ControlMessage = Control | AdvertisementsEnd | SyncEnd | Rejected


def is_addressed(word: ControlMessage) -> bool:
    """Whether a word is meant for some brokers: then it stays with its sender until they have it, as a publication does."""
    return not isinstance(word, AdvertisementsEnd | SyncEnd | Rejected) and bool(word.header.destinations)


class Hello(msgspec.Struct, frozen=True, tag="hello"):
    """Opens or resumes a stream: who I am, whom I take you for (0: nobody yet), what I have settled and which number I expect.

    Whoever has not ``confirmed`` that the other knows it wants an answer. ``unmatched`` is as in `Acknowledgement`.
    """

    incarnation: int
    peer_incarnation: int
    acknowledged: int
    expected: int
    confirmed: bool
    unmatched: int = 0


class ControlFrame(msgspec.Struct, frozen=True, gc=False, tag="word"):
    """A word with its number; ``acknowledged`` counts the rows of the other direction that are settled."""

    incarnation: int
    peer_incarnation: int
    sequence: int
    acknowledged: int
    message: ControlMessage


class BatchFrame(msgspec.Struct, frozen=True, gc=False, tag="batch"):
    """Publications with the number of the first row."""

    incarnation: int
    peer_incarnation: int
    sequence: int
    acknowledged: int
    batch: Batch


class Acknowledgement(msgspec.Struct, frozen=True, tag="acknowledgement"):
    """All rows before ``acknowledged`` are settled (processed, and what they caused is settled too), ``expected`` is next.

    Now and then stretches of later rows that are settled are told too, by their first number and the one after their last.
    Clients are told how many of the rows before ``acknowledged`` matched nobody at this broker.
    """

    incarnation: int
    peer_incarnation: int
    acknowledged: int
    expected: int
    ranges: tuple[tuple[int, int], ...] = ()
    unmatched: int = 0


Frame = Hello | ControlFrame | BatchFrame | Acknowledgement
