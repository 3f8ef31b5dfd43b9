"""The incarnation of a broker: a number that is higher each time it starts, whatever its clock says, if the last one is kept."""

import contextlib
import os
import time
from pathlib import Path

from overweave.broker.control_plane import INCARNATIONS_MAX


def next_incarnation(directory: Path | None, broker: str, least: int = 0) -> int:
    """The milliseconds since 1970, but at least ``least`` and more than was kept in ``directory`` (None: nothing is).

    A number that cannot be read, or not be kept, is done without: neighbours know the last one, too.
    """
    chosen = max(time.time_ns() // 1_000_000, least)
    if directory is None:
        return chosen
    file = directory / f"{''.join(c if c.isalnum() or c in '._-' else '-' for c in broker)}.incarnation"
    with contextlib.suppress(OSError, ValueError):
        kept = int(file.read_text())
        chosen = max(chosen, kept + 1 if kept < INCARNATIONS_MAX else 0)
    with contextlib.suppress(OSError):
        directory.mkdir(parents=True, exist_ok=True)
        fresh = file.with_suffix(".incarnation-new")
        with fresh.open("w") as out:
            out.write(f"{chosen}\n")
            out.flush()
            os.fsync(out.fileno())
        fresh.replace(file)
    return chosen
