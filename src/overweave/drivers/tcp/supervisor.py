"""The supervisor behind ``overweave up``: it serves requests to start and stop broker processes over a local socket."""

import asyncio
import contextlib
import fcntl
import os
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from overweave.drivers.tcp.atomic_file import write_atomically
from overweave.drivers.tcp.network_file import read_network
from overweave.drivers.tcp.processes import ProcessExited, ProcessGroup
from overweave.drivers.tcp.supervisor_protocol import (
    LINE_BYTES_MAX,
    ProcessEntry,
    StartProcess,
    StopProcess,
    SupervisorError,
    SupervisorReply,
    SupervisorRequest,
    record_path,
    recorded_socket,
    socket_path,
)
from overweave.errors import InvalidInput

#: How long a broker may take to start: it may compile first.
START_S = 120.0
#: The longest drain, and how long a connection may take to send its request.
DRAIN_S_MAX, REQUEST_S = 86_400.0, 5.0
#: A second process tries to lock the file for this time: the first one may be about to write its number.
_LOCK_S = 0.2

#: The command of a broker, from its id, the URL at which it joins, and the one at which it listens.
Command = Callable[[str, str | None, str | None], Sequence[str]]


class Supervisor:
    """Serves requests of this user for the broker processes of one network file."""

    def __init__(self, file: Path, command: Command) -> None:
        self._file, self._command = file, command
        self._group: ProcessGroup | None = None

    @contextlib.asynccontextmanager
    async def control(self, group: ProcessGroup) -> AsyncIterator[None]:
        """Serve while the body runs; the caller has the lock (`supervisor_lock`)."""
        self._group, path = group, socket_path(self._file)
        path.unlink(missing_ok=True)
        mask = os.umask(0o177)
        try:
            server = await asyncio.start_unix_server(self._connected, path=str(path), limit=LINE_BYTES_MAX)
        except OSError as error:
            raise SupervisorError(f"{path}: expected to listen there for requests, found: {error.strerror or error}") from None
        finally:
            os.umask(mask)
        record = record_path(self._file)
        with contextlib.suppress(OSError):  # in a directory that cannot be written, commands need the same environment
            write_atomically(record, os.fsencode(path) + b"\n", 0o600)
        try:
            yield
        finally:
            server.close()
            path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                record.unlink(missing_ok=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, TimeoutError, ValueError):  # a client that goes away is not an error
                async with asyncio.timeout(REQUEST_S):
                    line = await reader.readline()
                writer.write(msgspec.json.encode(await self._reply(line)) + b"\n")
                await writer.drain()
        finally:
            writer.close()

    async def _reply(self, line: bytes) -> SupervisorReply:
        error = None
        try:
            await self._perform(msgspec.json.decode(line, type=SupervisorRequest))
        except msgspec.DecodeError as wrong:
            error = f"expected a request to a supervisor: {wrong}"
        except (InvalidInput, ProcessExited) as wrong:
            error = str(wrong)
        return SupervisorReply(self._processes(), error, os.getpid(), str(self._file.resolve()))

    async def _perform(self, request: SupervisorRequest) -> None:
        if isinstance(request, StartProcess):
            await self._start(request)
        elif isinstance(request, StopProcess):
            await self._stop(request)

    async def _start(self, request: StartProcess) -> None:
        """Start a broker with the network file as it is now: it may have been rewritten."""
        assert self._group is not None
        broker = request.broker
        if broker in self._group:
            raise InvalidInput(f"broker {broker!r}: it runs already")
        await asyncio.to_thread(lambda: read_network(self._file).settings(broker, request.join, request.listen))
        if broker in self._group:
            raise InvalidInput(f"broker {broker!r}: it runs already")
        await self._group.start_ready(broker, self._command(broker, request.join, request.listen), START_S)

    async def _stop(self, request: StopProcess) -> None:
        assert self._group is not None
        if request.broker not in self._group:
            raise InvalidInput(f"broker {request.broker!r}: it does not run")
        if not 0 <= request.drain_s <= DRAIN_S_MAX:
            raise InvalidInput(f"drain: expected a time from 0 to {DRAIN_S_MAX:g} s, got {request.drain_s:g}")
        await self._group.stop(request.broker, request.drain_s)

    def _processes(self) -> tuple[ProcessEntry, ...]:
        assert self._group is not None
        return tuple(sorted((ProcessEntry(each.name, each.process.pid, each.state) for each in self._group), key=_by_name))


@contextlib.contextmanager
def supervisor_lock(file: Path) -> Iterator[None]:
    """Be the only supervisor of a network file while the body runs; `SupervisorError` names another one.

    That may run in another environment: its lock is beside the socket that it has recorded.
    """
    own, recorded = socket_path(file), recorded_socket(file)
    with contextlib.ExitStack() as locks:
        for path in dict.fromkeys(each.with_suffix(".lock") for each in (own, recorded) if each is not None):
            descriptor = _open(path)
            locks.callback(os.close, descriptor)  # the file stays: a process that has opened it may be about to lock it
            _lock(descriptor, file)
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        yield


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise SupervisorError(f"{path}: expected a file of this user, found: {(error.strerror or str(error)).lower()}") from None


def _lock(descriptor: int, file: Path) -> None:
    end_s = time.monotonic() + _LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > end_s:
                other = os.pread(descriptor, 32, 0).decode("ascii", "replace").strip()
                raise SupervisorError(f"{file}: 'overweave up' runs it already, process {other or 'unknown'}") from None
            time.sleep(_LOCK_S / 10)
        else:
            return


def _by_name(entry: ProcessEntry) -> tuple[int, str]:
    return len(entry.broker), entry.broker
