"""Patience with clients that settle nothing of what they got.

A client that settles slowly holds back its publishers: what it has not settled is not settled for them, and their windows fill.
One that stands still is to hold back nobody: the broker keeps what waits for it on its own account, and the others go on, until
the client moves again. It stands still when it has settled nothing for `stall_s`; and when half a window or more waits for it, so
that publishers are about to stop, as soon as some looks shortly after each other find it where it was; but who came back is left
alone with the rush that awaits it. When as much is kept as may be, a client holds back again. If it stands still then, or has
stood still for `patience_s`, it is cut off.
"""

from collections.abc import Iterator

from overweave.broker.session import Session
from overweave.contract.config import BrokerConfig

#: The timers at which to look at all clients that have something to settle, and at those for whom publishers are about to wait.
PATIENCE, PRESSED = "patience", "pressed"
#: Looks are counted, and not the time only: a broker that was busy itself has not heard what its clients settled meanwhile.
_PRESSED_S, _PRESSED_LOOKS = 0.02, 4


class Patience:
    """Watches the clients of one broker that have something to settle."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        #: Whether anybody is ever relieved or cut off.
        self.needed = config.stall_s is not None or config.patience_s is not None
        self._watched: dict[Session, _Halt] = {}
        #: Those of them for whom so much waits that publishers are about to stop.
        self._pressed: dict[Session, _Halt] = {}
        #: Who came back, and when, until the rush that awaits them is over: after a crash they must find everything.
        self._returned: dict[Session, float] = {}
        self._rows_pressing = config.session.window // 2
        periods_s = [
            period_s
            for period_s in (config.stall_s and config.stall_s / 2, config.patience_s and config.patience_s / 4)
            if period_s is not None
        ]
        self._calm = tuple((PATIENCE, period_s) for period_s in sorted(periods_s)[:1])

    def watch(self, session: Session, now_s: float) -> None:
        """Something went to this client."""
        halt = self._watched.get(session)
        if halt is None:
            halt = self._watched[session] = _Halt(session, now_s)
        if session.unsettled_rows() > self._rows_pressing and session not in self._pressed and self._config.stall_s is not None:
            halt.moved(now_s)
            self._pressed[session] = halt

    def came_back(self, session: Session, now_s: float) -> None:
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

    def looks(self) -> tuple[tuple[str, float], ...]:
        """The timers that are needed, each with its delay; none while nobody has anything to settle."""
        if not self._watched:
            return ()
        return (*self._calm, (PRESSED, _PRESSED_S)) if self._pressed else self._calm

    def look(self, timer: str, now_s: float) -> Iterator[tuple[Session, str]]:
        """Who is to be cut off, and why; whoever else stands still holds nobody back, and whoever moves does."""
        for session, halt in list((self._pressed if timer == PRESSED else self._watched).items()):
            if halt.moved(now_s):
                session.hold_back()
                self._let_rest(session)
            else:
                halt.looks += timer == PRESSED
            why = self._why_cut_off(session, now_s - halt.since_s)
            if why is not None:
                yield session, why
            elif self._stands_still(session, halt, now_s):
                session.relieve(self._config.kept_bytes_max)

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
        stall_s, returned_s = self._config.stall_s, self._returned.get(session)
        if stall_s is None:
            return False
        if returned_s is not None:
            return now_s - max(halt.since_s, returned_s) > stall_s
        return now_s - halt.since_s > stall_s or halt.looks >= _PRESSED_LOOKS

    def _why_cut_off(self, session: Session, still_s: float) -> str | None:
        config, waiting = self._config, session.unsettled()
        if config.patience_s is not None and still_s > config.patience_s:
            return f"{waiting} messages were waiting, none was taken for {config.patience_s:g} s"
        if waiting > config.queue_max:
            return f"{waiting} messages were waiting, more than {config.queue_max}"
        if config.stall_s is not None and still_s > config.stall_s and session.kept_bytes >= config.kept_bytes_max:
            return f"{session.kept_bytes} bytes were waiting, none was taken for {config.stall_s:g} s"
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
