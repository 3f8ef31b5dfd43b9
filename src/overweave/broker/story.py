"""The story of a message: the last steps of a broker, by message id."""

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from overweave.batches.base import Batch
from overweave.contract.records import Decision
from overweave.language.generations import stable_id
from overweave.language.messages import Control


class Step(NamedTuple):
    """One step: its time, the kind of message, its sender, and the next hops of a publication.

    Of a decision: ``decide`` with the decision, and the module.
    """

    at_s: float
    what: str
    peer: str
    to: tuple[str, ...] = ()


class Story:
    """The last ``length`` steps. Batches are stored as they are, and searched on demand."""

    def __init__(self, length: int) -> None:
        self._applied: deque[tuple[float, str, Control]] = deque(maxlen=length)
        self._routed: deque[tuple[float, str, Batch, Sequence[tuple[str | None, Batch]]]] = deque(maxlen=length)
        self._decided: deque[Decision] = deque(maxlen=length)
        self.length = length

    def applied(self, now_s: float, peer: str, message: Control) -> None:
        """A control message of a peer was applied."""
        self._applied.append((now_s, peer, message))

    def routed(self, now_s: float, peer: str, batch: Batch, forwards: Sequence[tuple[str | None, Batch]]) -> None:
        """Publications were routed."""
        self._routed.append((now_s, peer, batch, forwards))

    def decided(self, decision: Decision) -> None:
        """A module has decided."""
        self._decided.append(decision)

    def of(self, id: str) -> list[Step]:
        """All steps of one message, by its stable id, and the decisions about one subject, in order."""
        applied = [(at_s, peer, message) for at_s, peer, message in self._applied if stable_id(message.id) == id]
        steps = [Step(at_s, type(message).__name__.lower(), peer) for at_s, peer, message in applied]
        for at_s, peer, batch, forwards in self._routed:
            if _holds(batch, id):
                to = tuple(to for to, some in forwards if to is not None and _holds(some, id))
                steps.append(Step(at_s, "publish", peer, to))
        steps += [Step(each.at_s, f"decide {each.what}", each.module) for each in self._decided if each.about == id]
        return sorted(steps)


def _holds(batch: Batch, id: str) -> bool:
    return any(f"{publisher}:{sequence}" == id for publisher, _, sequence in batch.identities())
