"""Absence: how a process notices that it was paused (SIGSTOP, a suspended machine), and has heard nobody for that reason.

After a pause event loops run timers that are overdue before they read what has arrived meanwhile. Whoever judges by the clock
that a peer is silent, or has not come back, has to give it the full time again.
"""

import asyncio
import time

#: A timer that is so late shows that the process was paused, or as busy.
LATE_S = 1.0
#: The clock that goes on while the machine is suspended, where there is one; timers of event loops stand still then.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime_s() -> float:
    """Seconds since the machine was started, those in which it was suspended included; it never goes back."""
    return time.clock_gettime(_CLOCK)


def is_late(due_s: float) -> bool:
    """Whether it is so long after a time of the event loop's clock that the process was paused."""
    return asyncio.get_running_loop().time() - due_s > LATE_S


async def sleep(delay_s: float) -> bool:
    """Sleep; whether it took so long that the process was paused."""
    due_s = uptime_s() + delay_s
    await asyncio.sleep(delay_s)
    return uptime_s() - due_s > LATE_S
