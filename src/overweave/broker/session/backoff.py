"""The back-off of retransmission: without progress the pauses double, because a busy peer gets slower with each copy."""

#: The longest pause, in periods of retransmission: a lost control message must arrive within hold times (decision 0016).
PAUSE_MAX = 4


class Backoff:
    """The periods until the next retransmission to one peer.

    >>> backoff = Backoff()
    >>> [period for period in range(1, 20) if backoff.tick(settled=0, received=0, sent=10)]
    [1, 3, 7, 11, 15, 19]
    >>> [backoff.tick(settled=0, received=each, sent=10) for each in (1, 2, 3)]  # slow progress: the rest is in flight
    [False, False, False]
    >>> backoff.tick(settled=0, received=9, sent=10), backoff.tick(settled=0, received=9, sent=10)
    (True, True)
    """

    __slots__ = ("_left", "_pause", "_received", "_sent", "_settled")

    def __init__(self) -> None:
        #: The progress of the peer, and the end of what was sent, at the end of the last period.
        self._settled = self._received = self._sent = 0
        self.reset()

    def reset(self) -> None:
        """Retransmit after the next period."""
        self._pause = self._left = 1

    def tick(self, settled: int, received: int, sent: int) -> bool:
        """A period has passed; whether to retransmit, by the numbers before which everything is settled, received or sent."""
        has_progress = (settled, received) != (self._settled, self._received)
        # The peer has received half of what was in flight: what is missing now is rather lost than late.
        keeps_up = 2 * max(settled, received) >= max(self._settled, self._received) + self._sent
        self._settled, self._received, self._sent = settled, received, sent
        if has_progress:
            if keeps_up:
                self.reset()
            else:
                self._left = self._pause
            return keeps_up
        self._left -= 1
        if self._left:
            return False
        self._pause = self._left = min(2 * self._pause, PAUSE_MAX)
        return True

    def validate(self) -> None:
        """Check the invariants."""
        assert 1 <= self._left <= self._pause <= PAUSE_MAX
