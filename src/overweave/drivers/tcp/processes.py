"""Supervised processes: one for each broker of a network on this machine. They are stopped together, and some come and go before.

A child writes the line ``ready`` to its standard output when it is ready. Its standard input is a pipe from its parent: when it
ends, the parent has exited for whatever reason, and the child stops too (`stop_with_parent`). The line ``drain SECONDS`` asks it
to drain its clients for that time, and to stop. Children are sessions of their own, so that Ctrl-C reaches only their parent,
which stops them in order.
"""

import asyncio
import contextlib
import os
import re
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any

from overweave.drivers.tcp.hangup import Hangup
from overweave.errors import OverweaveError

READY = b"ready"
#: The time limit for a child to stop.
STOP_S = 10.0
_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_LINE_MAX = 1 << 16


class ProcessExited(OverweaveError):
    """A process that exited without being stopped; the text has its name and reason."""


def _ignore(_: str, __: str) -> None:
    pass


class ProcessGroup:
    """The children of this process, by name. One that exits without being stopped is the failure of the group."""

    def __init__(self, on_line: Callable[[str, str], None], stop_s: float) -> None:
        self._on_line, self._stop_s = on_line, stop_s
        self._children: dict[str, ChildProcess] = {}
        #: The first child that has failed.
        self.failed: asyncio.Future[ChildProcess] = asyncio.get_running_loop().create_future()

    def __contains__(self, name: str) -> bool:
        return name in self._children

    def __iter__(self) -> Iterator["ChildProcess"]:
        return iter(list(self._children.values()))

    async def start(self, name: str, command: Sequence[str]) -> "ChildProcess":
        """Start a child that belongs to the group until it exits."""
        child = self._children[name] = await ChildProcess.start(name, command, self._on_line)
        child.exited.add_done_callback(lambda _: self._on_exited(child))
        return child

    async def start_ready(self, name: str, command: Sequence[str], limit_s: float) -> None:
        """Start a child and wait until it is ready; if it is not, `ProcessExited` is raised, and the group has not failed."""
        child = await self.start(name, command)
        child.is_optional = True
        ready: asyncio.Future[Any] = asyncio.ensure_future(child.ready.wait())
        try:
            await asyncio.wait([ready, child.exited], timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if child.exited.done():
            raise child.error
        if not child.ready.is_set():
            await self.stop(name, 0.0)
            raise ProcessExited(f"{name} was not ready within {limit_s:g} s")
        child.is_optional = False

    async def stop(self, name: str, drain_s: float) -> None:
        """Stop one child, which may drain its clients for a while; by force if it takes longer than that and the time limit."""
        child = self._children[name]
        child.is_stopping = True
        if not (drain_s and child.drain(drain_s)):
            _send([child], signal.SIGTERM)
        await asyncio.wait([child.exited], timeout=drain_s + self._stop_s)
        _send([child], signal.SIGKILL)
        await asyncio.wait([child.exited])

    def _on_exited(self, child: "ChildProcess") -> None:
        if self._children.get(child.name) is child:
            del self._children[child.name]
        if not (child.is_stopping or child.is_optional or self.failed.done()):
            self.failed.set_result(child)


@contextlib.asynccontextmanager
async def _uncontrolled(_: ProcessGroup) -> AsyncIterator[None]:
    yield


async def supervise(
    commands: Mapping[str, Sequence[str]],
    on_ready: Callable[[], None],
    on_line: Callable[[str, str], None] = _ignore,
    stop_s: float = STOP_S,
    control: Callable[[ProcessGroup], AbstractAsyncContextManager[None]] = _uncontrolled,
) -> None:
    """Run a command for each name until a termination signal, then stop them all; return when no child is left.

    ``on_ready`` is called when all children are ready, ``on_line`` with every line that one writes on its standard error. If one
    exits early, the others are stopped and `ProcessExited` is raised. A second signal kills the children that still run.
    SIGHUP is passed on to the children, unless the terminal was closed. ``control`` may start and stop children meanwhile.
    """
    signals: asyncio.Queue[None] = asyncio.Queue()
    group, hangup = ProcessGroup(on_line, stop_s), Hangup()

    def on_hangup() -> None:
        if hangup.is_real():
            signals.put_nowait(None)
        else:  # it would kill children that are not ready, and these read their files anyway
            _send([child for child in group if child.ready.is_set()], signal.SIGHUP)

    with _signals_in(signals, on_hangup):
        try:
            async with control(group):
                first = []
                for name, command in commands.items():
                    if not signals.empty():
                        return
                    first.append(await group.start(name, command))
                await _watch(group, first, signals, on_ready)
        finally:
            # Those that came later first: guests leave while their contacts run.
            later = [child for child in group if child.name not in commands]
            await _stop([later, [child for child in group if child.name in commands]], signals, stop_s)


def stop_with_parent(stdin: int, stop_s: float = STOP_S, on_drain: Callable[[float], None] = lambda _: None) -> None:
    """Terminate this process when its standard input ends, by force if it takes too long.

    ``on_drain`` is called with the time limit when the parent asks for a drain; then the process is terminated likewise.
    """

    def watch() -> None:
        # The descriptor, not the stream: a stream that is being read would be in the way when the interpreter shuts down.
        with contextlib.suppress(OSError):
            while text := os.read(stdin, _LINE_MAX):
                limit_s = _drain_limit(text)
                if limit_s is not None:
                    on_drain(limit_s)
                    os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(stop_s)
        os._exit(1)

    threading.Thread(target=watch, name="stop-with-parent", daemon=True).start()


def _drain_limit(text: bytes) -> float | None:
    """The time limit in a request to drain."""
    found = re.search(rb"^drain ([0-9.]+)$", text, re.MULTILINE)
    return None if found is None else float(found[1])


class ChildProcess:
    """A process and its output."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, on_line: Callable[[str, str], None]) -> None:
        self.name = name
        self.process = process
        self.ready = asyncio.Event()
        #: Whether it was asked to stop, and whether its failure is only that of a request to start it.
        self.is_stopping = self.is_optional = False
        self._on_line = on_line
        self._last_line = ""
        #: Done when the process has exited and all its output was read.
        self.exited = asyncio.gather(self._read_stdout(), self._read_stderr(), process.wait())

    @classmethod
    async def start(cls, name: str, command: Sequence[str], on_line: Callable[[str, str], None]) -> "ChildProcess":
        """Start a process."""
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        return cls(name, process, on_line)

    @property
    def state(self) -> str:
        """``starting``, ``ready`` or ``stopping``."""
        return "stopping" if self.is_stopping else "ready" if self.ready.is_set() else "starting"

    def drain(self, limit_s: float) -> bool:
        """Ask it to drain its clients and to stop; False if its input is closed."""
        assert self.process.stdin is not None
        if self.process.stdin.is_closing():
            return False
        self.process.stdin.write(b"drain %.3f\n" % limit_s)
        return True

    @property
    def error(self) -> ProcessExited:
        """The reason of its exit."""
        code = self.process.returncode or 0
        how = f"ended with status {code}" if code >= 0 else f"was ended by {_signal_name(-code)}"
        return ProcessExited(f"{self.name} {how}" + (f": {self._last_line}" if self._last_line else ""))

    async def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        async for line in _lines(self.process.stdout):
            if line == READY:
                self.ready.set()

    async def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        async for line in _lines(self.process.stderr):
            text = line.decode(errors="backslashreplace").strip()
            if text:
                self._last_line = text
                self._on_line(self.name, text)


async def _watch(
    group: ProcessGroup, first: Sequence[ChildProcess], signals: asyncio.Queue[None], on_ready: Callable[[], None]
) -> None:
    """Return at a termination signal; raise `ProcessExited` when a child exits that was not stopped."""
    stopped: asyncio.Future[Any] = asyncio.ensure_future(signals.get())
    all_ready: asyncio.Future[Any] = asyncio.gather(*(child.ready.wait() for child in first))
    try:
        await asyncio.wait([group.failed, stopped, all_ready], return_when=asyncio.FIRST_COMPLETED)
        if all_ready.done() and not (stopped.done() or group.failed.done()):
            on_ready()
            await asyncio.wait([group.failed, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            raise group.failed.result().error
    finally:
        for waiting in (stopped, all_ready):
            waiting.cancel()
        await asyncio.gather(stopped, all_ready, return_exceptions=True)


async def _stop(groups: Sequence[Sequence[ChildProcess]], signals: asyncio.Queue[None], stop_s: float) -> None:
    """Terminate children, one group after the other; kill those that are left after the time limit, or at another signal."""
    for child in [child for children in groups for child in children]:
        child.is_stopping = True
    signalled: asyncio.Future[Any] = asyncio.ensure_future(signals.get())
    for children in groups:
        _send(children, signal.SIGTERM)
        ended: asyncio.Future[Any] = asyncio.gather(*(child.exited for child in children), return_exceptions=True)
        await asyncio.wait([ended, signalled], timeout=stop_s, return_when=asyncio.FIRST_COMPLETED)
        _send(children, signal.SIGKILL)
        await ended
    signalled.cancel()


def _send(children: Sequence[ChildProcess], number: signal.Signals) -> None:
    for child in children:
        if child.process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.process.send_signal(number)


@contextlib.contextmanager
def _signals_in(signals: asyncio.Queue[None], on_hangup: Callable[[], None]) -> Iterator[None]:
    """Put termination signals into the queue while the body runs."""
    loop = asyncio.get_running_loop()
    for number in _SIGNALS:
        loop.add_signal_handler(number, signals.put_nowait, None)
    loop.add_signal_handler(signal.SIGHUP, on_hangup)
    try:
        yield
    finally:
        for number in (*_SIGNALS, signal.SIGHUP):
            loop.remove_signal_handler(number)


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """The lines of a stream; of a line that is too long, only its end."""
    rest = b""
    while piece := await stream.read(_LINE_MAX):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line.rstrip(b"\r")
        rest = rest[-_LINE_MAX:]
    if rest:
        yield rest


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
