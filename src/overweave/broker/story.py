"""The story of a message: what a broker remembers of its last steps, to be asked for by id."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from overweave.batches.base import Batch
from overweave.language.messages import Control


class Step(NamedTuple):
    """What happened: when, what, the peer it came from, and the peers it went on to (publications)."""

    at_s: float
    what: str
    peer: str
    to: tuple[str, ...] = ()


class Story:
    """The last so many steps. Batches are kept as they are, and looked into only when somebody asks."""

    def __init__(self, length: int) -> None:
        self._heard: deque[tuple[float, str, Control]] = deque(maxlen=length)
        self._routed: deque[tuple[float, str, Batch, Sequence[tuple[str | None, Batch]]]] = deque(maxlen=length)
        self.length = length

    def heard(self, now_s: float, peer: str, message: Control) -> None:
        """A peer said something."""
        self._heard.append((now_s, peer, message))

    def routed(self, now_s: float, peer: str, batch: Batch, forwards: Sequence[tuple[str | None, Batch]]) -> None:
        """Publications went on."""
        self._routed.append((now_s, peer, batch, forwards))

    def of(self, id: str) -> list[Step]:
        """All steps of one message, in order."""
        steps = [Step(at_s, type(message).__name__.lower(), peer) for at_s, peer, message in self._heard if message.id == id]
        for at_s, peer, batch, forwards in self._routed:
            if _holds(batch, id):
                to = tuple(to for to, some in forwards if to is not None and _holds(some, id))
                steps.append(Step(at_s, "publish", peer, to))
        return sorted(steps)


def _holds(batch: Batch, id: str) -> bool:
    return any(f"{publisher}:{sequence}" == id for publisher, _, sequence in batch.identities())
