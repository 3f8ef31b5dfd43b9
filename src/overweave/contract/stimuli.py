"""Stimuli: all that can happen to a core. Time comes beside them, never inside."""

import msgspec

from overweave.contract.frames import Frame
from overweave.overlay.parts import LinkKind


class PeerConnected(msgspec.Struct, frozen=True):
    """A connection to a peer is open: a client, or a neighbouring broker with a link of this kind."""

    peer: str
    client: bool = False
    kind: LinkKind = LinkKind.PRIMARY


class PeerDisconnected(msgspec.Struct, frozen=True):
    """The connection to a peer is gone; it may come back."""

    peer: str


class PeerLeft(msgspec.Struct, frozen=True):
    """A peer will not come back: forget it, and withdraw all that it said."""

    peer: str


class FrameArrived(msgspec.Struct, frozen=True, gc=False):
    """A frame came in over the connection to a peer."""

    peer: str
    frame: Frame


class TimerFired(msgspec.Struct, frozen=True):
    """A timer that was set has run out."""

    name: str


class LoadMeasured(msgspec.Struct, frozen=True):
    """What a driver measured, or a simulator modelled, about the broker since the last time."""

    input_hz: float
    output_bytes_per_s: float
    matching_delay_s: float
    queue_length: int


class Persisted(msgspec.Struct, frozen=True):
    """The journal is durable up to here: ``count`` of all `Persist` effects so far. One that had failed works again."""

    count: int


class JournalFailed(msgspec.Struct, frozen=True):
    """The journal cannot be written; the driver tries again and says `Persisted` when it can."""

    reason: str


Stimulus = PeerConnected | PeerDisconnected | PeerLeft | FrameArrived | TimerFired | LoadMeasured | Persisted | JournalFailed
