"""The memory of a broker's process: its size, and the memory of long frames, which stays with the process.

Frames of up to two megabytes come and go all the time. Left to itself, the C library
returns the memory of a long frame to the system and asks for it again with the next one, and the
system clears every page again. In a chain of ten brokers that took a tenth of all that they spent on a message.
"""

import ctypes
import os
import sys
from pathlib import Path

#: The options of glibc's ``mallopt``: how much may lie unused, and from which size on something is returned at once.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_UNUSED_BYTES, _LARGE_BYTES = 8 << 20, 2 << 20


def keep_freed_memory() -> bool:
    """Let a few megabytes of freed memory stay with this process; whether the C library takes such wishes (glibc does)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and bool(mallopt(_TRIM_THRESHOLD, _UNUSED_BYTES) and mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))


def resident_bytes() -> int | None:
    """The resident memory of this process; None where the system does not report it."""
    try:
        return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def physical_bytes() -> int | None:
    """The memory of this machine; None where the system does not report it."""
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return None
