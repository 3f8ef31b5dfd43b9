"""Slow-consumer policy: clients that do not acknowledge their deliveries.

A slow client blocks its publishers: its unsettled deliveries keep their publications unsettled, and their windows fill. A stalled
client must not block anybody: the broker buffers for it until it makes progress again. A client is stalled after
`stall_timeout_s` without an acknowledgement. If at least half a window is pending, four checks 20 ms apart without an
acknowledgement also mark it as stalled. A client that has just reconnected is exempt until it has drained its backlog. When
the buffer is full, the client blocks its publishers again. It is disconnected if it is stalled then, or is stalled for
`slow_consumer_timeout_s`.

Nothing is buffered for a client that has been ordered to move, until it has reported the result. Its publishers wait, as for any
slow client. Otherwise they would go on, and the first publications from its new broker would push the buffered ones out of its
dedup window.
"""

from collections.abc import Iterator

from overweave.broker.session import Session
from overweave.contract.config import BrokerConfig

#: The timers of the check of all clients with unsettled deliveries, and of those that are about to block a publisher.
CHECK_SLOW, CHECK_SLOW_FAST = "check-slow", "check-slow-fast"
#: Checks are counted, not only time: a busy broker has not yet read the acknowledgements of its clients.
_CHECK_FAST_S, _CHECKS_FAST = 0.02, 4


class SlowConsumerPolicy:
    """The clients of one broker with unsettled deliveries, and their progress."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        #: Whether the policy ever buffers for a client or disconnects one.
        self.needed = config.stall_timeout_s is not None or config.slow_consumer_timeout_s is not None
        self._watched: dict[Session, _Progress] = {}
        #: The watched clients with half a window pending: they are about to block their publishers.
        self._near_limit: dict[Session, _Progress] = {}
        #: When clients have reconnected, until they have drained their backlog: after a crash they must find everything.
        self._reconnected_s: dict[Session, float] = {}
        #: The orders to move that clients have not answered.
        self._orders: dict[Session, set[str]] = {}
        self._near_limit_rows = config.session.window // 2
        periods_s = [
            period_s
            for period_s in (
                config.stall_timeout_s and config.stall_timeout_s / 2,
                config.slow_consumer_timeout_s and config.slow_consumer_timeout_s / 4,
            )
            if period_s is not None
        ]
        self._timers = tuple((CHECK_SLOW, period_s) for period_s in sorted(periods_s)[:1])

    def watch(self, session: Session, now_s: float) -> None:
        """Watch a client that publications were sent to."""
        progress = self._watched.get(session)
        if progress is None:
            progress = self._watched[session] = _Progress(session, now_s)
        if (
            session.outbound.unsettled_rows() > self._near_limit_rows
            and session not in self._near_limit
            and self._config.stall_timeout_s is not None
        ):
            progress.update(now_s)
            self._near_limit[session] = progress

    def reconnected(self, session: Session, now_s: float) -> None:
        """A client with a session is connected again."""
        self._reconnected_s[session] = now_s

    def begin_move(self, session: Session, token: str) -> None:
        """A client is ordered to move: nothing is buffered for it."""
        self._orders.setdefault(session, set()).add(token)

    def end_move(self, session: Session, token: str) -> None:
        """A client has reported the result of an order."""
        orders = self._orders.get(session, set())
        orders.discard(token)
        if not orders:
            self._orders.pop(session, None)

    def forget(self, session: Session) -> None:
        """The session of a client is closed."""
        self._watched.pop(session, None)
        self._near_limit.pop(session, None)
        self._reconnected_s.pop(session, None)
        self._orders.pop(session, None)

    def exclude_pause(self, paused_s: float) -> None:
        """Exclude a pause of the broker: it has not read the acknowledgements of that time."""
        for progress in self._watched.values():
            progress.since_s += paused_s
        self._reconnected_s = {session: since_s + paused_s for session, since_s in self._reconnected_s.items()}

    def timers(self) -> tuple[tuple[str, float], ...]:
        """The timers that are needed, each with its delay; none without watched clients."""
        if not self._watched:
            return ()
        return (*self._timers, (CHECK_SLOW_FAST, _CHECK_FAST_S)) if self._near_limit else self._timers

    def check(self, timer: str, now_s: float) -> Iterator[tuple[Session, str]]:
        """The clients to disconnect, with the reason. For other stalled clients buffering starts; progress ends it."""
        for session, progress in list((self._near_limit if timer == CHECK_SLOW_FAST else self._watched).items()):
            if progress.update(now_s):
                session.outbound.buffer.stop()
                self._unwatch(session)
            else:
                progress.checks_fast += timer == CHECK_SLOW_FAST
            reason = self._disconnect_reason(session, now_s - progress.since_s)
            if reason is not None:
                yield session, reason
            elif self._is_stalled(session, progress, now_s):
                session.outbound.start_stall_buffer(self._config.pending_bytes_max)

    def validate(self) -> None:
        """Check the invariants."""
        assert self._near_limit.keys() <= self._watched.keys()
        assert all(self._watched[session] is progress for session, progress in self._near_limit.items())
        assert self.needed or not self._watched
        assert not any(session.outbound.buffer.active for session in self._orders)

    def _unwatch(self, session: Session) -> None:
        """Check a client less often, or no longer, when little is pending."""
        outbound = session.outbound
        if outbound.unsettled_rows() <= self._near_limit_rows and self._near_limit.pop(session, None) is not None:
            self._reconnected_s.pop(session, None)
        if not outbound.unsettled_entries():
            self._watched.pop(session, None)

    def _is_stalled(self, session: Session, progress: "_Progress", now_s: float) -> bool:
        stall_timeout_s, reconnected_s = self._config.stall_timeout_s, self._reconnected_s.get(session)
        if stall_timeout_s is None or session in self._orders:
            return False
        if reconnected_s is not None:
            return now_s - max(progress.since_s, reconnected_s) > stall_timeout_s
        return now_s - progress.since_s > stall_timeout_s or progress.checks_fast >= _CHECKS_FAST

    def _disconnect_reason(self, session: Session, stalled_s: float) -> str | None:
        config, pending, pending_bytes = self._config, session.outbound.unsettled_entries(), session.outbound.buffer.bytes
        if config.slow_consumer_timeout_s is not None and stalled_s > config.slow_consumer_timeout_s:
            return f"{pending} messages were pending, none was acknowledged for {config.slow_consumer_timeout_s:g} s"
        if pending > config.pending_max:
            return f"{pending} messages were pending, more than {config.pending_max}"
        if (
            config.stall_timeout_s is not None
            and stalled_s > config.stall_timeout_s
            and pending_bytes >= config.pending_bytes_max
        ):
            return f"{pending_bytes} bytes were pending, none was acknowledged for {config.stall_timeout_s:g} s"
        return None


class _Progress:
    """The last progress of a client: its settled rows, the time, and the fast checks since then."""

    __slots__ = ("_session", "_settled", "checks_fast", "since_s")

    def __init__(self, session: Session, now_s: float) -> None:
        self._session, self._settled = session, session.outbound.settled_rows()
        self.since_s, self.checks_fast = now_s, 0

    def update(self, now_s: float) -> bool:
        """Record the rows settled since the last update; False if there are none."""
        settled = self._session.outbound.settled_rows()
        if settled == self._settled:
            return False
        self._settled, self.since_s, self.checks_fast = settled, now_s, 0
        return True
