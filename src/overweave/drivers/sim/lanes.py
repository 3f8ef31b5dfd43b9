"""Lanes: the order in which a broker serves waiting frames. Urgent frames go first; each lane is first in, first out.

Service is not preempted. Numbered frames of one session never overtake each other, because the receiver discards a frame with
another number than the next one. An urgent frame that is numbered therefore waits while data of its session waits before it.
An `UrgentFrame` has no number, and overtakes the data of its own session too.
"""

from collections import Counter, deque
from collections.abc import Iterator
from typing import Generic, TypeVar

from overweave.contract.frames import BatchFrame, ControlFrame, Frame
from overweave.language.headers import Priority

_Session = TypeVar("_Session")


def is_urgent(frame: Frame) -> bool:
    """Whether a frame goes before data: acknowledgements, hellos, control messages, urgent and other control publications."""
    return not isinstance(frame, BatchFrame) or frame.batch.priority() is Priority.CONTROL


def is_numbered(frame: Frame) -> bool:
    """Whether a frame has its place in the order of a session."""
    return isinstance(frame, ControlFrame | BatchFrame)


class LaneQueue(Generic[_Session]):
    """The frames that wait for one server, with their sessions."""

    __slots__ = ("_data", "_data_of", "_urgent")

    def __init__(self) -> None:
        self._urgent: deque[tuple[_Session, Frame]] = deque()
        self._data: deque[tuple[_Session, Frame]] = deque()
        #: How many frames of each session are in the data lane.
        self._data_of: Counter[_Session] = Counter()

    def __len__(self) -> int:
        return len(self._urgent) + len(self._data)

    def __iter__(self) -> Iterator[tuple[_Session, Frame]]:
        yield from self._urgent
        yield from self._data

    def put(self, session: _Session, frame: Frame) -> None:
        """Let a frame wait in its lane."""
        if is_urgent(frame) and not (is_numbered(frame) and self._data_of[session]):
            self._urgent.append((session, frame))
        else:
            self._data.append((session, frame))
            self._data_of[session] += 1

    def pop(self) -> tuple[_Session, Frame] | None:
        """The next frame; None if none waits."""
        if self._urgent:
            return self._urgent.popleft()
        if not self._data:
            return None
        job = self._data.popleft()
        self._data_of[job[0]] -= 1
        if not self._data_of[job[0]]:
            del self._data_of[job[0]]
        return job
