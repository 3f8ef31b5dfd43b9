"""The pulse of links: neighbours hear from each other every so often, and a link that is silent for long does not work.

A broker that was paused has heard nobody, which says nothing about its neighbours. They may have given it up meanwhile, so it
greets them anew, and listens before it judges.
"""

from collections.abc import Iterable

from overweave.contract.config import BrokerConfig


class FailureDetector:
    """When each neighbour was heard last, as far as anybody wants to know."""

    def __init__(self, config: BrokerConfig, wanted: bool) -> None:
        self.tick_s = config.heartbeat_s if wanted else None
        self._link_timeout_s, self._undeliverable_timeout_s = config.link_timeout_s, config.undeliverable_timeout_s
        self._heard_s: dict[str, float] = {}
        self._silent: set[str] = set()
        #: After how much time without any stimulus the broker itself was away: neighbours may have found it silent then.
        beat_s = config.heartbeat_s or 0.0
        self.away_s = max(2 * beat_s, config.link_timeout_s - 2 * beat_s) if wanted and beat_s else float("inf")
        #: Since when it listens, and to whom; whether anybody has come back.
        self._listens_since_s = 0.0
        self._awaited: set[str] = set()
        self._has_heard = False

    @property
    def listens(self) -> bool:
        """Whether the broker was away, and waits for its neighbours before it judges who is there."""
        return bool(self._awaited)

    def heard(self, neighbour: str, now_s: float) -> None:
        """A sign of life."""
        self._heard_s[neighbour] = now_s

    def alive(self, neighbour: str) -> None:
        """The link works."""
        self._silent.discard(neighbour)
        self._has_heard |= neighbour in self._awaited
        self._awaited.discard(neighbour)

    def forget(self, neighbour: str) -> None:
        """There is no such link any more."""
        self._heard_s.pop(neighbour, None)
        self._silent.discard(neighbour)
        self._awaited.discard(neighbour)

    def listen(self, neighbours: Iterable[str], now_s: float) -> None:
        """The broker was away: its links have to be tried anew, from now on."""
        self._awaited.update(neighbours)
        self._silent.update(self._awaited)
        self._listens_since_s, self._has_heard = now_s, False
        self._heard_s = dict.fromkeys(self._heard_s, now_s)

    def stop_listening(self, now_s: float) -> bool:
        """Whether it has listened for long enough, just now: longer while nobody at all has come back."""
        limit_s = self._link_timeout_s if self._has_heard else self._undeliverable_timeout_s
        if not self._awaited or now_s - self._listens_since_s <= limit_s:
            return False
        self._awaited.clear()
        return True

    def expired(self, neighbours: list[str], now_s: float) -> list[str]:
        """Those whose link has just been found not to work."""
        silent = [
            neighbour
            for neighbour in neighbours
            if neighbour not in self._silent and now_s - self._heard_s.setdefault(neighbour, now_s) > self._link_timeout_s
        ]
        self._silent.update(silent)
        return silent
