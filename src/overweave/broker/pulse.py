"""The pulse of links: neighbours hear from each other every so often, and a link that is silent for long does not work."""

from overweave.contract.config import BrokerConfig


class Pulse:
    """When each neighbour was heard last, as far as anybody wants to know."""

    def __init__(self, config: BrokerConfig, wanted: bool) -> None:
        self.beat_s = config.heartbeat_s if wanted else None
        self._silence_s = config.silence_s
        self._heard_s: dict[str, float] = {}
        self._silent: set[str] = set()

    def heard(self, neighbour: str, now_s: float) -> None:
        """A sign of life."""
        self._heard_s[neighbour] = now_s

    def lives(self, neighbour: str) -> None:
        """The link works."""
        self._silent.discard(neighbour)

    def forget(self, neighbour: str) -> None:
        """There is no such link any more."""
        self._heard_s.pop(neighbour, None)
        self._silent.discard(neighbour)

    def fallen_silent(self, neighbours: list[str], now_s: float) -> list[str]:
        """Those whose link has just been found not to work."""
        silent = [
            neighbour
            for neighbour in neighbours
            if neighbour not in self._silent and now_s - self._heard_s.setdefault(neighbour, now_s) > self._silence_s
        ]
        self._silent.update(silent)
        return silent
