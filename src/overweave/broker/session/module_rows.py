"""The limit on publications of modules to one peer: modules have no window, and do not wait for acknowledgements."""

from collections.abc import Iterable

from overweave.broker.session.in_flight import InFlight
from overweave.language.headers import Priority

#: The most unsettled publications of modules to one neighbour. One publication of a client that waits for a broker holds up the
#: acknowledgements of all behind it, so these have arrived for the most part.
MODULE_ROWS_MAX = 8_192


class ModuleRows:
    """The number of publications of modules that a peer has not settled. It is counted only when it may be at the limit."""

    __slots__ = ("_counted_at", "_rows_max")

    def __init__(self) -> None:
        #: At least the number, and the first unacknowledged row when it was counted; -1: never in this stream.
        self._rows_max, self._counted_at = 0, -1

    def add(self, rows: int, kept: Iterable[InFlight], lowest_unacked: int) -> bool:
        """Add rows; False if there are too many among the messages ``kept`` for the peer."""
        if self._rows_max >= MODULE_ROWS_MAX:
            if lowest_unacked == self._counted_at:
                return False
            self._rows_max, self._counted_at = sum(entry.length for entry in kept if _is_of_module(entry)), lowest_unacked
            if self._rows_max >= MODULE_ROWS_MAX:
                return False
        self._rows_max += rows
        return True

    def restart(self) -> None:
        """The stream begins at 0."""
        self._counted_at = -1


def _is_of_module(entry: InFlight) -> bool:
    return entry.batch is not None and entry.batch.priority() is Priority.CONTROL
