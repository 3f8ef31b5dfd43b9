"""Supervised processes: one for each broker of a network on this machine, started and stopped together.

A child writes the line ``ready`` to its standard output when it is ready. Its standard input is a pipe from its parent, into
which nothing is written: when it ends, the parent has exited for whatever reason, and the child stops too (`stop_with_parent`).
Children are sessions of their own, so that Ctrl-C reaches only their parent, which stops them in order.
"""

import asyncio
import contextlib
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
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


async def supervise(
    commands: Mapping[str, Sequence[str]],
    on_ready: Callable[[], None],
    on_line: Callable[[str, str], None] = _ignore,
    stop_s: float = STOP_S,
) -> None:
    """Run a command for each name until a termination signal, then stop them all; return when no child is left.

    ``on_ready`` is called when all children are ready, ``on_line`` with every line that one writes on its standard error. If one
    exits early, the others are stopped and `ProcessExited` is raised. A second signal kills the children that still run.
    SIGHUP is passed on to the children, unless the terminal was closed.
    """
    signals: asyncio.Queue[None] = asyncio.Queue()
    children: list[_Child] = []
    hangup = Hangup()

    def on_hangup() -> None:
        if hangup.is_real():
            signals.put_nowait(None)
        else:  # it would kill children that are not ready, and these read their files anyway
            _send([child for child in children if child.ready.is_set()], signal.SIGHUP)

    with _signals_in(signals, on_hangup):
        try:
            for name, command in commands.items():
                if not signals.empty():
                    return
                children.append(await _Child.start(name, command, on_line))
            await _watch(children, signals, on_ready)
        finally:
            await _stop(children, signals, stop_s)


def stop_with_parent(stdin: int, stop_s: float = STOP_S) -> None:
    """Terminate this process when its standard input ends, by force if it takes too long."""

    def watch() -> None:
        # The descriptor, not the stream: a stream that is being read would be in the way when the interpreter shuts down.
        with contextlib.suppress(OSError):
            while os.read(stdin, _LINE_MAX):
                pass
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(stop_s)
        os._exit(1)

    threading.Thread(target=watch, name="stop-with-parent", daemon=True).start()


class _Child:
    """A process and its output."""

    def __init__(self, name: str, process: asyncio.subprocess.Process, on_line: Callable[[str, str], None]) -> None:
        self.name = name
        self.process = process
        self.ready = asyncio.Event()
        self._on_line = on_line
        self._last_line = ""
        #: Done when the process has exited and all its output was read.
        self.exited = asyncio.gather(self._read_stdout(), self._read_stderr(), process.wait())

    @classmethod
    async def start(cls, name: str, command: Sequence[str], on_line: Callable[[str, str], None]) -> "_Child":
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
        return cls(name, process, on_line)

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


async def _watch(children: Sequence[_Child], signals: asyncio.Queue[None], on_ready: Callable[[], None]) -> None:
    """Return at a termination signal; raise `ProcessExited` when a child exits."""
    stopped: asyncio.Future[Any] = asyncio.ensure_future(signals.get())
    all_ready: asyncio.Future[Any] = asyncio.gather(*(child.ready.wait() for child in children))
    exits: list[asyncio.Future[Any]] = [child.exited for child in children]
    try:
        await asyncio.wait([*exits, stopped, all_ready], return_when=asyncio.FIRST_COMPLETED)
        if all_ready.done() and not (stopped.done() or any(each.done() for each in exits)):
            on_ready()
            await asyncio.wait([*exits, stopped], return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            raise next(child for child in children if child.exited.done()).error
    finally:
        for waiting in (stopped, all_ready):
            waiting.cancel()
        await asyncio.gather(stopped, all_ready, return_exceptions=True)


async def _stop(children: Sequence[_Child], signals: asyncio.Queue[None], stop_s: float) -> None:
    """Terminate all children, wait for them, and kill the rest after the time limit or at another signal."""
    _send(children, signal.SIGTERM)
    signalled: asyncio.Future[Any] = asyncio.ensure_future(signals.get())
    ended: asyncio.Future[Any] = asyncio.gather(*(child.exited for child in children), return_exceptions=True)
    await asyncio.wait([ended, signalled], timeout=stop_s, return_when=asyncio.FIRST_COMPLETED)
    signalled.cancel()
    _send(children, signal.SIGKILL)
    await ended


def _send(children: Sequence[_Child], number: signal.Signals) -> None:
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
