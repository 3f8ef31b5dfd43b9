"""File systems: this machine's, in plain Python, and those that Spark reaches (``hdfs``, ``s3a``, …), through Hadoop's classes.

Hadoop's are used through the Java of the running session, so that class path, settings and credentials are the ones with which
Spark reads and writes tables there. Files go by way of a file on this machine, which Java copies: no byte passes from Java to
Python. Whoever replaces a file does so in one step, as far as the file system can.
"""

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import unquote

from overweave.errors import InvalidInput, OverweaveError

#: The last component of a file's name while it is being written.
_NEW = ".new"


class Status(NamedTuple):
    """A file or a directory."""

    name: str
    is_dir: bool
    size: int
    modified_s: float


class FileSystem(Protocol):
    """What the pipeline does with files; paths are as the file system writes them."""

    def status(self, path: str) -> Status | None:
        """What is at a path; none: nothing."""

    def list(self, path: str) -> list[Status]:
        """What a directory has, by name; nothing where there is no directory."""

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        """All Parquet files below a directory with their sizes, as Spark finds them: hidden ones do not count."""

    def fetch(self, path: str, file: Path) -> None:
        """Copy a file to this machine."""

    def put(self, file: Path, path: str) -> None:
        """Replace a path by a copy of a local file, atomically."""

    def put_new(self, file: Path, path: str) -> bool:
        """Copy a file of this machine to a path, if there is nothing; whether it was so."""

    def remove(self, path: str) -> None:
        """Remove a file, or a directory with all that is in it, if it is there."""

    def make_directory(self, path: str) -> None:
        """Make a directory, and those above it, unless they are there."""


class LocalFiles:
    """Files of this machine."""

    def status(self, path: str) -> Status | None:
        """See `FileSystem.status`."""
        try:
            found = Path(path).stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return Status(Path(path).name, stat.S_ISDIR(found.st_mode), found.st_size, found.st_mtime)

    def list(self, path: str) -> list[Status]:
        """See `FileSystem.list`."""
        if not Path(path).is_dir():
            return []
        found = (self.status(str(child)) for child in sorted(Path(path).iterdir()))
        return [each for each in found if each is not None]

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        """See `FileSystem.walk`."""
        for folder, folders, names in os.walk(path, followlinks=True):
            folders[:] = [name for name in folders if name[0] != "." and (name[0] != "_" or "=" in name)]
            for name in names:
                if name.endswith(".parquet") and name[0] not in "._":
                    file = os.path.join(folder, name)  # noqa: PTH118
                    yield file, Path(file).stat().st_size

    def fetch(self, path: str, file: Path) -> None:
        """See `FileSystem.fetch`."""
        shutil.copyfile(path, file)

    def put(self, file: Path, path: str) -> None:
        """See `FileSystem.put`."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        hidden = target.with_name(f".{target.name}{_NEW}")
        shutil.copyfile(file, hidden)
        hidden.replace(target)

    def put_new(self, file: Path, path: str) -> bool:
        """See `FileSystem.put_new`."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        try:
            with Path(path).open("xb") as target:
                target.write(file.read_bytes())
        except FileExistsError:
            return False
        return True

    def remove(self, path: str) -> None:
        """See `FileSystem.remove`."""
        target = Path(path)
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target, ignore_errors=True)
        else:
            target.unlink(missing_ok=True)

    def make_directory(self, path: str) -> None:
        """See `FileSystem.make_directory`."""
        Path(path).mkdir(parents=True, exist_ok=True)


class HadoopFiles:
    """Files of a file system that Hadoop has a class for; one of these does for all."""

    def status(self, path: str) -> Status | None:
        """See `FileSystem.status`."""
        with _reached(path) as java:
            try:
                return _status(java.files(path).getFileStatus(java.path(path)))
            except java.error as error:
                if _is_missing(error):
                    return None
                raise

    def list(self, path: str) -> list[Status]:
        """See `FileSystem.list`."""
        with _reached(path) as java:
            try:
                return sorted(_status(each) for each in java.files(path).listStatus(java.path(path)))
            except java.error as error:
                if _is_missing(error):
                    return []
                raise

    def walk(self, path: str) -> Iterator[tuple[str, int]]:
        """See `FileSystem.walk`. Spark lists in parallel, and answers at once."""
        from pyspark.sql import SparkSession

        with _reached(path):
            reader = SparkSession.builder.getOrCreate().read.format("binaryFile").option("recursiveFileLookup", True)
            found = reader.option("pathGlobFilter", "*.parquet").load(escaped(path))
            # Spark reads no content unless asked; an empty file is no row.
            sizes = {row.path: row.length for row in found.select("path", "length").collect()}
            names = [unquote(name) for name in found.inputFiles()]
        yield from ((name, sizes.get(name, 0)) for name in names)

    def fetch(self, path: str, file: Path) -> None:
        """See `FileSystem.fetch`."""
        with _reached(path) as java:
            java.files(path).copyToLocalFile(False, java.path(path), java.path(f"file:{file}"), True)

    def put(self, file: Path, path: str) -> None:
        """See `FileSystem.put`: a rename that replaces, or, where a file appears only when it is complete, no rename at all."""
        folder, _, name = path.rpartition("/")
        hidden = f"{folder}/.{name}{_NEW}"
        with _reached(path) as java:
            files, source = java.files(path), java.path(f"file:{file}")
            try:
                context = java.context(path)
            except java.error:
                files.copyFromLocalFile(False, True, source, java.path(path))
                return
            files.copyFromLocalFile(False, True, source, java.path(hidden))
            context.rename(java.path(hidden), java.path(path), java.overwrite())

    def put_new(self, file: Path, path: str) -> bool:
        """See `FileSystem.put_new`."""
        with _reached(path) as java:
            try:
                java.files(path).copyFromLocalFile(False, False, java.path(f"file:{file}"), java.path(path))
            except java.error as error:
                if _kind(error) in ("PathExistsException", "FileAlreadyExistsException"):
                    return False
                raise
            return True

    def remove(self, path: str) -> None:
        """See `FileSystem.remove`."""
        with _reached(path) as java:
            java.files(path).delete(java.path(path), True)

    def make_directory(self, path: str) -> None:
        """See `FileSystem.make_directory`."""
        with _reached(path) as java:
            java.files(path).mkdirs(java.path(path))


def escaped(path: str) -> str:
    r"""A path as Spark reads it: it takes some characters for patterns.

    >>> print(escaped("/t/a[1]"))
    /t/a\[1\]
    """
    return "".join(f"\\{each}" if each in "{}[]*?\\" else each for each in path)


class _Java:
    """Hadoop's classes in the Java of the running session."""

    def __init__(self, context: Any) -> None:
        from py4j.protocol import Py4JJavaError

        self.error = Py4JJavaError
        self._gateway, self._hadoop = context._gateway, context._jvm.org.apache.hadoop.fs
        self._conf = context._jsc.hadoopConfiguration()

    def path(self, path: str) -> Any:
        return self._hadoop.Path(path)

    def files(self, path: str) -> Any:
        return self.path(path).getFileSystem(self._conf)

    def context(self, path: str) -> Any:
        return self._hadoop.FileContext.getFileContext(self.path(path).toUri(), self._conf)

    def overwrite(self) -> Any:
        rename = self._hadoop.Options.Rename
        options = self._gateway.new_array(rename, 1)
        options[0] = rename.OVERWRITE
        return options


@contextmanager
def _reached(path: str) -> Iterator[_Java]:
    """Errors of Java as one line that begins with the path."""
    from py4j.protocol import Py4JJavaError
    from pyspark import SparkContext
    from pyspark.errors import PySparkException

    from overweave.pipeline.spark_errors import first_line

    context = SparkContext._active_spark_context
    scheme = path.partition(":")[0]
    if context is None:
        raise OverweaveError(f"{path}: expected a Spark session with its Java on this machine to reach {scheme}, found none")
    try:
        yield _Java(context)
    except Py4JJavaError as error:
        said = first_line(error)
        if _kind(error) == "UnsupportedFileSystemException":
            raise InvalidInput(f"{path}: expected a file system that Spark knows, found {scheme!r}") from None
        if "ClassNotFoundException" in said:
            hint = "--conf spark.jars.packages=… brings a class along"
            raise InvalidInput(f"{path}: expected a file system that Spark can load, found: {said}; {hint}") from None
        raise OverweaveError(f"{path}: cannot be reached: {said}") from None
    except PySparkException as error:
        raise InvalidInput(f"{path}: {first_line(error)}") from None


def _status(found: Any) -> Status:
    return Status(found.getPath().getName(), found.isDirectory(), found.getLen(), found.getModificationTime() / 1000)


def _kind(error: Any) -> str:
    return str(error.java_exception.getClass().getSimpleName())


def _is_missing(error: Any) -> bool:
    return _kind(error) == "FileNotFoundException"
