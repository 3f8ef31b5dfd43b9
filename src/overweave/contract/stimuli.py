"""Stimuli: all that can happen to a core. Time comes beside them, never inside."""

from collections.abc import Mapping

import msgspec

from overweave.contract.frames import Frame
from overweave.contract.overlay_state import OverlayState
from overweave.overlay.parts import LinkKind


class PeerConnected(msgspec.Struct, frozen=True):
    """A connection to a peer is open: a client, or a neighbouring broker with a link of this kind."""

    peer: str
    client: bool = False
    kind: LinkKind = LinkKind.PRIMARY
    #: A broker that has joined at this one: their link is in every epoch that does not list it.
    guest: bool = False
    #: A broker that this one has joined at.
    contact: bool = False


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
    """The load of the broker over one window, measured by a driver or modelled by the simulator (THESIS 4.1, 4.2, 4.3)."""

    #: Arrivals of publications per second, by rows.
    input_hz: float = 0.0
    #: Bytes per second put into the output queues (b_rx of THESIS 4.3).
    put_bytes_per_s: float = 0.0
    #: The mean service time of a publication.
    matching_delay_s: float = 0.0
    #: The number of unsettled contents, over all peers.
    queue_length: int = 0
    #: The length of the window.
    window_s: float = 0.0
    #: The subscriptions of the broker's clients; those of modules do not count.
    subscriptions: int = 0
    #: Bytes per second that left the output queues (b_tx), and the share of the window in which the output was busy.
    sent_bytes_per_s: float = 0.0
    output_busy: float = 0.0
    #: None: unlimited or unknown.
    output_bandwidth_bytes_per_s: float | None = None
    #: The mean time of a publication in the input queue, and of a byte or frame in the output queues.
    input_delay_s: float = 0.0
    output_delay_s: float = 0.0
    #: The latter by neighbour; that of all clients together is under "".
    output_delays_s: Mapping[str, float] = {}
    #: None: unknown.
    memory_bytes: int | None = None
    memory_bytes_max: int | None = None

    @property
    def input_ratio(self) -> float:
        """The input utilisation (THESIS 4.1): above 1 more arrives than is served."""
        return self.input_hz * self.matching_delay_s

    @property
    def output_ratio(self) -> float:
        """The output utilisation (THESIS 4.3); 0 if nothing was sent.

        >>> LoadMeasured(put_bytes_per_s=300.0, sent_bytes_per_s=200.0, output_busy=1.0).output_ratio
        1.5
        """
        return self.output_busy * max(1.0, self.put_bytes_per_s / self.sent_bytes_per_s) if self.sent_bytes_per_s > 0 else 0.0

    @property
    def cpu_ratio(self) -> float:
        """The CPU utilisation: the input utilisation, 1 at most."""
        return min(self.input_ratio, 1.0)

    @property
    def memory_ratio(self) -> float | None:
        """The memory utilisation; None if it is unknown."""
        return self.memory_bytes / self.memory_bytes_max if self.memory_bytes is not None and self.memory_bytes_max else None


class Persisted(msgspec.Struct, frozen=True):
    """The journal is durable up to here: ``count`` of all `Persist` effects so far. One that had failed works again."""

    count: int


class JournalFailed(msgspec.Struct, frozen=True):
    """The journal cannot be written; the driver tries again and says `Persisted` when it can."""

    reason: str


class MigrateClient(msgspec.Struct, frozen=True):
    """Order a client of this broker to move subscriptions (None: all) or its publishing; `MigrationEnded` is the answer."""

    token: str
    client: str
    to: str
    subscriptions: tuple[str, ...] | None = None
    publishing: bool = True


class AttachFailed(msgspec.Struct, frozen=True):
    """A client cannot `Attach` to a broker, and need not try again."""

    peer: str
    reason: str


class FailOver(msgspec.Struct, frozen=True):
    """A client's broker is unreachable: everything moves to another one, without the old one; publications may be missing."""

    peer: str
    to: str


class ChangeOverlay(msgspec.Struct, frozen=True):
    """Adopt a state of the overlay, unless it is no higher than the present one."""

    state: OverlayState


class AskModule(msgspec.Struct, frozen=True):
    """A request of an operator to a module of this broker; `ModuleAnswer` with the same token is the answer."""

    token: str
    module: str
    kind: str
    body: bytes


Stimulus = (
    PeerConnected
    | PeerDisconnected
    | PeerLeft
    | FrameArrived
    | TimerFired
    | LoadMeasured
    | Persisted
    | JournalFailed
    | MigrateClient
    | AttachFailed
    | FailOver
    | ChangeOverlay
    | AskModule
)
