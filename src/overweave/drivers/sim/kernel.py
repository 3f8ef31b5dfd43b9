"""The kernel: actions with their arguments, by time and then in the order in which they were planned.

Same actions in, same order out. All actions of one time are together, and the heap is one of times: on a network whose links
take equally long, much happens at the same time.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush
from typing import Any

Action = Callable[[Any], None]
#: So many more objects than were freed come before the garbage collector looks at them.
_SELDOM = 50_000


@contextmanager
def nothing_dies() -> Iterator[None]:
    """Spare the garbage collector what is there, and let it look seldom at what comes and goes: little of it forms circles.

    To look through a loaded network took a quarter of the time, and through what is under way a twentieth.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
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

    __slots__ = ("_planned", "_times_s", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        #: The times at which something is planned, a heap, and what it is, in the order in which it was planned.
        self._times_s: list[float] = []
        self._planned: dict[float, list[tuple[Action, Any]]] = {}

    def at(self, time_s: float, action: Action, argument: Any = None) -> None:
        """Call ``action(argument)`` at a time, after all that was put there before."""
        if time_s < self.now_s:
            time_s = self.now_s
        planned = self._planned.get(time_s)
        if planned is not None:
            planned.append((action, argument))
        else:
            self._planned[time_s] = [(action, argument)]
            heappush(self._times_s, time_s)

    def run(self, until_s: float = float("inf")) -> None:
        """Go on until nothing is left to do, or until a time."""
        times_s = self._times_s
        while times_s and times_s[0] <= until_s:
            self.now_s = now_s = times_s[0]
            # What is planned for now meanwhile comes to the end of the same list.
            for action, argument in self._planned[now_s]:
                action(argument)
            del self._planned[heappop(times_s)]
        if until_s != float("inf"):
            self.now_s = until_s

    def pending(self) -> int:
        """How many actions are planned and not done."""
        return sum(map(len, self._planned.values()))
