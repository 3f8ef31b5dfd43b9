"""Garbage collection without long pauses: survivors of a long full collection are not scanned again.

A full collection scans every container in the process. With 100,000 subscriptions that blocks a broker for most of a second, and
finds nothing: tables are freed by reference counts. So survivors are frozen (`gc.freeze`). The price is that cycles among them
are never freed; those of connections are broken explicitly when a connection ends.
"""

import gc
import time

#: A full collection that takes longer freezes its survivors.
LONG_S = 0.005
#: Full collections are more frequent than by default (10), so that each scans less.
_OLD = 3


def freeze_survivors() -> None:
    """Freeze all present objects (kernels and modules) now, and survivors of long collections from now on."""
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
