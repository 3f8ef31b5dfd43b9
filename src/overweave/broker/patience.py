"""Patience with clients that settle nothing of what they got.

At first such a client holds back its publishers: what it has not settled is not settled for them, and their windows fill. When it
has stood still for `stall_s` the broker relieves them: it keeps what waits for the client on its own account, and the others
go on. That lasts until the client moves again. When too much waits for it, or when it has stood still for `patience_s`, it is
cut off.
"""

from collections.abc import Iterator

from overweave.broker.session import Session
from overweave.contract.config import BrokerConfig


class Patience:
    """Watches the clients of one broker that have something to settle."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config
        self._watched: dict[Session, None] = {}
        periods_s = [
            period_s
            for period_s in (config.stall_s and config.stall_s / 2, config.patience_s and config.patience_s / 4)
            if period_s is not None
        ]
        self._period_s = min(periods_s, default=None)

    def watch(self, session: Session) -> None:
        """Something goes to this client."""
        self._watched[session] = None

    def forget(self, session: Session) -> None:
        """It is a client no more."""
        self._watched.pop(session, None)

    def look_after_s(self) -> float | None:
        """After which time to look at the clients; None while there is no need to."""
        return self._period_s if self._watched else None

    def look(self, now_s: float) -> Iterator[tuple[Session, str]]:
        """Who is to be cut off, and why; those who have only just come to a halt no longer hold anybody back."""
        config = self._config
        for session in list(self._watched):
            if not session.unsettled():
                session.rest()
                del self._watched[session]
                continue
            still_s = session.still_s(now_s)
            if config.patience_s is not None and still_s > config.patience_s:
                yield session, f"{session.unsettled()} messages were waiting, none was taken for {config.patience_s:g} s"
            elif session.unsettled() > config.queue_max:
                yield session, f"{session.unsettled()} messages were waiting, more than {config.queue_max}"
            elif session.kept_bytes > config.kept_bytes_max:
                yield session, f"{session.kept_bytes} bytes were waiting, more than {config.kept_bytes_max}"
            elif still_s == 0.0:
                session.holds_back()
            elif config.stall_s is not None and still_s > config.stall_s:
                session.relieve()
