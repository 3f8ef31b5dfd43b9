"""The client of ``overweave up``: it lists, starts and stops broker processes of a network that runs on this machine."""

import asyncio
import contextlib
from pathlib import Path

import msgspec

from overweave.drivers.tcp.supervisor_protocol import (
    LINE_BYTES_MAX,
    ListProcesses,
    ProcessEntry,
    StartProcess,
    StopProcess,
    SupervisorError,
    SupervisorReply,
    SupervisorRequest,
    SupervisorStatus,
    is_own_socket,
    recorded_socket,
    socket_path,
)

#: The time limit of a reply, beside that of a drain: a broker may compile first.
_REPLY_S = 180.0


class SupervisorClient:
    """The supervisor of one network file, as other processes of its user see it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    async def list(self) -> tuple[ProcessEntry, ...]:
        """The broker processes, by name."""
        return (await self._ask(ListProcesses())).processes

    async def status(self) -> SupervisorReply:
        """The supervisor and its broker processes."""
        return await self._ask(SupervisorStatus())

    async def start(self, broker: str, join: str | None = None, listen: str | None = None) -> None:
        """Start a broker and wait until it is ready; one that is not in the overlay of the file has to join at a URL."""
        await self._ask(StartProcess(broker, join, listen))

    async def stop(self, broker: str, drain_s: float = 0.0) -> None:
        """Stop a broker, after a drain of its clients with this time limit, and wait until it has exited."""
        await self._ask(StopProcess(broker, drain_s), drain_s)

    async def _ask(self, request: SupervisorRequest, more_s: float = 0.0) -> SupervisorReply:
        path = recorded_socket(self._file) or socket_path(self._file)
        self._check_owner(path)
        try:
            async with asyncio.timeout(_REPLY_S + more_s):
                line = await _exchange(path, msgspec.json.encode(request) + b"\n")
        except TimeoutError:
            raise SupervisorError(f"{self._file}: 'overweave up' has not replied within {_REPLY_S + more_s:g} s") from None
        except OSError:
            raise self._not_running() from None
        try:
            reply = msgspec.json.decode(line, type=SupervisorReply)
        except msgspec.DecodeError:
            raise SupervisorError(f"{self._file}: 'overweave up' has stopped before it replied") from None
        if reply.error is not None:
            raise SupervisorError(reply.error)
        return reply

    def _check_owner(self, path: Path) -> None:
        """Refuse a socket that another user has put there."""
        try:
            is_own = is_own_socket(path)
        except OSError:
            raise self._not_running() from None
        if not is_own:
            raise SupervisorError(f"{path}: expected a socket of this user")

    def _not_running(self) -> SupervisorError:
        return SupervisorError(f"{self._file}: no 'overweave up' of this user runs it on this machine")


async def _exchange(path: Path, line: bytes) -> bytes:
    reader, writer = await asyncio.open_unix_connection(str(path), limit=LINE_BYTES_MAX)
    try:
        writer.write(line)
        await writer.drain()
        return await reader.readline()
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
