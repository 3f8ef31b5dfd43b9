"""The scheduler: actions with their arguments, by time and then in the order in which they were planned.

Same actions in, same order out. All actions of one time are together, and the heap is one of times: on a network whose links
have equal delays, many actions have the same time.
"""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from heapq import heappop, heappush, heapreplace
from typing import Any

Action = Callable[[Any], None]
#: New objects, freed ones not counted, before the garbage collector runs.
_SELDOM = 50_000
_NEVER_S = float("inf")


@contextmanager
def gc_frozen() -> Iterator[None]:
    """Freeze present objects for the garbage collector, and run it seldom on new ones: few of them form cycles.

    Collecting a loaded network took a quarter of the time, and publications in flight a twentieth.
    """
    before = gc.get_threshold()
    gc.freeze()
    gc.set_threshold(_SELDOM, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
        gc.unfreeze()


class Scheduler:
    """Simulated time.

    >>> scheduler, said = Scheduler(), []
    >>> scheduler.at(2.0, said.append, "b")
    >>> scheduler.at(1.0, said.append, "a")
    >>> scheduler.run()
    >>> said, scheduler.now_s
    (['a', 'b'], 2.0)
    """

    __slots__ = ("_limit_s", "_planned", "_ticks", "_times_s", "now_s")

    def __init__(self) -> None:
        self.now_s = 0.0
        #: The times of planned actions, a heap, and the actions of each, in the order in which they were planned.
        self._times_s: list[float] = []
        self._planned: dict[float, list[tuple[Action, Any]]] = {}
        #: Periodic actions, a heap by time and order, and the time up to which other actions may run before the first of them.
        self._ticks: list[tuple[float, int, float, Action]] = []
        self._limit_s = _NEVER_S

    def at(self, time_s: float, action: Action, argument: Any = None) -> None:
        """Call ``action(argument)`` at a time, after all that was planned for it before."""
        if time_s < self.now_s:
            time_s = self.now_s
        planned = self._planned.get(time_s)
        if planned is not None:
            planned.append((action, argument))
        else:
            self._planned[time_s] = [(action, argument)]
            heappush(self._times_s, time_s)

    def every(self, period_s: float, action: Action) -> None:
        """Call ``action(None)`` every period from now on, after all else of the same time.

        Periodic actions alone do not keep `run` going: a network with nothing else to do is quiet.
        """
        heappush(self._ticks, (self.now_s + period_s, len(self._ticks), period_s, action))
        self._limit_s = min(self._limit_s, self._ticks[0][0])

    def run(self, until_s: float = _NEVER_S) -> None:
        """Run until nothing is left to do, or until a time."""
        while True:
            tick_s = self._ticks[0][0] if self._ticks else _NEVER_S
            self._limit_s = min(until_s, tick_s)
            self._run_actions()
            if self._ticks and self._ticks[0][0] <= until_s and (self._times_s or until_s != _NEVER_S):
                self._tick()
            elif not self._times_s or self._times_s[0] > until_s:
                break
        if until_s != _NEVER_S:
            self.now_s = until_s

    def _run_actions(self) -> None:
        """Run planned actions up to the limit, which a new periodic action may lower."""
        times_s = self._times_s
        while times_s and times_s[0] <= self._limit_s:
            self.now_s = now_s = times_s[0]
            # Actions that are planned for now meanwhile are appended to the same list.
            for action, argument in self._planned[now_s]:
                action(argument)
            del self._planned[heappop(times_s)]

    def _tick(self) -> None:
        self.now_s, number, period_s, action = self._ticks[0]
        heapreplace(self._ticks, (self.now_s + period_s, number, period_s, action))
        action(None)

    def pending(self) -> int:
        """How many actions are planned and not done."""
        return sum(map(len, self._planned.values()))
