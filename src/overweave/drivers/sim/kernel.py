"""The kernel: a heap of (time, sequence, action). Same actions in, same order out."""

import gc
import heapq
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Action = Callable[[], None]


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
    >>> kernel.at(2.0, lambda: said.append(("b", kernel.now_s)))
    >>> kernel.at(1.0, lambda: said.append(("a", kernel.now_s)))
    >>> kernel.run()
    >>> said
    [('a', 1.0), ('b', 2.0)]
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._heap: list[tuple[float, int, Action]] = []
        self._count = 0
        #: How many actions have been done.
        self.events = 0

    def at(self, time_s: float, action: Action) -> None:
        """Do ``action`` at a time, after all that was put there before."""
        self._count += 1
        heapq.heappush(self._heap, (max(time_s, self.now_s), self._count, action))

    def run(self, until_s: float = float("inf")) -> None:
        """Go on until nothing is left to do, or until a time."""
        heap, pop = self._heap, heapq.heappop
        while heap and heap[0][0] <= until_s:
            self.now_s, _, action = pop(heap)
            self.events += 1
            action()
        if until_s != float("inf"):
            self.now_s = until_s
