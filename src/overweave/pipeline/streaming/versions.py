"""Versions of the tables of a directory. Readers see the last complete one; a pointer file names it.

::

    DIR/current.json                        names the folder of the tables: {"tables": ".follow/versions/7"}
    DIR/.follow/versions/7/profiles, …      a follower's tables and state after batch 7
    DIR/.versions/3f09…/profiles, …         the tables of the batch job
    DIR/…/7/complete.json                   written last: the version is complete
    DIR/profiles -> .current/profiles, …    on this machine only, for other tools: links to the same tables

A version is written under a new name and never renamed: object stores cannot rename atomically. It is complete when its marker
exists, and visible when the pointer names it; the pointer is replaced atomically. So `current` returns complete and consistent
tables, which remain readable for `KEPT_S` after they were replaced. See docs/decisions/0018.
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

#: Retention of a replaced version for its readers.
KEPT_S = 60.0
POINTER = "current.json"
_MARK = "complete.json"
_MANIFEST, _FORMER_MANIFEST = "manifest.json", "begun.json"
_HOME, _FOLLOWED, _BATCH = ".follow", ".follow/versions", ".versions"
#: Symbolic links on local file systems; `_FORMER` is the link of releases without a pointer.
_LINK, _FORMER = ".current", ".follow/current"


class Pointer(msgspec.Struct, frozen=True):
    """The pointer to the current tables: a folder below the directory."""

    tables: str


class Versions:
    """The versions below one directory. All state is in the directory, so copies in other processes are equivalent."""

    def __init__(self, out: LocationLike, tables: Sequence[str]) -> None:
        given = Location.of(out)
        self.out = given if given.local is None else Location.of(given.local.absolute())
        self.home = self.out / _HOME
        self._tables = tuple(tables)

    @property
    def checkpoint(self) -> Location:
        """The checkpoint of Spark: which files were read."""
        return self.home / "checkpoint"

    @property
    def manifest(self) -> Location:
        """The parameters of the follower; the file name of earlier releases is still read."""
        former = self.home / _FORMER_MANIFEST
        return former if former.exists() else self.home / _MANIFEST

    def path(self, number: int) -> Location | None:
        """The folder of a follower's version, if it is complete."""
        folder = self.out / _FOLLOWED / str(number)
        return folder if (folder / _MARK).is_file() else None

    def write(self, number: int, fill: Callable[[Location], None]) -> None:
        """Have ``fill`` write a follower's version into a folder, then publish it."""
        self._write(f"{_FOLLOWED}/{number}", fill)
        self.publish(number)

    def write_batch(self, fill: Callable[[Location], None]) -> Location:
        """Write and publish a version of the batch job; the state of a follower is discarded."""
        name = f"{_BATCH}/{uuid.uuid4().hex[:12]}"
        folder = self._write(name, fill)
        self._point(name)
        # The follower's tables are removed later: they may have readers.
        for state in (self.home / _MANIFEST, self.home / _FORMER_MANIFEST, self.checkpoint):
            state.remove()
        return folder

    def reset(self) -> None:
        """Remove the versions and the checkpoint of an earlier follower, whose batch numbers would clash."""
        (self.out / _FOLLOWED).remove()
        self.checkpoint.remove()

    def publish(self, number: int) -> None:
        """Make a follower's version the current one."""
        self._point(f"{_FOLLOWED}/{number}")

    def lock(self, doing: str = "follows a run") -> AbstractContextManager[None]:
        """Exclusive write access to the directory."""
        return locked(self.home / "lock", self.out, doing)

    def _write(self, name: str, fill: Callable[[Location], None]) -> Location:
        """Write a version; remains of a failed attempt are removed first."""
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
        """Make a folder the current version, then remove versions without readers or a next batch."""
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
    """The folder of the current tables. Every reader of a directory starts here.

    A directory without a pointer holds its tables itself, or was written by a follower of an earlier release.
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
        raise InvalidInput(f"{file}: expected a pointer to the current tables, found: {error}") from None


def _link_tables(out: Path, name: str, tables: Sequence[str]) -> None:
    """Links for tools that do not read the pointer; optional, as not every file system has links."""
    try:
        _link(out / _LINK, Path(name))
        for table in tables:
            _link(out / table, Path(_LINK, table))
        for other in out.iterdir():
            # A table of an earlier release or layout.
            if other.is_symlink() and not other.exists():
                other.unlink()
    except OSError:
        return


def _link(path: Path, target: Path) -> None:
    """Replace ``path`` by a link."""
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
