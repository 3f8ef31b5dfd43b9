"""The publishing side of a client: one attachment, or a pause while it moves to another."""

from collections import deque
from weakref import WeakSet

from overweave.batches.base import Batch
from overweave.broker.client.attachment import ClientAttachment
from overweave.broker.session import Barrier
from overweave.contract.effects import Effect


class ClientBarrier:
    """A barrier behind everything that a client has sent to all brokers; paused publications join it when they are sent."""

    __slots__ = ("__weakref__", "_parts", "_paused")

    def __init__(self, parts: list[tuple[ClientAttachment, Barrier]], paused: bool) -> None:
        self._parts, self._paused = parts, paused

    @property
    def settled(self) -> bool:
        """Whether everything sent before is settled."""
        return not self._paused and all(part.settled for _, part in self._parts)

    def resume(self, home: ClientAttachment, part: Barrier) -> None:
        """The paused publications are sent."""
        self._parts.append((home, part))
        self._paused = False

    def suspend(self, failed: ClientAttachment) -> bool:
        """Wait for publications that are sent again, not for a broker that has failed; whether there is anything to wait for."""
        if self.settled:
            return False
        self._parts = [each for each in self._parts if each[0] is not failed]
        self._paused = True
        return True

    def replace(self, left: ClientAttachment, parts: list[tuple[ClientAttachment, Barrier]]) -> None:
        """Wait for other parts, not for a broker that the client has left."""
        waits = any(each is left and not part.settled for each, part in self._parts)
        self._parts = [each for each in self._parts if each[0] is not left] + (parts if waits else [])


class Publishing:
    """Where a client publishes; while paused, publications are buffered."""

    def __init__(self, home: ClientAttachment) -> None:
        self.home = home
        self._paused: deque[Batch] | None = None
        self._paused_rows = 0
        #: Behind the advertisements at the home, while publishing is paused until they are in force.
        self.awaited: Barrier | None = None
        #: The barriers that wait for buffered publications, and all.
        self._barriers: list[ClientBarrier] = []
        self._all: WeakSet[ClientBarrier] = WeakSet()

    @property
    def paused(self) -> bool:
        """Whether publications are buffered."""
        return self._paused is not None

    @property
    def paused_rows(self) -> int:
        """The number of buffered publications."""
        return self._paused_rows

    def send(self, batch: Batch, effects: list[Effect]) -> None:
        """Publish, or buffer."""
        if self._paused is None:
            self.home.session.outbound.send(batch, None, effects)
        else:
            self._paused.append(batch)
            self._paused_rows += batch.count

    def pause(self) -> None:
        """Buffer publications from now on."""
        if self._paused is None:
            self._paused = deque()

    def resume_behind(self, barrier: Barrier) -> None:
        """Stay paused until the advertisements at the home are in force, however long that takes."""
        self.awaited = barrier

    def advance(self, effects: list[Effect]) -> None:
        """Go on publishing when the advertisements are in force."""
        if self.awaited is not None and self.awaited.settled:
            self.resume(self.home, effects)

    def resume(self, home: ClientAttachment, effects: list[Effect]) -> None:
        """Publish over an attachment, buffered publications first."""
        self.home, paused, self.awaited = home, self._paused or (), None
        self._paused, self._paused_rows = None, 0
        for batch in paused:
            self.send(batch, effects)
        for barrier in self._barriers:
            barrier.resume(home, home.session.outbound.barrier())
        self._barriers.clear()

    def requeue(self, failed: ClientAttachment) -> None:
        """Pause, and buffer the unsettled publications of a broker that has failed before all others, in the next generation.

        Some brokers have seen them. In the same generation they would drop what others have not got.
        """
        self._barriers = [each for each in self._all if each.suspend(failed)]
        self.pause()
        assert self._paused is not None
        batches = [each.next_generation() for each, _ in failed.session.outbound.reclaim() if isinstance(each, Batch)]
        self._paused.extendleft(reversed(batches))
        self._paused_rows += sum(each.count for each in batches)

    def transfer_barriers(self, left: ClientAttachment, parts: list[tuple[ClientAttachment, Barrier]]) -> None:
        """The client has left a broker; what barriers still wait for there is behind other ``parts`` now, if anywhere."""
        for each in self._all:
            each.replace(left, parts)

    def barrier(self, parts: list[tuple[ClientAttachment, Barrier]]) -> ClientBarrier:
        """A barrier behind the given ones and behind buffered publications."""
        made = ClientBarrier(parts, bool(self._paused))
        self._all.add(made)
        if self._paused:
            self._barriers.append(made)
        return made

    def validate(self) -> None:
        """Check the invariants."""
        assert self._paused_rows == sum(batch.count for batch in self._paused or ())
        assert self.paused or self.awaited is None
        assert self.paused or not self._barriers
        assert not any(barrier.settled for barrier in self._barriers)
