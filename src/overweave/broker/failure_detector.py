"""The failure detector of links: neighbours exchange heartbeats, and a link that is silent for too long is down.

A broker that was paused has received nothing, which proves nothing about its neighbours. They may have declared its links down
meanwhile. So all links have to come up again, and the broker listens for a while before it judges.
"""

from collections.abc import Container, Iterable

from overweave.contract.config import BrokerConfig


class FailureDetector:
    """The last sign of life of each neighbour; ``wanted``: the protocol needs heartbeats."""

    def __init__(self, config: BrokerConfig, wanted: bool) -> None:
        #: The heartbeat period; None: there are no heartbeats.
        self.tick_s = config.heartbeat_s if wanted else None
        self._link_timeout_s, self._undeliverable_timeout_s = config.link_timeout_s, config.undeliverable_timeout_s
        self._alive_s: dict[str, float] = {}
        self._down: set[str] = set()
        #: After this time without any stimulus the broker itself was paused: neighbours may have declared its links down.
        tick_s = config.heartbeat_s or 0.0
        self.pause_threshold_s = max(2 * tick_s, config.link_timeout_s - 2 * tick_s) if wanted and tick_s else float("inf")
        #: When it began to listen after a pause, the neighbours that have not returned since, and whether any has.
        self._listening_since_s = 0.0
        self.awaited: set[str] = set()
        self._has_returned = False

    def alive(self, neighbour: str, now_s: float) -> None:
        """A frame of a neighbour has arrived."""
        self._alive_s[neighbour] = now_s

    def restored(self, neighbour: str) -> None:
        """The link is up."""
        self._down.discard(neighbour)
        self._has_returned |= neighbour in self.awaited
        self.awaited.discard(neighbour)

    def forget(self, neighbour: str) -> None:
        """The link is removed."""
        self._alive_s.pop(neighbour, None)
        self._down.discard(neighbour)
        self.awaited.discard(neighbour)

    def listen(self, neighbours: Iterable[str], now_s: float) -> None:
        """The broker was paused: its links have to come up again."""
        self.awaited.update(neighbours)
        self._down.update(self.awaited)
        self._listening_since_s, self._has_returned = now_s, False
        self._alive_s = dict.fromkeys(self._alive_s, now_s)

    def stop_listening(self, now_s: float) -> bool:
        """End the listening if it has lasted long enough; whether it has. It lasts longer while no neighbour has returned."""
        limit_s = self._link_timeout_s if self._has_returned else self._undeliverable_timeout_s
        if not self.awaited or now_s - self._listening_since_s <= limit_s:
            return False
        self.awaited.clear()
        return True

    def expired(self, neighbours: list[str], now_s: float) -> list[str]:
        """The neighbours whose links are down from now on."""
        expired = [
            neighbour
            for neighbour in neighbours
            if neighbour not in self._down and now_s - self._alive_s.setdefault(neighbour, now_s) > self._link_timeout_s
        ]
        self._down.update(expired)
        return expired

    def validate(self, neighbours: Container[str]) -> None:
        """Check the invariants: links are those to neighbours, and one that has not come up again is down."""
        assert all(neighbour in neighbours for several in (self._alive_s, self._down) for neighbour in several)
        assert self.awaited <= self._down
        assert self.tick_s is not None or not (self._alive_s or self._down)
