"""Locations: where tables and files are, as people write it, and what can be done there.

A location is a plain path or ``file:///…``, which are this machine's, or an address such as ``hdfs://…`` or ``s3a://…``, which is
reached through Spark's Java (`overweave.pipeline.filesystems`). A plain path is never one of another file system, whatever a
cluster's default is: Spark always gets the scheme.
"""

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from overweave.errors import InvalidInput
from overweave.pipeline.filesystems import FileSystem, HadoopFiles, LocalFiles, Status, escaped

#: One letter and a colon is no scheme, and a name with a colon is one only with a slash behind it.
_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):/")
_LOCAL, _HADOOP = LocalFiles(), HadoopFiles()


@dataclass(frozen=True, order=True)
class Location:
    """A file or directory, there or not; made by `Location.of`."""

    text: str

    @classmethod
    def of(cls, where: "LocationLike") -> "Location":
        """The location that a text, a path or a location names.

        >>> Location.of("traces/"), Location.of("s3a://bucket/traces/")
        (Location(text='traces'), Location(text='s3a://bucket/traces'))
        >>> Location.of(Path("s3a://bucket/traces"))
        Traceback (most recent call last):
        overweave.errors.InvalidInput: s3a:/bucket/traces: expected an address as text, found a path, which joins slashes
        """
        if isinstance(where, Location):
            return where
        scheme = _SCHEME.match(str(where))
        if scheme is None:
            return cls(str(Path(where)))
        if isinstance(where, Path):
            raise InvalidInput(f"{where}: expected an address as text, found a path, which joins slashes")
        if scheme[1] == "file" and re.match(r"file:(/|///)(?!/)", where) is None:
            raise InvalidInput(f"{where}: expected file:///PATH, found a host, or no path")
        head, tail = re.match(r"([^/]*:/+[^/]*)(.*)", where).groups()  # type: ignore[union-attr]
        return cls(head + re.sub("/+", "/", tail).rstrip("/"))

    @property
    def local(self) -> Path | None:
        """The path, if it is one of this machine."""
        if self.text.startswith("file:/"):
            return Path("/" + self.text.removeprefix("file:").lstrip("/"))
        return None if _SCHEME.match(self.text) else Path(self.text)

    @property
    def is_remote(self) -> bool:
        """Whether only Spark's Java can reach it."""
        return self.local is None

    @property
    def address(self) -> str:
        """As Spark writes to it: with its scheme."""
        return self.text if self.local is None else f"file:{self.local.absolute()}"

    @property
    def pattern(self) -> str:
        """As Spark reads from it, nothing in it being a pattern."""
        return escaped(self.address)

    @property
    def name(self) -> str:
        """The last part of it."""
        return self.text.rpartition("/")[2] if self.local is None else self.local.name

    @property
    def suffix(self) -> str:
        """What the name ends in, with the dot."""
        return Path(self.name).suffix

    @property
    def parent(self) -> "Location":
        """The directory that contains it.

        >>> str(Location.of("hdfs://host/a/plan.json").parent / "plan.html")
        'hdfs://host/a/plan.html'
        """
        return Location(self.text.rpartition("/")[0] if self.is_remote or "file:" in self.text else str(Path(self.text).parent))

    def __truediv__(self, name: str) -> "Location":
        return Location(str(Path(self.text, name)) if _SCHEME.match(self.text) is None else f"{self.text.rstrip('/')}/{name}")

    def __str__(self) -> str:
        return self.text

    @property
    def path(self) -> str:
        """As its file system writes it."""
        return self.text if self.local is None else str(self.local)

    @property
    def files(self) -> FileSystem:
        """The file system that it is on."""
        return _HADOOP if self.is_remote else _LOCAL

    def status(self) -> Status | None:
        """What is there; none: nothing."""
        return self.files.status(self.path)

    def exists(self) -> bool:
        """Whether there is anything."""
        return self.status() is not None

    def is_dir(self) -> bool:
        """Whether there is a directory."""
        found = self.status()
        return found is not None and found.is_dir

    def is_file(self) -> bool:
        """Whether there is a file."""
        found = self.status()
        return found is not None and not found.is_dir

    def list(self) -> list[Status]:
        """What a directory has, by name."""
        return self.files.list(self.path)

    def walk(self) -> Iterator[tuple[str, int]]:
        """All Parquet files below a directory with their sizes, as Spark finds them."""
        return self.files.walk(self.path)

    def read_bytes(self) -> bytes:
        """All that a file has."""
        with self.fetched() as file:
            return file.read_bytes()

    def write_bytes(self, data: bytes) -> None:
        """Replace a file, atomically."""
        with tempfile.NamedTemporaryFile() as file:
            file.write(data)
            file.flush()
            self.put(Path(file.name))

    def put(self, file: Path) -> None:
        """Replace it by a copy of a local file, atomically."""
        self.files.put(file, self.path)

    def put_new(self, file: Path) -> bool:
        """Have a copy of a file of this machine there, if there is nothing; whether it was so."""
        return self.files.put_new(file, self.path)

    @contextmanager
    def fetched(self) -> Iterator[Path]:
        """The file, on this machine, as long as the body runs; a local one is where it is."""
        if self.local is not None:
            yield self.local
            return
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, self.name)
            self.files.fetch(self.path, file)
            yield file

    def remove(self) -> None:
        """Remove it, with all that is in it."""
        self.files.remove(self.path)

    def make_directory(self) -> None:
        """Make a directory, and those above it."""
        self.files.make_directory(self.path)


#: What functions take for a location.
LocationLike = Location | Path | str
