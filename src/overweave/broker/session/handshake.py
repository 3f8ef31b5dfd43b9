"""The handshake: the epochs of both ends of a session, and whether both know them."""

from overweave.contract.frames import (
    NO_EPOCH,
    Acknowledgement,
    BatchFrame,
    ControlFrame,
    Hello,
    SessionEpoch,
    UrgentFrame,
    UrgentMessageFrame,
    end_of_incarnation,
    session_epoch,
)


class EpochCounter:
    """Session epochs of one incarnation, in ascending order.

    >>> epochs = EpochCounter(5)
    >>> epochs.next(), epochs.next() > SessionEpoch(5, 0)
    (SessionEpoch(incarnation=5, number=0), True)
    """

    __slots__ = ("_incarnation", "_number")

    def __init__(self, incarnation: int) -> None:
        self._incarnation = session_epoch(incarnation, 0).incarnation
        self._number = 0

    def next(self) -> SessionEpoch:
        """An epoch above all before it."""
        epoch = session_epoch(self._incarnation, self._number)
        self._number += 1
        return epoch


class Handshake:
    """The connection state of one session and the epochs of its two ends."""

    __slots__ = ("_epochs", "_was_established", "connected", "epoch", "established", "peer", "peer_epoch")

    def __init__(self, peer: str, epochs: EpochCounter) -> None:
        self.peer = peer
        self._epochs = epochs
        self.epoch = epochs.next()
        #: The last epoch of the peer; `NO_EPOCH` before its first hello.
        self.peer_epoch = NO_EPOCH
        #: Whether there is a connection, and whether both ends know each other's epoch.
        self.connected = self.established = False
        #: Whether it was ever established with the present epochs.
        self._was_established = False

    def connect(self) -> None:
        """The connection is open."""
        self.connected, self.established = True, False

    def disconnect(self) -> None:
        """The connection is gone."""
        self.connected = self.established = False

    def establish(self) -> None:
        """Both ends know each other's epoch."""
        self.established = self._was_established = True

    def renew_epoch(self) -> None:
        """Start a new epoch and forget that of the peer: both ends have to exchange hellos again."""
        self.epoch = self._epochs.next()
        self.learn_peer_epoch(NO_EPOCH)

    def learn_peer_epoch(self, epoch: SessionEpoch) -> None:
        """The peer has another epoch."""
        self.peer_epoch, self._was_established = epoch, False

    def end_peer_incarnation(self) -> None:
        """Accept no epoch of the peer's incarnation any more: it restarts above that when it gets our hello."""
        self.learn_peer_epoch(end_of_incarnation(self.peer_epoch))

    def has_new_epoch(self, frame: Hello) -> bool:
        """Whether the peer has a new epoch, and therefore no state."""
        return self.connected and frame.epoch > self.peer_epoch

    def is_repeated_by_peer(self, frame: Hello) -> bool:
        """Whether the peer has lost its state, but has the same epoch: over an earlier connection it knew ours."""
        is_known = self._was_established and not self.established and frame.epoch == self.peer_epoch
        return self.connected and is_known and frame.peer_epoch < self.epoch

    def is_repeated_here(self, frame: Hello) -> bool:
        """Whether a peer that is new to us has received messages from our epoch: it was that of an earlier life, too."""
        return self.has_new_epoch(frame) and frame.peer_epoch == self.epoch and frame.expected > 0

    def is_current(self, frame: ControlFrame | BatchFrame | Acknowledgement | UrgentFrame | UrgentMessageFrame) -> bool:
        """Whether a frame belongs to the present epochs of both ends."""
        return self.established and frame.epoch == self.peer_epoch and frame.peer_epoch == self.epoch

    def validate(self) -> None:
        """Check the invariants."""
        assert self.connected or not self.established
        assert self._was_established or not self.established
        assert not self._was_established or self.peer_epoch > NO_EPOCH
