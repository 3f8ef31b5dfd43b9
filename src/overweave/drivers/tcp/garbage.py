"""Garbage collection without long pauses: what survives a long full collection is not looked at again.

A full collection looks at every container in the process. With 100,000 subscriptions that takes most of a second, in which
a broker does nothing else, and it finds nothing: tables are freed by reference counts. So survivors are frozen (`gc.freeze`).
The price is that cycles among them are never freed; ours and asyncio's are broken by hand when a connection ends.
"""

import gc
import time

#: A full collection that takes longer freezes what survives it.
LONG_S = 0.005
#: Full collections are more frequent than by default (10), so that each has less to look at.
_OLD = 3


def freeze_survivors() -> None:
    """From now on, freeze what survives long collections, and now what is there: kernels and modules."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*gc.get_threshold()[:2], _OLD)
    gc.callbacks.append(_Watch())


class _Watch:
    """Times full collections."""

    def __init__(self) -> None:
        self._start_s = 0.0

    def __call__(self, phase: str, info: dict[str, int]) -> None:
        if info["generation"] < 2:
            return
        if phase == "start":
            self._start_s = time.perf_counter()
        elif time.perf_counter() - self._start_s > LONG_S:
            gc.freeze()
