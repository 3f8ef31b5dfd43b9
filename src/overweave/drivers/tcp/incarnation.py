"""The incarnation of a broker: a number that grows with each start; with a state directory, even if the clock goes back."""

import contextlib
import os
import time
from pathlib import Path

from overweave.broker.control_plane import INCARNATIONS_MAX


def next_incarnation(directory: Path | None, broker: str, least: int = 0) -> int:
    """The milliseconds since 1970, but at least ``least`` and above the last one in ``directory`` (None: not persisted).

    Errors of the file are ignored, because neighbours know the last incarnation, too.
    """
    chosen = max(time.time_ns() // 1_000_000, least)
    if directory is None:
        return chosen
    file = directory / f"{''.join(c if c.isalnum() or c in '._-' else '-' for c in broker)}.incarnation"
    with contextlib.suppress(OSError, ValueError):
        last = int(file.read_text())
        chosen = max(chosen, last + 1 if last + 1 < INCARNATIONS_MAX else 0)
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".incarnation-new")
        with fresh.open("w") as out:
            out.write(f"{chosen}\n")
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    return chosen
