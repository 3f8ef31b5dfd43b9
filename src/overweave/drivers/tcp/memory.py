"""The memory of a broker's process: what frames of up to two megabytes take and give back all the time stays with the process.

Left to itself, the C library returns the memory of a long frame to the system and asks for it again with the next one, and the
system clears every page anew. In a chain of ten brokers that took a tenth of all that they spent on a message.
"""

import ctypes
import sys

#: The options of glibc's ``mallopt``: how much may lie unused, and from which size on something is returned at once.
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3
_UNUSED_BYTES, _LARGE_BYTES = 8 << 20, 2 << 20


def keep_freed_memory() -> bool:
    """Let a few megabytes of freed memory stay with this process; whether the C library takes such wishes (glibc does)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    return mallopt is not None and bool(mallopt(_TRIM_THRESHOLD, _UNUSED_BYTES) and mallopt(_MMAP_THRESHOLD, _LARGE_BYTES))
