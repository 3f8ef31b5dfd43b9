"""Names and places of traces, without the libraries that write tables."""

import re
from pathlib import Path

from overweave.errors import InvalidInput

#: The folder of a run's table ``statements``; readers of tables ignore names that begin with an underscore.
STATEMENTS = "_statements"
#: The folder of a run's table ``decisions``.
DECISIONS = "_decisions"


def check_directory(directory: Path) -> None:
    """Refuse a path that cannot become a directory for traces, before any long work."""
    taken = next((path for path in (directory, *directory.parents) if path.exists()), None)
    if taken is not None and not taken.is_dir():
        raise InvalidInput(f"{taken}: expected a directory for traces, found a file")


def run_name(text: str) -> str:
    """``text`` as a name that can be part of a folder's name anywhere.

    >>> run_name("my scenario/1")
    'my-scenario-1'
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text) or "run"
