"""The state of one migration of a client."""

import enum

from overweave.broker.client.attachment import ClientAttachment, Registration
from overweave.broker.session import Barrier
from overweave.contract.frames import NO_EPOCH, BarrierKind, Migrate
from overweave.language.messages import Advertise


class MigrationPhase(enum.Enum):
    """The progress of a migration."""

    ATTACHING = "attaching"
    SUBSCRIBING = "subscribing"
    DRAINING = "draining"
    ADVERTISING = "advertising"
    REVERTING = "reverting"


class Migration:
    """One migration in progress."""

    def __init__(self, order: Migrate, source: ClientAttachment, target: ClientAttachment) -> None:
        self.order, self.source, self.target = order, source, target
        self.phase = MigrationPhase.ATTACHING
        self.deadline_s: float | None = None
        #: Old and new registrations.
        self.subscriptions: list[tuple[Registration, Registration]] = []
        self.advertisements: list[tuple[Registration, Registration]] = []
        #: Behind the last messages of the present phase.
        self.barrier: Barrier | None = None
        #: The epoch of the new broker when it got the subscriptions.
        self.target_epoch = NO_EPOCH
        #: The token of the barriers between the brokers, other than those before the new broker restarted; whether one is
        #: requested, and whether one has arrived.
        self.attempt = ""
        self.requested = self.stream_ended = False
        #: Why it failed, while publishing returns to the old broker.
        self.error = ""

    def begin_attempt(self, generation: int) -> None:
        """The new broker gets the subscriptions, perhaps again: barriers of before were not behind them."""
        self.attempt = f"{self.order.token}#{generation}"
        self.requested = self.stream_ended = False

    @property
    def target_restarted(self) -> bool:
        """Whether the new broker got the subscriptions in an earlier incarnation."""
        return bool(self.subscriptions) and self.target.session.peer_epoch != self.target_epoch

    @property
    def awaits_stream_end(self) -> bool:
        """Whether the old broker has to end its stream."""
        is_stream = self.order.barrier is BarrierKind.STREAM and bool(self.subscriptions)
        return self.phase is MigrationPhase.SUBSCRIBING and is_stream and not self.stream_ended

    def validate(self) -> None:
        """Check the invariants: each phase has its barrier and its deadline, and has moved no more than it may have."""
        phase = self.phase
        assert (self.barrier is None) == (phase is MigrationPhase.ATTACHING)
        assert self.deadline_s is not None
        assert phase is not MigrationPhase.ATTACHING or not self.subscriptions
        assert phase in (MigrationPhase.ADVERTISING, MigrationPhase.REVERTING) or not self.advertisements
        assert bool(self.error) == (phase is MigrationPhase.REVERTING)
        assert not self.requested or self.order.barrier is BarrierKind.STREAM


def unmoved_advertisements(current: Migration) -> list[Registration]:
    """The advertisements that are still at the old broker alone."""
    moved = {old.id for old, _ in current.advertisements}
    return [each for each in current.source.of_kind(Advertise) if each.id not in moved]


def is_caught_up(current: Migration) -> bool:
    """Whether all publications that were routed without the new subscriptions have arrived."""
    if not current.subscriptions:
        return True
    # Also with the end of the stream: a new broker that has restarted since may have to get the subscriptions again.
    return is_settled(current.barrier) and (current.stream_ended or current.order.barrier is not BarrierKind.STREAM)


def is_settled(barrier: Barrier | None) -> bool:
    """Whether everything before a barrier is settled."""
    return barrier is not None and barrier.settled
