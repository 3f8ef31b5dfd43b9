"""Slow-consumer policy: clients that do not acknowledge their deliveries.

A slow client blocks its publishers: its unsettled deliveries keep their publications unsettled, and their windows fill. A stalled
client must not block anybody: the broker buffers for it until it makes progress again. A client is stalled after
`stall_timeout_s` without an acknowledgement. If at least half a window is pending, four checks 20 ms apart without an
acknowledgement also mark it as stalled. A client that has just reconnected is exempt until it has drained its backlog. When
the buffer is full, the client blocks its publishers again. It is disconnected if it is stalled then, or is stalled for
`slow_consumer_timeout_s`.
"""

from collections.abc import Iterator

from overweave.broker.session import Session
from overweave.contract.config import BrokerConfig

#: The timers of the check of all clients with unsettled deliveries, and of those that are about to block a publisher.
CHECK_SLOW, CHECK_SLOW_FAST = "check-slow", "check-slow-fast"
#: Checks are counted, not only time: a busy broker has not yet read the acknowledgements of its clients.
_CHECK_FAST_S, _CHECKS_FAST = 0.02, 4


class SlowConsumerPolicy:
    """Watches the clients of one broker that have something to settle."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        #: Whether anybody is ever relieved or cut off.
        self.needed = config.stall_timeout_s is not None or config.slow_consumer_timeout_s is not None
        self._watched: dict[Session, _Halt] = {}
        #: Those of them for whom so much waits that publishers are about to stop.
        self._pressed: dict[Session, _Halt] = {}
        #: Who came back, and when, until the rush that awaits them is over: after a crash they must find everything.
        self._returned: dict[Session, float] = {}
        self._rows_pressing = config.session.window // 2
        periods_s = [
            period_s
            for period_s in (
                config.stall_timeout_s and config.stall_timeout_s / 2,
                config.slow_consumer_timeout_s and config.slow_consumer_timeout_s / 4,
            )
            if period_s is not None
        ]
        self._calm = tuple((CHECK_SLOW, period_s) for period_s in sorted(periods_s)[:1])

    def watch(self, session: Session, now_s: float) -> None:
        """Something went to this client."""
        halt = self._watched.get(session)
        if halt is None:
            halt = self._watched[session] = _Halt(session, now_s)
        if (
            session.unsettled_rows() > self._rows_pressing
            and session not in self._pressed
            and self._config.stall_timeout_s is not None
        ):
            halt.moved(now_s)
            self._pressed[session] = halt

    def reconnected(self, session: Session, now_s: float) -> None:
        """A client that was here before is connected again."""
        self._returned[session] = now_s

    def forget(self, session: Session) -> None:
        """It is a client no more."""
        self._watched.pop(session, None)
        self._pressed.pop(session, None)
        self._returned.pop(session, None)

    def was_away(self, away_s: float) -> None:
        """The broker was paused, or busy: what clients settled meanwhile has not been heard, so that time does not count."""
        for halt in self._watched.values():
            halt.since_s += away_s
        self._returned = {session: since_s + away_s for session, since_s in self._returned.items()}

    def timers(self) -> tuple[tuple[str, float], ...]:
        """The timers that are needed, each with its delay; none while nobody has anything to settle."""
        if not self._watched:
            return ()
        return (*self._calm, (CHECK_SLOW_FAST, _CHECK_FAST_S)) if self._pressed else self._calm

    def check(self, timer: str, now_s: float) -> Iterator[tuple[Session, str]]:
        """Who is to be cut off, and why; whoever else stands still holds nobody back, and whoever moves does."""
        for session, halt in list((self._pressed if timer == CHECK_SLOW_FAST else self._watched).items()):
            if halt.moved(now_s):
                session.stop_buffering()
                self._let_rest(session)
            else:
                halt.looks += timer == CHECK_SLOW_FAST
            why = self._why_cut_off(session, now_s - halt.since_s)
            if why is not None:
                yield session, why
            elif self._stands_still(session, halt, now_s):
                session.start_buffering(self._config.pending_bytes_max)

    def validate(self) -> None:
        """Check what must always hold."""
        assert self._pressed.keys() <= self._watched.keys()
        assert all(self._watched[session] is halt for session, halt in self._pressed.items())
        assert self.needed or not self._watched

    def _let_rest(self, session: Session) -> None:
        """Look less often at whom less waits for."""
        if session.unsettled_rows() <= self._rows_pressing and self._pressed.pop(session, None) is not None:
            self._returned.pop(session, None)
        if not session.unsettled():
            self._watched.pop(session, None)

    def _stands_still(self, session: Session, halt: "_Halt", now_s: float) -> bool:
        stall_timeout_s, returned_s = self._config.stall_timeout_s, self._returned.get(session)
        if stall_timeout_s is None:
            return False
        if returned_s is not None:
            return now_s - max(halt.since_s, returned_s) > stall_timeout_s
        return now_s - halt.since_s > stall_timeout_s or halt.looks >= _CHECKS_FAST

    def _why_cut_off(self, session: Session, still_s: float) -> str | None:
        config, waiting = self._config, session.unsettled()
        if config.slow_consumer_timeout_s is not None and still_s > config.slow_consumer_timeout_s:
            return f"{waiting} messages were waiting, none was taken for {config.slow_consumer_timeout_s:g} s"
        if waiting > config.pending_max:
            return f"{waiting} messages were waiting, more than {config.pending_max}"
        if (
            config.stall_timeout_s is not None
            and still_s > config.stall_timeout_s
            and session.pending_bytes >= config.pending_bytes_max
        ):
            return f"{session.pending_bytes} bytes were waiting, none was taken for {config.stall_timeout_s:g} s"
        return None


class _Halt:
    """Where a client was last seen to have moved, when that was, and how often it was looked at closely since."""

    __slots__ = ("_session", "_settled", "looks", "since_s")

    def __init__(self, session: Session, now_s: float) -> None:
        self._session, self._settled = session, session.settled_rows()
        self.since_s, self.looks = now_s, 0

    def moved(self, now_s: float) -> bool:
        """Whether it has settled anything since it was last asked."""
        settled = self._session.settled_rows()
        if settled == self._settled:
            return False
        self._settled, self.since_s, self.looks = settled, now_s, 0
        return True
