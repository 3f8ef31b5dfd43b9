"""Processes that live tests ask for something: a request and a response are a line of JSON each, on standard input and output."""

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator

from overweave.errors import OverweaveError

#: The time limit of a response, and the longest line.
RESPONSE_S, _LINE_MAX = 120.0, 1 << 26


class LineProcess:
    """A process of a Python module, from the side that asks."""

    def __init__(self, module: str, name: str) -> None:
        self._module, self._name = module, name
        self._process: asyncio.subprocess.Process | None = None

    async def start(self, line: bytes) -> bytes:
        """Start the process; the response to the first line."""
        command, pipe = [sys.executable, "-m", self._module], subprocess.PIPE
        self._process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=_LINE_MAX)
        return await self.ask(line)

    async def ask(self, line: bytes) -> bytes:
        """The response to a line."""
        assert self._process is not None
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(line + b"\n")
        async with asyncio.timeout(RESPONSE_S):
            said = await self._process.stdout.readline()
        if not said:
            raise OverweaveError(f"the process of {self._name} has ended")
        return said

    @property
    def exit_status(self) -> int | None:
        """Its exit status; None while it runs."""
        return None if self._process is None else self._process.returncode

    async def kill(self) -> None:
        """End it as a crash would."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def wait(self) -> None:
        """Wait for its end."""
        assert self._process is not None
        await asyncio.wait_for(self._process.wait(), RESPONSE_S)


async def requests() -> AsyncIterator[bytes]:
    """The lines of standard input, on the side that is asked."""
    reader = asyncio.StreamReader(limit=_LINE_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield line


def respond(line: bytes) -> None:
    """Respond to the last request."""
    rest = memoryview(line + b"\n")
    while rest:
        rest = rest[os.write(1, rest) :]
