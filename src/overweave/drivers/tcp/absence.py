"""Absence: detection of pauses of this process (SIGSTOP, a suspended machine), in which it received nothing.

After a pause, event loops run overdue timers before they read messages that arrived meanwhile. So a timeout for a silent or
disconnected peer must start again.
"""

import asyncio
import time

#: The delay of a timer that shows that the process was paused, or overloaded.
LATE_S = 1.0
#: The clock that includes suspended time, where there is one; timers of event loops do not.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def uptime_s() -> float:
    """Seconds since the machine was started, suspended time included; it never goes back."""
    return time.clock_gettime(_CLOCK)


def is_late(due_s: float) -> bool:
    """Whether a timer is so late, by the event loop's clock, that the process was paused."""
    return asyncio.get_running_loop().time() - due_s > LATE_S


async def sleep(delay_s: float) -> bool:
    """Sleep; whether the process was paused meanwhile."""
    due_s = uptime_s() + delay_s
    await asyncio.sleep(delay_s)
    return uptime_s() - due_s > LATE_S
