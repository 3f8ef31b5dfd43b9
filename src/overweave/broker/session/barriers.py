"""Barriers: positions in the stream to a peer."""

from collections import deque
from collections.abc import Iterable

from overweave.broker.session.in_flight import InFlight


class Barrier:
    """A position in the stream to a peer, settled when everything sent before it is."""

    __slots__ = ("position", "settled")

    def __init__(self, position: int) -> None:
        self.position = position
        self.settled = False


class Barriers:
    """The unsettled barriers of one stream, in order."""

    __slots__ = ("_unsettled",)

    def __init__(self) -> None:
        self._unsettled: deque[Barrier] = deque()

    def __bool__(self) -> bool:
        return bool(self._unsettled)

    def add(self, position: int, lowest_unacked: int) -> Barrier:
        """A barrier at a position."""
        barrier = Barrier(position)
        self._unsettled.append(barrier)
        self.settle(lowest_unacked)
        return barrier

    def settle(self, lowest_unacked: int) -> None:
        """Settle the barriers up to the first row that is not acknowledged."""
        while self._unsettled and self._unsettled[0].position <= lowest_unacked:
            self._unsettled.popleft().settled = True

    def renumber(self, entries: Iterable[InFlight], lowest_unacked: int, next_sequence: int, first: int) -> None:
        """Move the barriers to a new stream: ``first`` new control messages, then the lasting ones of ``entries``."""
        number, position, rest = lowest_unacked, first, iter(entries)
        for barrier in self._unsettled:
            while number < min(barrier.position, next_sequence):
                entry = next(rest)
                number += entry.length
                position += entry.length if entry.survives_restart() else 0
            barrier.position = position + max(barrier.position - next_sequence, 0)

    def validate(self) -> None:
        """Check the invariants."""
        positions = [barrier.position for barrier in self._unsettled]
        assert positions == sorted(positions)
        assert not any(barrier.settled for barrier in self._unsettled)
