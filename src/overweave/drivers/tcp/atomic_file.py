"""Files that are written at once or not at all, and are never more readable than they should be."""

import contextlib
import os
import tempfile
from pathlib import Path


def mode_of(path: Path) -> int:
    """The permissions of a file."""
    return path.stat().st_mode & 0o777


def write_atomically(path: Path, content: bytes, mode: int) -> None:
    """Write a file, or replace it, with these permissions. A reader finds the file before or after, whatever fails."""
    target = path.resolve()
    file, name = tempfile.mkstemp(prefix=f".{target.name}.", dir=target.parent)
    part = Path(name)
    try:
        with os.fdopen(file, "wb") as stream:
            stream.write(content)
            os.fchmod(stream.fileno(), mode)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    with contextlib.suppress(OSError):
        _sync_directory(target.parent)


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
