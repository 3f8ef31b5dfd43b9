"""The kernel: a heap of (time, sequence, action, argument). Same actions in, same order out."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]


@contextmanager
def nothing_dies() -> Iterator[None]:
    """Spare the garbage collector what is there: a loaded network stays, and looking through it took a quarter of the time."""
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Kernel:
    """Simulated time.

    >>> kernel, said = Kernel(), []
    >>> kernel.at(2.0, said.append, "b")
    >>> kernel.at(1.0, said.append, "a")
    >>> kernel.run()
    >>> said, kernel.now_s
    (['a', 'b'], 2.0)
    """

    __slots__ = ("_heap", "count", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Action, Any]] = []
        #: How many actions have been planned.
        self.count = 0

    def at(self, time_s: float, action: Action, argument: Any = None) -> None:
        """Call ``action(argument)`` at a time, after all that was put there before."""
        self.count = count = self.count + 1
        heappush(self._heap, (time_s if time_s > self.now_s else self.now_s, count, action, argument))

    def run(self, until_s: float = float("inf")) -> None:
        """Go on until nothing is left to do, or until a time."""
        heap = self._heap
        while heap and heap[0][0] <= until_s:
            self.now_s, _, action, argument = heappop(heap)
            action(argument)
        if until_s != float("inf"):
            self.now_s = until_s

    def pending(self) -> int:
        """How many actions are planned and not done."""
        return len(self._heap)
