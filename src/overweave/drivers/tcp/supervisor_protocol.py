"""The local protocol of ``overweave up``: one request and one reply per connection, each a line of JSON, over a Unix socket.

The socket is in ``$XDG_RUNTIME_DIR`` or the directory for temporary files, or in ``/tmp`` where that is too long a path.
Its name follows from the user and the absolute path of the network file. Only that user can connect to it. Its path is also
in a file beside the network file: other commands may run in another environment, as under ``sudo`` or ``cron``.
"""

import hashlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec

from overweave.errors import OverweaveError

#: No line is longer.
LINE_BYTES_MAX = 1 << 20
#: The longest path of a Unix socket on all systems, and the directory in place of one that makes it longer.
_SOCKET_PATH_BYTES_MAX, _SHORT_DIRECTORY = 103, "/tmp"


class SupervisorError(OverweaveError):
    """No supervisor runs a network file, or it has rejected a request."""


class ListProcesses(msgspec.Struct, frozen=True, tag="list"):
    """Ask for the broker processes."""


class SupervisorStatus(msgspec.Struct, frozen=True, tag="status"):
    """Ask for the supervisor itself and the broker processes."""


class StartProcess(msgspec.Struct, frozen=True, tag="start"):
    """Start a broker: one of the overlay in the network file, or one that joins the network at a URL."""

    broker: str
    join: str | None = None
    #: Where it listens; None: by the network file.
    listen: str | None = None


class StopProcess(msgspec.Struct, frozen=True, tag="stop"):
    """Stop a broker, after a drain of its clients with this time limit."""

    broker: str
    drain_s: float = 0.0


SupervisorRequest = ListProcesses | SupervisorStatus | StartProcess | StopProcess


class ProcessEntry(msgspec.Struct, frozen=True):
    """A broker process; ``state`` is starting, ready or stopping."""

    broker: str
    pid: int
    state: str


class SupervisorReply(msgspec.Struct, frozen=True):
    """The result of a request: the broker processes after it, by name, and the ``error`` if it was rejected."""

    processes: tuple[ProcessEntry, ...] = ()
    error: str | None = None
    #: The supervisor's process and network file.
    pid: int = 0
    file: str = ""


def record_path(file: Path) -> Path:
    """The file that names the socket of the supervisor of a network file while it runs."""
    path = file.resolve()
    return path.with_name(f".{path.name}.up")


def recorded_socket(file: Path) -> Path | None:
    """The socket that a supervisor of a network file has recorded, if it is there and belongs to this user."""
    try:
        path = Path(os.fsdecode(record_path(file).read_bytes()).strip())
        return path if is_own_socket(path) else None
    except (OSError, ValueError):
        return None


def is_own_socket(path: Path) -> bool:
    """Whether a path is a socket of this user: the directory for temporary files is open to all."""
    found = path.lstat()
    return stat.S_ISSOCK(found.st_mode) and found.st_uid == os.getuid()


def socket_path(file: Path) -> Path:
    """Where a supervisor of a network file listens in this environment."""
    digest = hashlib.sha256(str(file.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:24]
    name = f"overweave-{os.getuid()}-{digest}.sock"
    directories = (os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), _SHORT_DIRECTORY)
    paths = [Path(directory) / name for directory in directories]
    return next((path for path in paths if len(os.fsencode(path)) <= _SOCKET_PATH_BYTES_MAX), paths[0])
