"""Versions: what a follower wrote, one folder for each batch, of which readers see the last complete one.

::

    DIR/profiles -> .follow/current/profiles, and so on for each table
    DIR/.follow/current -> versions/7
    DIR/.follow/versions/7/profiles, …      the tables after batch 7, and what the next batch builds on
    DIR/.follow/checkpoint                  Spark's: which files it has read
    DIR/.follow/begun.json                  what was asked for when it began

A version is written under a hidden name and renamed when it is complete, and a link cannot be half moved: whoever reads ``DIR``
finds tables that are complete and belong together. Who reads for long follows the links first (`current`): versions stay for
a while after they were replaced.
"""

import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from overweave.errors import OverweaveError

#: So long a version that was replaced stays for those who still read it.
KEPT_S = 60.0
_HOME = ".follow"


class Versions:
    """The versions below one directory. It is a value but for what is on the disk: any copy of it, anywhere, does the same."""

    def __init__(self, out: Path, tables: Sequence[str]) -> None:
        self.out = out.absolute()
        self.home = self.out / _HOME
        self._folder = self.home / "versions"
        self._tables = tuple(tables)

    @property
    def checkpoint(self) -> Path:
        """Where Spark keeps which files it has read."""
        return self.home / "checkpoint"

    def path(self, number: int) -> Path | None:
        """The folder of a version, if it is complete."""
        path = self._folder / str(number)
        return path if path.is_dir() else None

    def write(self, number: int, fill: Callable[[Path], None]) -> None:
        """Let ``fill`` write a version into a folder, then let readers see it; what was left by one that failed is removed."""
        hidden = self._folder / f".{number}"
        shutil.rmtree(hidden, ignore_errors=True)
        hidden.mkdir(parents=True)
        fill(hidden)
        hidden.rename(self._folder / str(number))
        self.show(number)

    def show(self, number: int) -> None:
        """Have readers see a version, and remove those that nobody needs: neither readers nor the next batch."""
        _link(self.home / "current", Path("versions", str(number)))
        for table in self._tables:
            _link(self.out / table, Path(_HOME, "current", table))
        os.utime(self._folder / str(number))
        for path in self._folder.iterdir():
            old = path.name.isdecimal() and int(path.name) < number - 1 and path.stat().st_mtime < time.time() - KEPT_S
            if old:
                shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other followers away from the directory, as long as the body runs."""
        self.home.mkdir(parents=True, exist_ok=True)
        with (self.home / "lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise OverweaveError(f"{self.out}: another process follows a run there") from None
            yield


def current(out: Path) -> Path:
    """The folder of tables that belong together and stay as they are for a while, followed or not."""
    link = out / _HOME / "current"
    return link.resolve() if link.exists() else out


def _link(path: Path, target: Path) -> None:
    """Make ``path`` a link, in place of what was there."""
    if path.is_symlink() and path.readlink() == target:
        return
    if path.is_dir() and not path.is_symlink():
        # A table of the batch job; a folder cannot be replaced by a link in one step.
        shutil.rmtree(path)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    new.replace(path)
