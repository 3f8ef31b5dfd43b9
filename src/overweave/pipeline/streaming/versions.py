"""Versions of the tables of a directory, of which readers see the last complete one: a small file names it.

::

    DIR/current.json                        names the folder of the tables: {"tables": ".follow/versions/7"}
    DIR/.follow/versions/7/profiles, …      a follower's tables after batch 7, and what the next batch builds on
    DIR/.versions/3f09…/profiles, …         the tables of the batch job
    DIR/…/7/complete.json                   written last: the version is complete
    DIR/profiles -> .current/profiles, …    on this machine only, for other tools: links to the same tables

A version is written under a new name, and nothing is ever moved: object stores cannot. It counts when its mark is there, and
readers see it when the pointer names it, which is replaced in one step. So whoever asks `current` gets tables that are complete,
belong together, and stay for a while after they were replaced. See docs/decisions/0018.
"""

import shutil
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec

from overweave.errors import InvalidInput
from overweave.pipeline.locations import Location, LocationLike
from overweave.pipeline.locks import locked

#: So long a version that was replaced stays for those who still read it, and the last one of all until another comes.
KEPT_S = 60.0
POINTER = "current.json"
_MARK = "complete.json"
_HOME, _FOLLOWED, _BATCH = ".follow", ".follow/versions", ".versions"
#: Of links on this machine; before there was a pointer, `_FORMER` was what readers followed.
_LINK, _FORMER = ".current", ".follow/current"


class Pointer(msgspec.Struct, frozen=True):
    """Which tables are the current ones: their folder, below the directory."""

    tables: str


class Versions:
    """The versions below one directory. It is a value but for what is stored: any copy of it, anywhere, does the same."""

    def __init__(self, out: LocationLike, tables: Sequence[str]) -> None:
        given = Location.of(out)
        self.out = given if given.local is None else Location.of(given.local.absolute())
        self.home = self.out / _HOME
        self._tables = tuple(tables)

    @property
    def checkpoint(self) -> Location:
        """Where Spark keeps which files it has read."""
        return self.home / "checkpoint"

    @property
    def begun(self) -> Location:
        """What was asked for when following began."""
        return self.home / "begun.json"

    def path(self, number: int) -> Location | None:
        """The folder of a follower's version, if it is complete."""
        folder = self.out / _FOLLOWED / str(number)
        return folder if (folder / _MARK).is_file() else None

    def write(self, number: int, fill: Callable[[Location], None]) -> None:
        """Let ``fill`` write a follower's version into a folder, then let readers see it."""
        self._write(f"{_FOLLOWED}/{number}", fill)
        self.show(number)

    def write_batch(self, fill: Callable[[Location], None]) -> Location:
        """The same for tables that no follower goes on with; what a follower had begun is forgotten."""
        name = f"{_BATCH}/{uuid.uuid4().hex[:12]}"
        folder = self._write(name, fill)
        self._point(name)
        # Its tables stay as long as somebody may read them.
        for state in (self.begun, self.checkpoint):
            state.remove()
        return folder

    def begin(self) -> None:
        """Make room for a follower that begins anew: numbers of an earlier one would be taken for its own."""
        (self.out / _FOLLOWED).remove()
        self.checkpoint.remove()

    def show(self, number: int) -> None:
        """Have readers see a follower's version."""
        self._point(f"{_FOLLOWED}/{number}")

    def alone(self, doing: str = "follows a run") -> AbstractContextManager[None]:
        """Keep others from writing to the directory, as long as the body runs."""
        return locked(self.home / "lock", self.out, doing)

    def _write(self, name: str, fill: Callable[[Location], None]) -> Location:
        """What was left of one that failed is removed first."""
        folder = self.out / name
        folder.remove()
        folder.make_directory()
        try:
            fill(folder)
        except BaseException:
            folder.remove()
            raise
        (folder / _MARK).write_bytes(msgspec.json.encode({"tables": self._tables}))
        return folder

    def _point(self, name: str) -> None:
        """Have readers see the tables of a folder, and remove those that nobody needs: neither readers nor the next batch."""
        before = _pointer(self.out)
        (self.out / POINTER).write_bytes(msgspec.json.encode(Pointer(name)))
        if self.out.local is not None:
            _link_tables(self.out.local, name, self._tables)
        kept = {name, None if before is None else before.tables}
        for folder in (_FOLLOWED, _BATCH):
            for each in (self.out / folder).list():
                version = f"{folder}/{each.name}"
                if version not in kept and self._is_old(version):
                    (self.out / version).remove()

    def _is_old(self, version: str) -> bool:
        mark = (self.out / version / _MARK).status()
        return mark is None or mark.modified_s < time.time() - KEPT_S


def current(out: LocationLike) -> Location:
    """The folder of tables that belong together and stay as they are for a while: whoever reads a directory begins here.

    A directory without a pointer holds its tables itself, or is one of a follower of an earlier release.
    """
    directory = Location.of(out)
    pointer = _pointer(directory)
    if pointer is not None:
        return directory / pointer.tables
    former = None if directory.local is None else directory.local / _FORMER
    return directory if former is None or not former.exists() else Location.of(former.resolve())


def _pointer(directory: Location) -> Pointer | None:
    file = directory / POINTER
    if not file.is_file():
        return None
    try:
        return msgspec.json.decode(file.read_bytes(), type=Pointer)
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"{file}: expected which tables are the current ones, found: {error}") from None


def _link_tables(out: Path, name: str, tables: Sequence[str]) -> None:
    """Links for tools that know nothing of the pointer. A file system may have none."""
    try:
        _link(out / _LINK, Path(name))
        for table in tables:
            _link(out / table, Path(_LINK, table))
        for other in out.iterdir():
            # Of a table that is no longer written, or of another layout.
            if other.is_symlink() and not other.exists():
                other.unlink()
    except OSError:
        return


def _link(path: Path, target: Path) -> None:
    """Make ``path`` a link, in place of what was there."""
    if path.is_symlink() and path.readlink() == target:
        return
    new, old = path.with_name(f".{path.name}.new"), path.with_name(f".{path.name}.old")
    new.unlink(missing_ok=True)
    new.symlink_to(target)
    if path.is_dir() and not path.is_symlink():
        # A table of an earlier release; a folder cannot be replaced by a link in one step.
        path.rename(old)
    new.replace(path)
    shutil.rmtree(old, ignore_errors=True)
